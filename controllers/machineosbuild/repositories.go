package machineosbuild

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/pullsecret"
)

// repositories are what the package manager of a build gets besides the image's
// own: all are optional and shared by all pools, as users of on-cluster builds
// know them.
type repositories struct {
	// yumRepos has files for /etc/yum.repos.d.
	yumRepos *corev1.ConfigMap
	// gpgKeys has files for /etc/pki/rpm-gpg.
	gpgKeys *corev1.Secret
	// entitlement has files for /etc/pki/entitlement, private keys among them.
	entitlement *corev1.Secret
}

// gatherRepositories reads them. The pool's own entitlement comes before that of
// all pools.
func (g *gatherer) gatherRepositories(ctx context.Context, s *scope) (err error) {
	found := &s.repositories
	if found.yumRepos, err = find[corev1.ConfigMap](ctx, g.reader, s.namespace, keys.ConfigMapYumRepos); err != nil {
		return err
	}
	if found.gpgKeys, err = find[corev1.Secret](ctx, g.reader, s.namespace, keys.SecretGPGKeys); err != nil {
		return err
	}
	for _, name := range entitlementNames(s.config.Spec.MachineConfigPool.Name) {
		if found.entitlement, err = find[corev1.Secret](ctx, g.reader, s.namespace, name); err != nil || found.entitlement != nil {
			return err
		}
	}
	return nil
}

func entitlementNames(pool string) []string {
	return []string{fit(keys.SecretEntitlement+"-"+pool, keys.MaxName), keys.SecretEntitlement}
}

func (r *repositories) reposHash() string {
	if r.yumRepos == nil {
		return ""
	}
	content := maps.Clone(r.yumRepos.BinaryData)
	if content == nil {
		content = map[string][]byte{}
	}
	for name, text := range r.yumRepos.Data {
		content[name] = []byte(text)
	}
	return hashOfFiles("yum repositories", content)
}

func (r *repositories) keysHash() string {
	if r.gpgKeys == nil {
		return ""
	}
	return hashOfFiles("gpg keys", r.gpgKeys.Data)
}

// hashOfFiles is over names and content; empty for no files.
func hashOfFiles(domain string, files map[string][]byte) string {
	if len(files) == 0 {
		return ""
	}
	return hashOf(domain, files)
}

// dependencies are the versions of what a build is made with but its image does
// not depend on: credentials, certificates, entitlement. Versions and not
// content: a hash of a short password would give it away.
func (s *scope) dependencies() string {
	versions := map[string]string{}
	for name, secret := range s.secrets {
		versions[name] = versionOf(secret)
	}
	if s.repositories.entitlement != nil {
		versions[s.repositories.entitlement.Name] = versionOf(s.repositories.entitlement)
	}
	versions[keys.ConfigMapTrustBundle] = hashOfText(s.site.trustBundle)
	for _, variable := range s.site.proxy {
		versions[variable.Name] = hashOfText(variable.Value) // it may hold a password
	}
	return hashOf("dependencies", versions)[:hashDigits]
}

func versionOf(object metav1.Object) string {
	return fmt.Sprintf("%s/%s", object.GetUID(), object.GetResourceVersion())
}

// ignoredHelpers names the Secrets of which a part is not used: credential
// helpers are programs that a builder pod does not have.
func (s *scope) ignoredHelpers() string {
	var named []string
	for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
		if pullsecret.HasHelpers(s.secrets[name]) {
			named = append(named, name)
		}
	}
	return strings.Join(named, ", ")
}
