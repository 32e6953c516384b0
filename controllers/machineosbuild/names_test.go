package machineosbuild

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

var someHash = strings.Repeat("0123456789abcdef", 4)

func TestNamesOfBuilds(t *testing.T) {
	for name, pool := range map[string]string{
		"a short pool":                   "worker",
		"a pool of 25 bytes":             strings.Repeat("a", 25),
		"a pool of 63 bytes":             strings.Repeat("a", 63),
		"a pool of 253 bytes":            strings.Repeat("a", 253),
		"a dot where the Job is cut":     strings.Repeat("a", 23) + "." + strings.Repeat("b", 200),
		"a dot where the tag is cut":     strings.Repeat("a", 94) + "." + strings.Repeat("b", 100),
		"hyphens where the build is cut": strings.Repeat("a", 215) + "-----" + strings.Repeat("b", 30),
	} {
		t.Run(name, func(t *testing.T) {
			build := buildName(pool, someHash)
			for kind, limit := range map[string]struct {
				name  string
				limit int
			}{
				"build": {build, 253}, "Job": {jobName(build), 63}, "tag": {imageTag(build), 128}, "label": {labelValue(build), 63},
				"request": {requestName(build), 253}, "trust bundle": {trustBundleName(build), 253},
				"pull secret": {pullSecretName(build), 253}, "push secret": {pushSecretName(build), 253},
			} {
				if len(limit.name) > limit.limit {
					t.Errorf("%s %q has %d bytes, more than %d", kind, limit.name, len(limit.name), limit.limit)
				}
				if problems := validation.IsDNS1123Subdomain(limit.name); len(problems) > 0 {
					t.Errorf("%s %q: %v", kind, limit.name, problems)
				}
				if !strings.HasSuffix(limit.name, "-"+someHash[:32]) {
					t.Errorf("%s %q lost its hash", kind, limit.name)
				}
			}
			if problems := validation.IsValidLabelValue(labelValue(build)); len(problems) > 0 {
				t.Errorf("label %q: %v", labelValue(build), problems)
			}
			if !strings.HasPrefix(jobName(build), "build-") {
				t.Errorf("Job %q lost its prefix", jobName(build))
			}
		})
	}
}

func TestShortNamesStay(t *testing.T) {
	build := buildName("worker", someHash)
	if want := "worker-" + someHash[:32]; build != want {
		t.Errorf("buildName = %q, want %q", build, want)
	}
	if want := "build-worker-" + someHash[:32]; jobName(build) != want {
		t.Errorf("jobName = %q, want %q", jobName(build), want)
	}
}

func TestCutNamesWithoutHashStayDifferent(t *testing.T) {
	long := strings.Repeat("a", 253)
	if labelValue(long) == labelValue(long[:252]) {
		t.Error("two pools have one label")
	}
}

func TestRepositoryOf(t *testing.T) {
	for spec, want := range map[mcfgv1.ImageTagFormat]string{
		"registry.example.com/os/worker:latest":                         "registry.example.com/os/worker",
		"10.89.0.1:5000/os/worker:v1":                                   "10.89.0.1:5000/os/worker",
		"10.89.0.1:5000/worker":                                         "10.89.0.1:5000/worker",
		"image-registry.openshift-image-registry.svc:5000/ns/name:some": "image-registry.openshift-image-registry.svc:5000/ns/name",
	} {
		if got := repositoryOf(spec); got != want {
			t.Errorf("repositoryOf(%q) = %q, want %q", spec, got, want)
		}
	}
}

func TestDigestOf(t *testing.T) {
	digest := "sha256:" + someHash
	for image, want := range map[string]string{
		"registry.example.com/os@" + digest:       digest,
		"registry.example.com/os:tag@" + digest:   digest,
		"registry.example.com/os:latest":          "",
		"registry.example.com/os@sha256:1234":     "",
		"registry.example.com/os@" + digest + "0": "",
		"": "",
	} {
		if got := digestOf(image); got != want {
			t.Errorf("digestOf(%q) = %q, want %q", image, got, want)
		}
	}
}

func TestInputLabelsFitAndNameTheBuild(t *testing.T) {
	build := &mcfgv1.MachineOSBuild{}
	build.Name = buildName(strings.Repeat("p", 253), someHash)
	build.Labels = buildLabels(strings.Repeat("p", 253), strings.Repeat("p", 253), "rendered-"+strings.Repeat("p", 200)+"-"+someHash[:32])
	labels := inputLabels(build)
	for _, key := range []string{
		keys.LabelMachineOSBuild, keys.LabelMachineOSConfig, keys.LabelPool, keys.LabelRenderedMachineConfig, keys.LabelEphemeralBuildObject,
	} {
		value, ok := labels[key]
		if !ok {
			t.Errorf("label %s is missing", key)
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("label %s=%q: %v", key, value, problems)
		}
	}
}
