package machineosbuild

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// auths are credentials by registry host, or by host and repository path, as in
// the member "auths" of docker's config.json. The values are passed on as they
// are.
type auths map[string]json.RawMessage

// readAuths reads a Secret of either of docker's formats. Of config.json only
// "auths" is taken: credential helpers are programs that a builder does not
// have. No error shows content of the Secret.
func readAuths(secret *corev1.Secret) (auths, error) {
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		return readConfigJSON(secret.Data[corev1.DockerConfigJsonKey])
	case corev1.SecretTypeDockercfg:
		return readConfigEntries(corev1.DockerConfigKey, secret.Data[corev1.DockerConfigKey])
	default:
		return nil, fmt.Errorf("its type is %q; create it again with type %s or %s",
			secret.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
}

func readConfigJSON(raw []byte) (auths, error) {
	var config struct {
		Auths json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		// The decoder's own text may quote content.
		return nil, fmt.Errorf("its key %s is not a JSON object; write a docker config.json", corev1.DockerConfigJsonKey)
	}
	if len(config.Auths) == 0 {
		return nil, fmt.Errorf("its key %s has no member \"auths\"; credential helpers cannot be used here", corev1.DockerConfigJsonKey)
	}
	return readConfigEntries(corev1.DockerConfigJsonKey, config.Auths)
}

func readConfigEntries(key string, raw []byte) (auths, error) {
	var entries auths
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, fmt.Errorf("its key %s does not map registries to credentials; write docker's format", key)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("its key %s has credentials for no registry", key)
	}
	return entries, nil
}

// hasHelpers reports whether a Secret names credential helpers, which are not
// used.
func hasHelpers(secret *corev1.Secret) bool {
	var config struct {
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	if secret.Type != corev1.SecretTypeDockerConfigJson || json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil {
		return false
	}
	return len(config.CredHelpers) > 0 || config.CredsStore != ""
}

// mergeAuths puts credentials together; of two for the same registry the
// earlier one counts.
func mergeAuths(sources ...auths) auths {
	merged := auths{}
	for i := len(sources) - 1; i >= 0; i-- {
		maps.Copy(merged, sources[i])
	}
	return merged
}

// configJSON writes credentials as docker's config.json, in a fixed order.
func (a auths) configJSON() ([]byte, error) {
	raw, err := json.Marshal(map[string]auths{"auths": a})
	if err != nil {
		return nil, errors.New("credentials cannot be written as JSON")
	}
	return raw, nil
}

// pullAuths are the credentials that a builder pulls with: those for base
// images, then the push secret's, then the cluster's, since a Containerfile may
// name images of any of these registries.
func (s *scope) pullAuths() (auths, error) {
	var sources []auths
	for _, ref := range []secretRef{s.basePullSecretRef(), s.pushSecretRef()} {
		if ref.name == "" {
			continue
		}
		found, err := s.authsOf(ref)
		if err != nil {
			return nil, err
		}
		sources = append(sources, found)
	}
	// The cluster's own secret is a convenience: a damaged one is as good as none.
	if global := s.secrets[s.globalPullSecret]; global != nil {
		if found, err := readAuths(global); err == nil {
			sources = append(sources, found)
		}
	}
	return mergeAuths(sources...), nil
}

// authsOf reads the Secret that ref names. The error names secret and field.
func (s *scope) authsOf(ref secretRef) (auths, error) {
	secret := s.secrets[ref.name]
	if secret == nil {
		return nil, fmt.Errorf("%s: secret %q not found in namespace %s; create it (type %s)",
			ref.source, ref.name, s.namespace, corev1.SecretTypeDockerConfigJson)
	}
	found, err := readAuths(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: secret %q in namespace %s: %w", ref.source, ref.name, s.namespace, err)
	}
	return found, nil
}
