package pullsecret

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestDockerFormats(t *testing.T) {
	const entry = `{"registry.example.com":{"auth":"c2VjcmV0"}}`
	secret := func(kind corev1.SecretType, key, content string) *corev1.Secret {
		return &corev1.Secret{Type: kind, Data: map[string][]byte{key: []byte(content)}}
	}
	for name, test := range map[string]struct {
		secret *corev1.Secret
		fails  string
	}{
		"config.json":               {secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":`+entry+`}`), ""},
		"the old format":            {secret(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, entry), ""},
		"helpers are passed over":   {secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"credsStore":"x","auths":`+entry+`}`), ""},
		"helpers alone are no use":  {secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"credHelpers":{"a":"c2VjcmV0"}}`), "no member \"auths\""},
		"no JSON":                   {secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `c2VjcmV0`), "is not a JSON object"},
		"a list":                    {secret(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `["c2VjcmV0"]`), "does not map registries"},
		"nothing in it":             {secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{}}`), "for no registry"},
		"the old format in the new": {secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, entry), "no member \"auths\""},
		"another type":              {secret(corev1.SecretTypeOpaque, "password", "c2VjcmV0"), `its type is "Opaque"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(test.secret)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Fatalf("error %v, want %q", err, test.fails)
				}
				if strings.Contains(err.Error(), "c2VjcmV0") {
					t.Errorf("the error shows content: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if raw, _ := got.ConfigJSON(); string(raw) != `{"auths":`+entry+`}` {
				t.Errorf("written as %s", raw)
			}
		})
	}
}

func TestEarlierCredentialsCount(t *testing.T) {
	got := Merge(Auths{"a": json.RawMessage("1")}, Auths{"a": json.RawMessage("2"), "b": json.RawMessage("3")})
	if diff := cmp.Diff(Auths{"a": json.RawMessage("1"), "b": json.RawMessage("3")}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
