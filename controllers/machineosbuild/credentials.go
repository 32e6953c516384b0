package machineosbuild

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/pullsecret"
	"github.com/imagemode/imagemode/ignition"
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
	if global := s.secrets[s.globalPullSecretRef().name]; global != nil {
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

// globalPullSecretRef is the cluster's own Secret, which need not exist.
func (s *scope) globalPullSecretRef() secretRef {
	return secretRef{name: s.globalPullSecret, source: "--global-pull-secret"}
}

// explain adds to a failure what only this side knows: which Secret the builder had
// for the repository that refused it, or which MachineConfigs bring what an image
// cannot hold. Names are told, and no content.
func (s *buildScope) explain(failure request.Failure) request.Failure {
	if failure.Class == request.Config {
		if found := culprits(s.owner.readSources(), ignition.Problem{Reason: failure.Message}); found != "" {
			failure.Message += "; it comes from " + found
		}
		return failure
	}
	if failure.Class != request.Authentication || failure.Repository == "" {
		return failure
	}
	refs := []secretRef{s.owner.basePullSecretRef(), s.owner.pushSecretRef(), s.owner.globalPullSecretRef()}
	if failure.Repository == repositoryOf(s.build.Spec.RenderedImagePushSpec) {
		refs = []secretRef{s.owner.pushSecretRef()} // the builder takes no others there, also to pull
	}
	failure.Message += "; " + s.owner.credentialsUsed(failure.Repository, refs)
	return failure
}

// credentialsUsed says which of some Secrets, the first of which counts, had the
// credentials for a repository.
func (s *scope) credentialsUsed(repository string, refs []secretRef) string {
	all := make([]pullsecret.Auths, 0, len(refs))
	var looked []string
	for _, ref := range refs {
		found, err := s.authsOf(ref)
		if ref.name == "" || err != nil {
			found = nil
		} else {
			looked = append(looked, ref.String())
		}
		all = append(all, found)
	}
	entry, found := pullsecret.Merge(all...).EntryFor(repository)
	if !found {
		return fmt.Sprintf("it was asked without credentials, since there is no entry for %s in %s: add one there",
			repository, orElse(strings.Join(looked, ", "), "any Secret"))
	}
	for i, auths := range all {
		if _, has := auths[entry]; has {
			return fmt.Sprintf("it was asked with the entry for %s in %s: correct that, or give its user the right in the registry", entry, refs[i])
		}
	}
	return ""
}

// entryIn says which entry of a Secret is for an image, or that there is none.
func (s *scope) entryIn(ref secretRef, image string) string {
	repository, _, _ := strings.Cut(image, "@")
	repository = repositoryOf(mcfgv1.ImageTagFormat(repository))
	auths, err := s.authsOf(ref)
	if err != nil {
		return ""
	}
	if entry, found := auths.EntryFor(repository); found {
		return ", entry for " + entry
	}
	return fmt.Sprintf(", which has no entry for %s", repository)
}

// String names the Secret, and what says that it is used.
func (r secretRef) String() string { return fmt.Sprintf("secret %q (%s)", r.name, r.source) }
