package registry

import (
	"errors"
	"fmt"
	"os"

	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"
)

// acceptAnything is a signature policy for a host that has none.
const acceptAnything = `{"default":[{"type":"insecureAcceptAnything"}]}` + "\n"

// PolicyFile gives the path of the signature policy of sys for a library that
// wants a file. Where the host has none, a policy that accepts everything is
// written to fallback, and fallback is returned. "" means the host's.
func PolicyFile(sys *types.SystemContext, fallback string) (string, error) {
	if sys.SignaturePolicyPath != "" {
		return sys.SignaturePolicyPath, nil
	}
	found, err := hostHasPolicy(sys)
	if err != nil || found {
		return "", err
	}
	if err := os.WriteFile(fallback, []byte(acceptAnything), 0o644); err != nil {
		return "", fmt.Errorf("signature policy: %w", err)
	}
	return fallback, nil
}

// Policy gives the signature policy of sys.
func Policy(sys *types.SystemContext) (*signature.Policy, error) {
	policy, err := signature.DefaultPolicy(sys)
	if errors.Is(err, configfile.ErrConfigFileNotFound) {
		return signature.NewPolicyFromBytes([]byte(acceptAnything))
	}
	return policy, err
}

func hostHasPolicy(sys *types.SystemContext) (bool, error) {
	_, err := signature.DefaultPolicy(sys)
	if errors.Is(err, configfile.ErrConfigFileNotFound) {
		return false, nil
	}
	return err == nil, err
}
