package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// authFilePath is the first place where bootc looks for registry credentials.
// It is in memory: it has to be written again after every boot.
const authFilePath = "/run/ostree/auth.json"

// Secret is the content of a pull secret. It prints as a placeholder, so that
// no log statement can show it by accident.
type Secret []byte

// String hides the content.
func (Secret) String() string { return "[secret]" }

// GoString hides the content from %#v, too.
func (Secret) GoString() string { return "[secret]" }

// MarshalJSON hides the content from structured logs.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"[secret]"`), nil }

// hash is the form in which NodeImage.spec.pullSecretHash names a content.
func (s Secret) hash() string {
	sum := sha256.Sum256(s)
	return hex.EncodeToString(sum[:])
}

// readPullSecret reads the rollout's key in the mounted Secret; nil when it is
// not there yet: the kubelet brings changes within a minute or two.
func readPullSecret(directory, rollout string) (Secret, error) {
	if rollout == "" || rollout != filepath.Base(rollout) || rollout == ".." || rollout == "." {
		return nil, fmt.Errorf("spec.rollout %q is no name", rollout)
	}
	return readSecretFile(filepath.Join(directory, rollout))
}

// readSecretFile returns nil for a file that is not there.
func readSecretFile(path string) (Secret, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFileBytes))
}

// writeAuthFile brings the credentials to where bootc reads them, anew before every
// command: somebody may have made the file readable for others.
func writeAuthFile(host Host, secret Secret) error {
	return host.WriteFile(authFilePath, secret, 0o600)
}
