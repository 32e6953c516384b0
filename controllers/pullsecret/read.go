package pullsecret

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Auths are credentials by registry host, or by host and repository path, as in
// the member "auths" of docker's config.json. The values are passed on as they
// are.
type Auths map[string]json.RawMessage

// Read reads a Secret of either of docker's formats. Of config.json only "auths"
// is taken: credential helpers are programs that nobody here has. No error shows
// content of the Secret; its text goes on after the Secret's name.
func Read(secret *corev1.Secret) (Auths, error) {
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		return readConfigJSON(secret.Data[corev1.DockerConfigJsonKey])
	case corev1.SecretTypeDockercfg:
		return readEntries(corev1.DockerConfigKey, secret.Data[corev1.DockerConfigKey])
	default:
		return nil, fmt.Errorf("its type is %q; create it again with type %s or %s",
			secret.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
}

// KeyOf is the key of a Secret that Read looks at.
func KeyOf(secret *corev1.Secret) string {
	if secret.Type == corev1.SecretTypeDockercfg {
		return corev1.DockerConfigKey
	}
	return corev1.DockerConfigJsonKey
}

func readConfigJSON(raw []byte) (Auths, error) {
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
	return readEntries(corev1.DockerConfigJsonKey, config.Auths)
}

func readEntries(key string, raw []byte) (Auths, error) {
	var entries Auths
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, fmt.Errorf("its key %s does not map registries to credentials; write docker's format", key)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("its key %s has credentials for no registry", key)
	}
	return entries, nil
}

// HasHelpers reports whether a Secret names credential helpers, which are not
// used.
func HasHelpers(secret *corev1.Secret) bool {
	var config struct {
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	if secret.Type != corev1.SecretTypeDockerConfigJson || json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil {
		return false
	}
	return len(config.CredHelpers) > 0 || config.CredsStore != ""
}

// Merge puts credentials together; of two for the same registry the earlier one
// counts.
func Merge(sources ...Auths) Auths {
	merged := Auths{}
	for i := len(sources) - 1; i >= 0; i-- {
		maps.Copy(merged, sources[i])
	}
	return merged
}

// ConfigJSON writes credentials as docker's config.json, in a fixed order.
func (a Auths) ConfigJSON() ([]byte, error) {
	if a == nil {
		a = Auths{}
	}
	raw, err := json.Marshal(map[string]Auths{"auths": a})
	if err != nil {
		return nil, errors.New("credentials cannot be written as JSON")
	}
	return raw, nil
}
