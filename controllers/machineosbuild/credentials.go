package machineosbuild

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/controllers/pullsecret"
)

// pullAuths are the credentials that a builder pulls with: those for base
// images, then the push secret's, then the cluster's, since a Containerfile may
// name images of any of these registries.
func (s *scope) pullAuths() (pullsecret.Auths, error) {
	var sources []pullsecret.Auths
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
		if found, err := pullsecret.Read(global); err == nil {
			sources = append(sources, found)
		}
	}
	return pullsecret.Merge(sources...), nil
}

// authsOf reads the Secret that ref names. The error names secret and field.
func (s *scope) authsOf(ref secretRef) (pullsecret.Auths, error) {
	secret := s.secrets[ref.name]
	if secret == nil {
		return nil, fmt.Errorf("%s: secret %q not found in namespace %s; create it (type %s)",
			ref.source, ref.name, s.namespace, corev1.SecretTypeDockerConfigJson)
	}
	found, err := pullsecret.Read(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: secret %q in namespace %s: %w", ref.source, ref.name, s.namespace, err)
	}
	return found, nil
}
