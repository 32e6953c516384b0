package machineosbuild

import (
	"regexp"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// Limits on the length of names, in bytes. Those of objects and labels are
// Kubernetes'; a Job's name becomes a label of its pods.
const (
	maxImageTag = 128
	// maxPushSpec is the API's limit of an image reference.
	maxPushSpec = 447
)

// hashDigits is the number of hex digits that a build's name ends with.
const hashDigits = 32

var endsInHash = regexp.MustCompile(`-[0-9a-f]{32}$`)

// fit returns name if it has at most limit bytes. A longer name that ends with
// a hash (-<32 hex>) keeps the hash, which tells it apart, and loses the end of
// the part before it; one without a hash is cut and gets 8 hex of its own.
// limit is at least 48. A DNS subdomain stays one, and stays valid as a label.
func fit(name string, limit int) string {
	if len(name) <= limit || !endsInHash.MatchString(name) {
		return keys.Shorten(name, limit)
	}
	hash := name[len(name)-hashDigits:]
	front := strings.TrimRight(name[:limit-hashDigits-1], "-.")
	return front + "-" + hash
}

// buildName returns the name of a MachineOSBuild: the MachineOSConfig's name and
// the first 32 hex digits of the hash of what the build is made of.
func buildName(config, hash string) string {
	return fit(config+"-"+hash[:hashDigits], keys.MaxName)
}

// Names of a build's objects in the namespace. The prefixes are those that
// users of on-cluster builds know.
func jobName(build string) string           { return fit("build-"+build, keys.MaxLabelValue) }
func requestName(build string) string       { return fit("request-"+build, keys.MaxName) }
func trustBundleName(build string) string   { return fit("additionaltrustbundle-"+build, keys.MaxName) }
func pullSecretName(build string) string    { return fit("base-"+build, keys.MaxName) }
func pushSecretName(build string) string    { return fit("final-"+build, keys.MaxName) }
func yumReposName(build string) string      { return fit(keys.ConfigMapYumRepos+"-"+build, keys.MaxName) }
func gpgKeysName(build string) string       { return fit(keys.SecretGPGKeys+"-"+build, keys.MaxName) }
func entitlementName(build string) string   { return fit(keys.SecretEntitlement+"-"+build, keys.MaxName) }
func labelValue(name string) string         { return fit(name, keys.MaxLabelValue) }
func imageTag(build string) string          { return fit(build, maxImageTag) }
func pushSpec(repo, build string) string    { return repo + ":" + imageTag(build) }
func digestSpec(repo, digest string) string { return repo + "@" + digest }

// credentialNames are the Secrets of a build that must not outlive it.
func credentialNames(build string) []string {
	return []string{pullSecretName(build), pushSecretName(build), entitlementName(build)}
}

// repositoryOf returns an image reference without its tag:
// host[:port]/repository.
func repositoryOf(spec mcfgv1.ImageTagFormat) string {
	reference := string(spec)
	if colon := strings.LastIndexByte(reference, ':'); colon > strings.LastIndexByte(reference, '/') {
		return reference[:colon]
	}
	return reference
}

// digestRepository is what the API takes in front of the @ of an image by
// digest. It allows one level of namespace, though it allows many in an image
// by tag.
var digestRepository = regexp.MustCompile(`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$`)

var endsInDigest = regexp.MustCompile(`@(sha256:[0-9a-f]{64})$`)

// digestOf returns the digest, sha256:<64 hex>, of an image named by digest, or
// "" for any other reference.
func digestOf(image string) string {
	if match := endsInDigest.FindStringSubmatch(image); match != nil {
		return match[1]
	}
	return ""
}

// buildLabels are the labels of a MachineOSBuild; its objects carry them too.
func buildLabels(config, pool, rendered string) map[string]string {
	return map[string]string{
		keys.LabelMachineOSConfig:       labelValue(config),
		keys.LabelPool:                  labelValue(pool),
		keys.LabelRenderedMachineConfig: labelValue(rendered),
	}
}

// inputLabels are the labels of everything in the namespace that is made for
// one build.
func inputLabels(build *mcfgv1.MachineOSBuild) map[string]string {
	labels := map[string]string{
		keys.LabelMachineOSBuild:       labelValue(build.Name),
		keys.LabelEphemeralBuildObject: "",
	}
	for _, key := range []string{keys.LabelMachineOSConfig, keys.LabelPool, keys.LabelRenderedMachineConfig} {
		if value, ok := build.Labels[key]; ok {
			labels[key] = value
		}
	}
	return labels
}
