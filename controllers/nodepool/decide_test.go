package nodepool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// release is a payload with both streams, or with RHEL 9 alone.
func release(version string, tags ...string) *streams.Payload {
	if tags == nil {
		tags = []string{"rhel-coreos", "rhel-coreos-10"}
	}
	payload := &streams.Payload{Version: version}
	for _, tag := range tags {
		for _, name := range []string{tag, tag + "-extensions"} {
			payload.Images = append(payload.Images, streams.PayloadImage{Tag: name, Image: "registry.example.com/ocp/" + version + "-" + name + digest})
		}
	}
	return payload
}

// half is a payload with RHEL 9, and of RHEL 10 the OS image alone.
func half(version string) *streams.Payload {
	payload := release(version, "rhel-coreos", "rhel-coreos-10")
	payload.Images = payload.Images[:len(payload.Images)-1]
	return payload
}

const (
	runcConfig = "apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: use-runc}\nspec:\n  containerRuntimeConfig: {defaultRuntime: runc}\n"
	// runcDropIn has [crio.runtime] and default_runtime = "runc" in base64.
	runcDropIn = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 99-runc}\nspec:\n  config:\n" +
		"    ignition: {version: 3.4.0}\n    storage:\n      files:\n      - path: /etc/crio/crio.conf.d/99-runc\n" +
		"        contents: {source: \"data:;base64,W2NyaW8ucnVudGltZV0KZGVmYXVsdF9ydW50aW1lID0gInJ1bmMiCg==\"}\n"
	crunConfig  = "apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: use-crun}\nspec:\n  containerRuntimeConfig: {defaultRuntime: crun}\n"
	otherConfig = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: k}\n"
)

func TestDecide(t *testing.T) {
	texts := func(all ...string) (list []configText) {
		for i, text := range all {
			list = append(list, configText{Name: string(rune('a' + i)), Text: text})
		}
		return list
	}
	for name, tc := range map[string]struct {
		known                    facts
		stream, standard, reason string
		runtimes                 []string
		problem, note            string
	}{
		"new, none": {known: facts{payload: release("5.0.0")}, stream: "rhel-10", standard: "crun", runtimes: []string{"crun"}, reason: reasonValid},
		"rhel-9":    {known: facts{payload: release("5.0.0"), explicit: "rhel-9"}, stream: "rhel-9", standard: "crun", runtimes: []string{"crun", "runc"}, reason: reasonValid},
		"runc keeps a pool without a stream on RHEL 9": {
			known: facts{payload: release("5.0.0"), texts: texts(otherConfig, runcConfig)}, stream: "rhel-9", standard: "runc", runtimes: []string{"crun", "runc"},
			reason: reasonKeptByRunc, note: "ContainerRuntimeConfig use-runc makes runc the default container runtime, which rhel-10 does not ship, so the node pool runs rhel-9",
		},
		"a drop-in does so, too": {
			known: facts{payload: release("5.0.0"), texts: texts(otherConfig + "---\n" + runcDropIn)}, stream: "rhel-9", standard: "runc", runtimes: []string{"crun", "runc"},
			reason: reasonKeptByRunc, note: "file /etc/crio/crio.conf.d/99-runc makes runc",
		},
		"before 5.0 runc keeps nothing back": {known: facts{payload: release("4.22.0"), texts: texts(runcConfig)}, stream: "rhel-9", standard: "runc", runtimes: []string{"crun", "runc"}, reason: reasonValid},
		"rhel-10 with runc":                  {known: facts{payload: release("5.0.0"), explicit: "rhel-10", texts: texts(runcConfig)}, problem: "incompatible with runc"},
		"rhel-10 with runc by a drop-in":     {known: facts{payload: release("5.0.0"), explicit: "rhel-10", texts: texts(runcDropIn)}, problem: "incompatible with runc"},
		"rhel-10 before 5.0":                 {known: facts{payload: release("4.22.0"), explicit: "rhel-10"}, problem: "requires release 5.0"},
		"a nightly of 5.0":                   {known: facts{payload: release("5.0.0-0.nightly-2026-05-01"), explicit: "rhel-10"}, stream: "rhel-10", standard: "crun", runtimes: []string{"crun"}, reason: reasonValid},
		"a release without the stream":       {known: facts{payload: release("5.0.0", "rhel-coreos")}, problem: `stream "rhel-10" is not in the release 5.0.0, which has rhel-9`},
		"a broken configuration":             {known: facts{payload: release("5.0.0"), texts: texts("{")}, problem: "ConfigMap a, key config: it is no YAML"},
		"a release that is none":             {known: facts{payload: release("x")}, problem: "not of the form major.minor"},
		"a release without streams":          {known: facts{payload: release("5.0.0", []string{}...)}, problem: `stream "rhel-10" is not in the release 5.0.0`},
		"half a stream":                      {known: facts{payload: half("5.0.0")}, problem: `stream "rhel-10" is not in the release 5.0.0, which has rhel-9`},
		"crun is no reason to stay":          {known: facts{payload: release("5.0.0"), texts: texts(crunConfig)}, stream: "rhel-10", standard: "crun", runtimes: []string{"crun"}, reason: reasonValid},
		"a ContainerRuntimeConfig without a runtime": {
			known:  facts{payload: release("5.0.0"), texts: texts(strings.Replace(runcConfig, "defaultRuntime: runc", "pidsLimit: 1024", 1))},
			stream: "rhel-10", standard: "crun", runtimes: []string{"crun"}, reason: reasonValid,
		},
		"an empty ConfigMap": {known: facts{payload: release("5.0.0"), texts: texts("")}, stream: "rhel-10", standard: "crun", runtimes: []string{"crun"}, reason: reasonValid},
		"runc in one of two ContainerRuntimeConfigs": {
			known: facts{payload: release("5.0.0"), texts: texts(runcConfig, crunConfig)}, stream: "rhel-9", standard: "runc", runtimes: []string{"crun", "runc"},
			reason: reasonKeptByRunc, note: "ContainerRuntimeConfig use-runc",
		},
		"in the other one": {
			known: facts{payload: release("5.0.0"), texts: texts(crunConfig, runcConfig)}, stream: "rhel-9", standard: "runc", runtimes: []string{"crun", "runc"},
			reason: reasonKeptByRunc, note: "ContainerRuntimeConfig use-runc",
		},
		"rhel-10 with runc in one of two": {known: facts{payload: release("5.0.0"), explicit: "rhel-10", texts: texts(runcConfig + "---\n" + crunConfig)}, problem: "incompatible with runc"},
		"runc that a drop-in takes back": {
			known:  facts{payload: release("5.0.0"), explicit: "rhel-10", texts: texts(runcConfig, strings.ReplaceAll(runcDropIn, "InJ1bmMi", "ImNydW4i"))},
			stream: "rhel-10", standard: "crun", runtimes: []string{"crun"}, reason: reasonValid,
		},
		"a MachineConfig that does not parse": {known: facts{payload: release("5.0.0"), texts: texts(strings.Replace(runcDropIn, "3.4.0", "9.9.9", 1))}, problem: "MachineConfig 99-runc: spec.config"},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(tc.known)
			if (got.problem == "") != (tc.problem == "") || !strings.Contains(got.problem, tc.problem) || !strings.Contains(got.note, tc.note) || (got.note == "") != (tc.note == "") {
				t.Fatalf("problem %q, note %q", got.problem, got.note)
			}
			if got.set.Name != tc.stream || got.standard != tc.standard || got.reason != tc.reason {
				t.Errorf("%+v", got)
			}
			if diff := cmp.Diff(tc.runtimes, got.runtimes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheConfigHashComesFromTheSpecAlone(t *testing.T) {
	hash := func(explicit, version, text string) string {
		return decide(facts{explicit: explicit, payload: release(version), texts: []configText{{Name: "c", Text: text}}}).hash
	}
	base := hash("", "5.0.0", otherConfig)
	for name, tc := range map[string]struct {
		hash   string
		isSame bool
	}{
		"the default, set explicitly":       {hash("rhel-10", "5.0.0", otherConfig), true},
		"another release of the same major": {hash("", "5.0.7", otherConfig), true},
		"another stream":                    {hash("rhel-9", "5.0.0", otherConfig), false},
		"another configuration":             {hash("", "5.0.0", otherConfig+"# changed\n"), false},
	} {
		if (tc.hash == base) != tc.isSame || len(tc.hash) != 32 {
			t.Errorf("%s: %s and %s", name, tc.hash, base)
		}
	}
	two := func(first, second string) string {
		return decide(facts{payload: release("5.0.0"), texts: []configText{{Name: "a", Text: first}, {Name: "b", Text: second}}}).hash
	}
	if two(otherConfig, crunConfig) != two(crunConfig, otherConfig) {
		t.Error("the order of ConfigMaps rolls nodes")
	}
	if hash("", "5.0.0", runcConfig) != hash("rhel-9", "5.0.0", runcConfig) {
		t.Error("what runc gives anyway rolls nodes when it is set explicitly")
	}
}
