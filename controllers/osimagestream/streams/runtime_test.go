package streams

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

func runtimeText(runtime string) string {
	return "[crio.runtime]\ndefault_runtime = \"" + runtime + "\"\n"
}

func plain(text string) types.Resource {
	source := "data:," + strings.NewReplacer(" ", "%20", "\n", "%0A", "\"", "%22", "=", "%3D", "[", "%5B", "]", "%5D").Replace(text)
	return types.Resource{Source: &source}
}

func encoded(text string) types.Resource {
	source := "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(text))
	return types.Resource{Source: &source}
}

func packed(text string) types.Resource {
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	_, _ = writer.Write([]byte(text))
	_ = writer.Close()
	resource, compression := encoded(buffer.String()), "gzip"
	resource.Compression = &compression
	return resource
}

func dropIn(name string, contents types.Resource, appended ...types.Resource) types.File {
	return types.File{Node: types.Node{Path: "/etc/crio/crio.conf.d/" + name}, FileEmbedded1: types.FileEmbedded1{Contents: contents, Append: appended}}
}

func TestDefaultRuntime(t *testing.T) {
	none := "gzip-of-nothing"
	for name, tc := range map[string]struct {
		files   []types.File
		want    RuntimeChoice
		failure string
	}{
		"no files":                         {},
		"a plain drop-in":                  {files: []types.File{dropIn("99-x", plain(runtimeText("runc")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"base64":                           {files: []types.File{dropIn("99-x", encoded(runtimeText("runc")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"gzip":                             {files: []types.File{dropIn("99-x", packed(runtimeText("crun")))}, want: RuntimeChoice{"crun", "file /etc/crio/crio.conf.d/99-x"}},
		"the last by name counts":          {files: []types.File{dropIn("99-b", encoded(runtimeText("crun"))), dropIn("10-a", encoded(runtimeText("runc")))}, want: RuntimeChoice{"crun", "file /etc/crio/crio.conf.d/99-b"}},
		"the other way round":              {files: []types.File{dropIn("99-b", encoded(runtimeText("runc"))), dropIn("10-a", encoded(runtimeText("crun")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-b"}},
		"one that says nothing is no last": {files: []types.File{dropIn("10-a", encoded(runtimeText("runc"))), dropIn("99-b", encoded("[crio.image]\npause_image = \"x\"\n"))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/10-a"}},
		"the main file comes first":        {files: []types.File{dropIn("00-a", encoded(runtimeText("crun"))), {Node: types.Node{Path: "/etc/crio/crio.conf"}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(runtimeText("runc"))}}}, want: RuntimeChoice{"crun", "file /etc/crio/crio.conf.d/00-a"}},
		"what is appended counts":          {files: []types.File{dropIn("99-x", encoded("[crio.runtime]\n"), packed("default_runtime = \"runc\"\n"))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"a deeper directory is not read":   {files: []types.File{dropIn("sub/99-x", encoded(runtimeText("runc")))}},
		"other files":                      {files: []types.File{{Node: types.Node{Path: "/etc/motd"}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(runtimeText("runc"))}}}},
		"a commented line":                 {files: []types.File{dropIn("99-x", encoded("[crio.runtime]\n# default_runtime = \"runc\"\n"))}},
		"no TOML":                          {files: []types.File{dropIn("99-x", encoded("default_runtime: runc"))}, failure: "file /etc/crio/crio.conf.d/99-x: it is not TOML"},
		"no data URL":                      {files: []types.File{dropIn("99-x", types.Resource{Source: new("http://x"), Compression: &none})}, failure: "no data: URL"},
		"broken gzip":                      {files: []types.File{dropIn("99-x", types.Resource{Source: encoded("x").Source, Compression: new("gzip")})}, failure: "contents.compression"},
		"a bomb":                           {files: []types.File{dropIn("99-x", packed(strings.Repeat("#", maxRuntimeFile+1)))}, failure: "more than"},
		"an empty file":                    {files: []types.File{dropIn("99-x", types.Resource{})}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DefaultRuntime(types.Config{Storage: types.Storage{Files: tc.files}})
			if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
				t.Fatalf("error %v, want %q", err, tc.failure)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDefaultRuntimeOfContainerd(t *testing.T) {
	at := func(path, text string) types.File {
		return types.File{Node: types.Node{Path: path}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(text)}}
	}
	const main, conf = "/etc/containerd/config.toml", "/etc/containerd/conf.d/10-x.toml"
	standard := func(plugin, name string) string {
		return "[plugins.'" + plugin + "'.containerd]\ndefault_runtime_name = '" + name + "'\n"
	}
	program := func(name, binary string) string {
		return "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes." + name + ".options]\nBinaryName = '" + binary + "'\n"
	}
	for name, tc := range map[string]struct {
		files   []types.File
		want    RuntimeChoice
		failure string
	}{
		"version 3":                        {files: []types.File{at(main, standard("io.containerd.cri.v1.runtime", "runc"))}, want: RuntimeChoice{"runc", "file " + main}},
		"version 2":                        {files: []types.File{at(main, standard("io.containerd.grpc.v1.cri", "runc"))}, want: RuntimeChoice{"runc", "file " + main}},
		"a drop-in comes after":            {files: []types.File{at(conf, standard("io.containerd.cri.v1.runtime", "crun")), at(main, standard("io.containerd.cri.v1.runtime", "runc"))}, want: RuntimeChoice{"crun", "file " + conf}},
		"the handler runs another program": {files: []types.File{at(main, standard("io.containerd.cri.v1.runtime", "runc")+program("runc", "/usr/bin/crun"))}, want: RuntimeChoice{"crun", "file " + main}},
		"handlers alone choose none":       {files: []types.File{at(main, program("runc", "/usr/bin/runc"))}},
		"where CRI-O says something it is": {files: []types.File{at(main, standard("io.containerd.cri.v1.runtime", "crun")), dropIn("99-x", encoded(runtimeText("runc")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"no TOML":                          {files: []types.File{at(main, "version: 3")}, failure: "not TOML as containerd reads it"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DefaultRuntime(types.Config{Storage: types.Storage{Files: tc.files}})
			if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
				t.Fatalf("error %v, want %q", err, tc.failure)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func withTraits(annotation string, names ...string) *mcfgv1.OSImageStream {
	return &mcfgv1.OSImageStream{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{machineconfiguration.AnnotationStreamTraits: annotation}},
		Status:     mcfgv1.OSImageStreamStatus{AvailableStreams: sets(names...)},
	}
}

func TestCheckRuntime(t *testing.T) {
	runc, crun := RuntimeChoice{"runc", "file f"}, RuntimeChoice{"crun", "file f"}
	labelled := withTraits(`{"debian-12":{"runtimes":["crun","runc"]},"debian-13":{"runtimes":["crun"]}}`, "debian-12", "debian-13")
	for name, tc := range map[string]struct {
		object  *mcfgv1.OSImageStream
		stream  string
		choice  RuntimeChoice
		missing bool
	}{
		"RHEL 10 has no runc":                  {stream: "rhel-10", choice: runc, missing: true},
		"RHEL 10 has crun":                     {stream: "rhel-10", choice: crun},
		"RHEL 9 has runc":                      {stream: "rhel-9", choice: runc},
		"CentOS 10 has no runc":                {stream: "centos-10", choice: runc, missing: true},
		"no choice":                            {stream: "rhel-10"},
		"an unknown stream passes":             {stream: "mine", choice: runc},
		"the label says no":                    {object: labelled, stream: "debian-13", choice: runc, missing: true},
		"the label says yes":                   {object: labelled, stream: "debian-12", choice: runc},
		"the label wins over the table":        {object: withTraits(`{"rhel-10":{"runtimes":["runc"]}}`), stream: "rhel-10", choice: runc},
		"a broken annotation leaves the table": {object: withTraits(`{`), stream: "rhel-10", choice: runc, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkRuntime(tc.object, ofStream(tc.object, tc.stream), tc.choice)
			var missing *RuntimeMissingError
			if errors.As(err, &missing) != tc.missing || err != nil && !tc.missing {
				t.Errorf("error %v, want missing %t", err, tc.missing)
			}
		})
	}
	var missing *RuntimeMissingError
	if err := checkRuntime(labelled, ofStream(labelled, "debian-13"), runc); !errors.As(err, &missing) || !strings.Contains(err.Error(), "a stream with runc (debian-12)") {
		t.Errorf("the error does not say what to choose: %v", err)
	}
}

func TestEffectiveRuntime(t *testing.T) {
	generated := RuntimeChoice{"runc", "ContainerRuntimeConfig c"}
	for name, tc := range map[string]struct {
		files     []types.File
		generated RuntimeChoice
		want      RuntimeChoice
	}{
		"a ContainerRuntimeConfig alone":     {generated: generated, want: generated},
		"a drop-in behind it by name counts": {[]types.File{dropIn("99-x", encoded(runtimeText("crun")))}, generated, RuntimeChoice{"crun", "file /etc/crio/crio.conf.d/99-x"}},
		"a drop-in before it does not":       {[]types.File{dropIn("00-x", encoded(runtimeText("crun")))}, generated, generated},
		"without a ContainerRuntimeConfig":   {[]types.File{dropIn("99-x", encoded(runtimeText("runc")))}, RuntimeChoice{}, RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := EffectiveRuntime(types.Config{Storage: types.Storage{Files: tc.files}}, tc.generated)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestCheckConfig(t *testing.T) {
	config := func(text string) types.Config {
		return types.Config{Storage: types.Storage{Files: []types.File{dropIn("99-x", encoded(text))}}}
	}
	for name, tc := range map[string]struct{ stream, text, failure string }{
		"runc on RHEL 10":                     {"rhel-10", runtimeText("runc"), "file /etc/crio/crio.conf.d/99-x makes runc the default container runtime"},
		"crun on RHEL 10":                     {"rhel-10", runtimeText("crun"), ""},
		"runc on RHEL 9":                      {"rhel-9", runtimeText("runc"), ""},
		"what cannot be told, on RHEL 10":     {"rhel-10", "{", "cannot be told: file /etc/crio/crio.conf.d/99-x"},
		"what cannot be told, where all go":   {"rhel-9", "{", ""},
		"what cannot be told, on a stranger":  {"mine", "{", ""},
		"a drop-in without a default runtime": {"rhel-10", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkConfig(nil, ofStream(nil, tc.stream), config(tc.text))
			if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
				t.Errorf("error %v, want %q", err, tc.failure)
			}
		})
	}
}

// The images that MachineConfigs name in the place of a stream's.
func TestCheckImage(t *testing.T) {
	const (
		ten    = "registry.example.com/mine/ten@sha256:" + "1111111111111111111111111111111111111111111111111111111111111111"
		centos = "registry.example.com/mine/centos@sha256:" + "2222222222222222222222222222222222222222222222222222222222222222"
		nine   = "registry.example.com/mine/nine@sha256:" + "3333333333333333333333333333333333333333333333333333333333333333"
		bare   = "registry.example.com/mine/bare@sha256:" + "4444444444444444444444444444444444444444444444444444444444444444"
		own    = "registry.example.com/mine/own@sha256:" + "5555555555555555555555555555555555555555555555555555555555555555"
	)
	object := &mcfgv1.OSImageStream{Status: mcfgv1.OSImageStreamStatus{AvailableStreams: sets("rhel-10", "rhel-9")}}
	object.Annotations = map[string]string{machineconfiguration.AnnotationOverrides: EncodeOverrides(map[string]Override{
		DigestOf(ten): {Stream: "rhel-10"}, DigestOf(centos): {Stream: "centos-10"}, DigestOf(nine): {Stream: "rhel-9"}, DigestOf(bare): {},
		DigestOf(own): {Stream: "mine", Runtimes: []string{"crun"}},
	})}
	runc, crun := []types.File{dropIn("50-x", encoded(runtimeText("runc")))}, []types.File{dropIn("50-x", encoded(runtimeText("crun")))}
	for name, tc := range map[string]struct {
		image   string
		files   []types.File
		failure string
	}{
		"runc on an image of RHEL 10":         {ten, runc, "OS image " + ten + " has only crun; choose crun there, or a stream with runc (rhel-9)"},
		"runc on an image of CentOS 10":       {centos, runc, "has only crun"},
		"runc on an image whose label says":   {own, runc, "has only crun"},
		"crun on an image of RHEL 10":         {ten, crun, ""},
		"runc on an image of RHEL 9":          {nine, runc, ""},
		"runc overridden by crun":             {ten, append(slices.Clone(runc), dropIn("99-y", encoded(runtimeText("crun")))), ""},
		"an image without the label":          {bare, runc, ""},
		"an image that was not looked at yet": {"registry.example.com/mine/new@sha256:" + strings.Repeat("6", 64), runc, ""},
		"no image":                            {"", runc, ""},
		"a stream's own image":                {"mirror.example.com/x" + digest, runc, "stream \"rhel-10\" has only crun"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckImage(object, tc.image, types.Config{Storage: types.Storage{Files: tc.files}})
			if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
				t.Errorf("error %v, want %q", err, tc.failure)
			}
		})
	}
	if EncodeOverrides(nil) != "" || len(DecodeOverrides(nil)) != 0 || len(DecodeOverrides(withTraits(""))) != 0 {
		t.Error("nothing known should be nothing")
	}
	want := Override{Stream: "rhel-10", Runtimes: []string{"crun"}}
	if diff := cmp.Diff(want, OverrideOf(map[string]string{LabelStream: " RHEL-10 ", LabelRuntimes: "crun"})); diff != "" {
		t.Error(diff)
	}
}

func TestFromContainerRuntimeConfig(t *testing.T) {
	config := func(runtime string) string {
		return "apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: c}\nspec:\n  containerRuntimeConfig: {" + runtime + "}\n"
	}
	for name, tc := range map[string]struct {
		raw     string
		want    RuntimeChoice
		failure bool
	}{
		"runc":                      {raw: config("defaultRuntime: runc"), want: RuntimeChoice{"runc", "ContainerRuntimeConfig c"}},
		"crun":                      {raw: config("defaultRuntime: crun"), want: RuntimeChoice{"crun", "ContainerRuntimeConfig c"}},
		"without":                   {raw: config("pidsLimit: 1024"), want: RuntimeChoice{"", "ContainerRuntimeConfig c"}},
		"another kind":              {raw: "kind: KubeletConfig"},
		"no containerRuntimeConfig": {raw: "kind: ContainerRuntimeConfig"},
		"no YAML":                   {raw: "{", failure: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromContainerRuntimeConfig([]byte(tc.raw))
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.failure {
				t.Error(diff, err)
			}
		})
	}
}

func TestTraitsSurviveTheAnnotation(t *testing.T) {
	traits := map[string]Traits{"a": {Runtimes: []string{"crun"}, Deprecated: true}, "nothing": {}}
	object := withTraits(EncodeTraits(traits))
	delete(traits, "nothing")
	if diff := cmp.Diff(traits, DecodeTraits(object)); diff != "" {
		t.Error(diff)
	}
	if EncodeTraits(map[string]Traits{"a": {}}) != "" || len(DecodeTraits(nil)) != 0 {
		t.Error("nothing known should be nothing")
	}
}
