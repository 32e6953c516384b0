package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// payloadJSON is an ImageStream with the tags of a release and those given,
// name and image by turns.
func payloadJSON(version string, tags ...string) string {
	list := []map[string]any{tag("machine-config-operator", "registry.example.com/ocp/mco"+digest, "DockerImage", "")}
	for i := 0; i < len(tags); i += 2 {
		list = append(list, tag(tags[i], tags[i+1], "DockerImage", ""))
	}
	return imageStreamJSON(version, list...)
}

func tag(name, image, kind, source string) map[string]any {
	tag := map[string]any{"name": name, "from": map[string]string{"kind": kind, "name": image}}
	if source != "" {
		tag["annotations"] = map[string]string{annotationSource: source}
	}
	return tag
}

func imageStreamJSON(version string, tags ...map[string]any) string {
	raw, err := json.Marshal(map[string]any{
		"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": map[string]string{"name": version}, "spec": map[string]any{"tags": tags},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestParsePayloadKeepsWhatMayBeAnOSImage(t *testing.T) {
	raw := imageStreamJSON("5.0.0",
		tag("machine-config-operator", "m", "DockerImage", "https://github.com/openshift/machine-config-operator"),
		tag("rhel-coreos", "a", "DockerImage", ""),
		tag("rhel-coreos-extensions", "b", "DockerImage", ""),
		tag("rhel-coreos-10", "c", "DockerImage", ""),
		tag("stream-coreos", "d", "DockerImage", ""),
		tag("rhel9-coreos-next", "e", "DockerImage", ""),
		tag("anything", "f", "DockerImage", "https://github.com/openshift/os"),
		tag("rhel-coreos-x", "g", "ImageStreamTag", ""),
		tag("fedora-coreos", "h", "DockerImage", ""),
		tag("machine-os-content", "i", "DockerImage", ""),
		map[string]any{"name": "rhel-coreos-broken"},
	)
	got, err := ParsePayload([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := &Payload{Version: "5.0.0", Images: []PayloadImage{
		{"rhel-coreos", "a"}, {"rhel-coreos-extensions", "b"}, {"rhel-coreos-10", "c"}, {"stream-coreos", "d"}, {"rhel9-coreos-next", "e"}, {"anything", "f"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParsePayloadReadsYAML(t *testing.T) {
	got, err := ParsePayload([]byte("apiVersion: image.openshift.io/v1\nkind: ImageStream\nmetadata:\n  name: 4.22.1\n" +
		"spec:\n  tags:\n  - name: machine-config-operator\n  - name: rhel-coreos\n    from: {kind: DockerImage, name: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Payload{Version: "4.22.1", Images: []PayloadImage{{"rhel-coreos", "x"}}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestParsePayloadErrors(t *testing.T) {
	var many []map[string]any
	for i := range 201 {
		many = append(many, tag(fmt.Sprintf("rhel-coreos-%d", i), "x", "DockerImage", ""))
	}
	for name, tc := range map[string]struct{ raw, want string }{
		"broken JSON":                  {`{"kind": "ImageStr`, "no ImageStream"},
		"text":                         {"hello", "no ImageStream"},
		"nothing":                      {"", "not an ImageStream"},
		"another kind":                 {`{"kind":"ConfigMap","apiVersion":"v1"}`, "not an ImageStream of image.openshift.io/v1"},
		"another version":              {`{"kind":"ImageStream","apiVersion":"image.openshift.io/v2"}`, "image.openshift.io/v2"},
		"an ImageStream of others":     {imageStreamJSON("x", tag("rhel-coreos", "a", "DockerImage", "")), ErrNotPayload.Error()},
		"too large":                    {"{" + strings.Repeat(" ", MaxPayloadSize), "are read at most"},
		"more tags than the API takes": {imageStreamJSON("x", many...), "more than 200 tags"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePayload([]byte(tc.raw)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := ParsePayload([]byte(imageStreamJSON("x"))); !errors.Is(err, ErrNotPayload) {
		t.Errorf("error %v", err)
	}
}

const (
	rhel9      = "registry.example.com/ocp/rhel-coreos" + digest
	rhel9Ext   = "registry.example.com/ocp/rhel-coreos-extensions" + digest
	rhel10     = "registry.example.com/ocp/rhel-coreos-10" + digest
	rhel10Ext  = "registry.example.com/ocp/rhel-coreos-10-extensions" + digest
	otherImage = "registry.example.com/ocp/other" + digest
)

func TestFromAtHand(t *testing.T) {
	parse := func(tags ...string) *Payload {
		payload, err := ParsePayload([]byte(payloadJSON("5.0.0", tags...)))
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	both := parse("rhel-coreos", rhel9, "rhel-coreos-extensions", rhel9Ext, "rhel-coreos-10", rhel10, "rhel-coreos-10-extensions", rhel10Ext)
	onlyNine := parse("rhel-coreos", rhel9, "rhel-coreos-extensions", rhel9Ext)
	pair := Pair{rhel9, rhel9Ext}
	nine := Set{Name: "rhel-9", OSImage: rhel9, OSExtensionsImage: rhel9Ext}
	ten := Set{Name: "rhel-10", OSImage: rhel10, OSExtensionsImage: rhel10Ext}
	for name, tc := range map[string]struct {
		known    AtHand
		want     []Set
		problems []string
		failure  string
	}{
		"tags name the streams":              {known: AtHand{Payload: both, Pair: pair, Requested: "rhel-10"}, want: []Set{ten, nine}},
		"without a request, too":             {known: AtHand{Payload: both}, want: []Set{ten, nine}},
		"the request is one of the tags'":    {known: AtHand{Payload: onlyNine, Pair: pair, Requested: "rhel-9"}, want: []Set{nine}},
		"tag and request disagree":           {known: AtHand{Payload: onlyNine, Pair: pair, Requested: "rhel-10"}, failure: `requested default stream "rhel-10" is not in the payload 5.0.0, whose tags give rhel-9 (tag rhel-coreos)`},
		"OKD":                                {known: AtHand{Payload: parse("stream-coreos", otherImage, "stream-coreos-extensions", rhel9Ext)}, want: []Set{{Name: "centos-10", OSImage: otherImage, OSExtensionsImage: rhel9Ext}}},
		"an unknown tag is left out":         {known: AtHand{Payload: parse("rhel-coreos", rhel9, "rhel-coreos-extensions", rhel9Ext, "rhel-coreos-11", rhel10)}, want: []Set{nine}, problems: []string{"tag rhel-coreos-11 is of no known stream"}},
		"an OS image without extensions":     {known: AtHand{Payload: parse("rhel-coreos", rhel9, "rhel-coreos-10", rhel10, "rhel-coreos-10-extensions", rhel10Ext)}, want: []Set{ten}, problems: []string{"tag rhel-coreos is its OS image"}},
		"a payload without streams":          {known: AtHand{Payload: parse()}, failure: "has no complete stream: no tag is that of an OS image"},
		"without payload: the one requested": {known: AtHand{Pair: pair, Requested: "rhel-10"}, want: []Set{{Name: "rhel-10", OSImage: rhel9, OSExtensionsImage: rhel9Ext}}},
		"without payload and request":        {known: AtHand{Pair: pair}, failure: "no requested default stream"},
		"without payload and pair":           {known: AtHand{Requested: "rhel-9"}, failure: "ControllerConfig has no baseOSContainerImage"},
		"a pair by tag":                      {known: AtHand{Pair: Pair{"registry.example.com/a:1", rhel9Ext}, Requested: "rhel-9"}, failure: "has no digest"},
		"half a pair":                        {known: AtHand{Pair: Pair{rhel9, ""}, Requested: "rhel-9"}, failure: "baseOSExtensionsContainerImage is missing"},
		"a request that is no name":          {known: AtHand{Pair: pair, Requested: "RHEL 9"}, failure: "cannot be the name"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromAtHand("at hand", tc.known)
			if tc.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tc.failure) {
					t.Errorf("error %v, want %q", err, tc.failure)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, Merge(got).Streams); diff != "" {
				t.Error(diff)
			}
			checkProblems(t, got.Problems, tc.problems...)
		})
	}
}

func TestPairFromConfigMap(t *testing.T) {
	data := func(changes ...string) map[string]string {
		data := map[string]string{KeyBaseImage: rhel9, KeyExtensionsImage: rhel9Ext, KeyReleaseVersion: "4.21.0", "osImageURL": "legacy"}
		for i := 0; i < len(changes); i += 2 {
			data[changes[i]] = changes[i+1]
		}
		return data
	}
	for name, tc := range map[string]struct {
		data    map[string]string
		version string
		failure string
	}{
		"a pair": {data: data(), version: "4.21.0"},
		"on a cluster whose version is not known": {data: data()},
		"without a version of its own":            {data: data(KeyReleaseVersion, ""), version: "4.21.0"},
		"of another release":                      {data: data(), version: "5.0.0", failure: "releaseVersion is 4.21.0 and the cluster's release is 5.0.0"},
		"no extensions image":                     {data: data(KeyExtensionsImage, ""), failure: "baseOSExtensionsContainerImage is missing"},
		"an image by tag":                         {data: data(KeyBaseImage, "registry.example.com/a:1"), failure: "has no digest"},
		"nothing":                                 {failure: "baseOSContainerImage is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := PairFromConfigMap(tc.data, tc.version)
			if tc.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tc.failure) {
					t.Errorf("error %v, want %q", err, tc.failure)
				}
				return
			}
			if diff := cmp.Diff(Pair{rhel9, rhel9Ext}, pair); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestDefaultFromManifest(t *testing.T) {
	manifest := func(version, name, spec string) string {
		return "apiVersion: machineconfiguration.openshift.io/" + version + "\nkind: OSImageStream\nmetadata: {name: " + name + "}\n" + spec
	}
	for name, tc := range map[string]struct{ raw, want, failure string }{
		"v1":                          {raw: manifest("v1", "cluster", "spec: {defaultStream: rhel-10}"), want: "rhel-10"},
		"v1alpha1":                    {raw: manifest("v1alpha1", "cluster", "spec: {defaultStream: rhel-9}"), want: "rhel-9"},
		"v1alpha1 with an empty spec": {raw: manifest("v1alpha1", "cluster", "spec: {}")},
		"v1alpha1 without a spec":     {raw: manifest("v1alpha1", "cluster", "")},
		"an unknown version":          {raw: manifest("v2", "cluster", "spec: {defaultStream: rhel-10}"), failure: "machineconfiguration.openshift.io/v2"},
		"another group":               {raw: "apiVersion: example.com/v1\nkind: OSImageStream\nmetadata: {name: cluster}", failure: "example.com/v1"},
		"another name":                {raw: manifest("v1", "mine", ""), failure: `its name is "mine"`},
		"a default that is no name":   {raw: manifest("v1", "cluster", "spec: {defaultStream: RHEL_9}"), failure: "cannot be the name"},
		"another kind":                {raw: "kind: ConfigMap", failure: "ConfigMap"},
		"no YAML":                     {raw: "{", failure: "no OSImageStream"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DefaultFromManifest([]byte(tc.raw))
			if got != tc.want || (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
				t.Errorf("%q, %v; want %q, %q", got, err, tc.want, tc.failure)
			}
		})
	}
}
