package story

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/e2e/local"
)

// Supplies are what every RUN of the cluster sees, by the path it sees it at.
var Supplies = map[string]string{
	"/etc/yum.repos.d/imagemode.repo":    "[imagemode]\nname=a repository of the end-to-end test\n",
	"/etc/pki/rpm-gpg/imagemode.asc":     "the key of that repository",
	"/etc/pki/entitlement/imagemode.pem": "an entitlement of the end-to-end test",
}

// ProvideSupplies makes the objects that Supplies come from.
func (s *Story) ProvideSupplies(ctx context.Context) error {
	repositories := map[string]string{"imagemode.repo": Supplies["/etc/yum.repos.d/imagemode.repo"]}
	if err := s.applyConfigMap(ctx, "etc-yum-repos-d", repositories); err != nil {
		return err
	}
	if err := s.applySecret(ctx, "etc-pki-rpm-gpg", corev1.SecretTypeOpaque, "imagemode.asc", []byte(Supplies["/etc/pki/rpm-gpg/imagemode.asc"])); err != nil {
		return err
	}
	return s.applySecret(ctx, "etc-pki-entitlement", corev1.SecretTypeOpaque, "imagemode.pem", []byte(Supplies["/etc/pki/entitlement/imagemode.pem"]))
}

// TakeSuppliesAway deletes them, as the next installation has none.
func (s *Story) TakeSuppliesAway(ctx context.Context) error {
	var problems []error
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: inNamespace("etc-yum-repos-d")},
		&corev1.Secret{ObjectMeta: inNamespace("etc-pki-rpm-gpg")},
		&corev1.Secret{ObjectMeta: inNamespace("etc-pki-entitlement")},
	} {
		problems = append(problems, client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, object)))
	}
	return errors.Join(problems...)
}

// ProvideCredentialsFor makes a Secret with the credentials of one of the
// registry's users for other hosts, that lead to the registry.
func (s *Story) ProvideCredentialsFor(ctx context.Context, user, secret string, hosts ...string) error {
	raw, err := local.DockerConfig(user)
	if err != nil {
		return err
	}
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return err
	}
	for _, host := range hosts {
		config.Auths[host] = config.Auths[local.Registry]
	}
	if raw, err = json.Marshal(config); err != nil {
		return err
	}
	return s.applySecret(ctx, secret, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, raw)
}

func (s *Story) applySecret(ctx context.Context, name string, kind corev1.SecretType, key string, content []byte) error {
	secret := &corev1.Secret{ObjectMeta: inNamespace(name)}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Cluster.Client, secret, func() error {
		secret.Type = kind
		secret.Data = map[string][]byte{key: content}
		return nil
	})
	return err
}

// BaseImage is the OS image of the cluster's first stream, by digest.
func (s *Story) BaseImage() (string, error) {
	streams, err := local.Streams()
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		var stream struct {
			OSImage string `json:"osImage"`
		}
		err := yaml.Unmarshal([]byte(streams[name]), &stream)
		return stream.OSImage, err
	}
	return "", errors.New("the cluster has no OS stream")
}
