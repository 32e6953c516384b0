package streams

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/go-cmp/cmp"
)

func runtimeText(runtime string) string {
	return "[crio.runtime]\ndefault_runtime = \"" + runtime + "\"\n"
}

func handlerText(handler, program string) string {
	return "[crio.runtime.runtimes." + handler + "]\nruntime_path = \"" + program + "\"\n"
}

func linkTo(path, target string) types.Link {
	return types.Link{Node: types.Node{Path: path}, LinkEmbedded1: types.LinkEmbedded1{Target: &target}}
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
		links   []types.Link
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
		"directories below are read, too":  {files: []types.File{dropIn("sub/99-x", encoded(runtimeText("runc")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/sub/99-x"}},
		"in the order of the directories":  {files: []types.File{dropIn("10-a-b", encoded(runtimeText("crun"))), dropIn("10-a/99", encoded(runtimeText("runc")))}, want: RuntimeChoice{"crun", "file /etc/crio/crio.conf.d/10-a-b"}},
		"a directory of another name":      {files: []types.File{{Node: types.Node{Path: "/etc/crio/crio.conf.disabled/99-x"}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(runtimeText("runc"))}}}},
		"a handler that runs runc":         {files: []types.File{dropIn("99-x", encoded(runtimeText("mine")+handlerText("mine", "/usr/bin/runc")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"one that another file describes":  {files: []types.File{dropIn("10-a", encoded(runtimeText("mine"))), dropIn("99-b", encoded(handlerText("mine", "/usr/bin/runc")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/10-a"}},
		"a handler runc that runs crun":    {files: []types.File{dropIn("99-x", encoded(runtimeText("runc")+handlerText("runc", "/usr/libexec/crio/crun")))}, want: RuntimeChoice{"crun", "file /etc/crio/crio.conf.d/99-x"}},
		"a handler without a program":      {files: []types.File{dropIn("99-x", encoded(runtimeText("runc")+handlerText("runc", "")))}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"a link to a file":                 {files: []types.File{{Node: types.Node{Path: "/etc/mine/x"}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(runtimeText("runc"))}}}, links: []types.Link{linkTo("/etc/crio/crio.conf.d/99-x", "/etc/mine/x")}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"a link to a link, relative":       {files: []types.File{{Node: types.Node{Path: "/etc/mine/x"}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(runtimeText("runc"))}}}, links: []types.Link{linkTo("/etc/crio/crio.conf.d/99-x", "../../mine/y"), linkTo("/etc/mine/y", "x")}, want: RuntimeChoice{"runc", "file /etc/crio/crio.conf.d/99-x"}},
		"links in a circle":                {links: []types.Link{linkTo("/etc/crio/crio.conf.d/99-x", "/etc/a"), linkTo("/etc/a", "/etc/crio/crio.conf.d/99-x")}},
		"a link to what the image has":     {links: []types.Link{linkTo("/etc/crio/crio.conf.d/99-x", "/usr/share/x")}},
		"other files":                      {files: []types.File{{Node: types.Node{Path: "/etc/motd"}, FileEmbedded1: types.FileEmbedded1{Contents: encoded(runtimeText("runc"))}}}},
		"a commented line":                 {files: []types.File{dropIn("99-x", encoded("[crio.runtime]\n# default_runtime = \"runc\"\n"))}},
		"no TOML":                          {files: []types.File{dropIn("99-x", encoded("default_runtime: runc"))}, failure: "file /etc/crio/crio.conf.d/99-x: it is not TOML"},
		"no data URL":                      {files: []types.File{dropIn("99-x", types.Resource{Source: new("http://x"), Compression: &none})}, failure: "no data: URL"},
		"broken gzip":                      {files: []types.File{dropIn("99-x", types.Resource{Source: encoded("x").Source, Compression: new("gzip")})}, failure: "contents.compression"},
		"a bomb":                           {files: []types.File{dropIn("99-x", packed(strings.Repeat("#", maxRuntimeFile+1)))}, failure: "more than"},
		"an empty file":                    {files: []types.File{dropIn("99-x", types.Resource{})}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DefaultRuntime(types.Config{Storage: types.Storage{Files: tc.files, Links: tc.links}})
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
		"another file says what it runs":   {files: []types.File{at(main, standard("io.containerd.cri.v1.runtime", "mine")), at(conf, program("mine", "/usr/bin/runc"))}, want: RuntimeChoice{"runc", "file " + main}},
		"a file that the main one imports": {files: []types.File{at("/etc/containerd/more/10-x.toml", standard("io.containerd.cri.v1.runtime", "runc")), at(main, "imports = ['/etc/containerd/more/*.toml']\n"+standard("io.containerd.cri.v1.runtime", "crun"))}, want: RuntimeChoice{"runc", "file /etc/containerd/more/10-x.toml"}},
		"imported from beside it":          {files: []types.File{at("/etc/containerd/more.toml", standard("io.containerd.cri.v1.runtime", "runc")), at(main, "imports = ['m*.toml']\n")}, want: RuntimeChoice{"runc", "file /etc/containerd/more.toml"}},
		"a file that it does not":          {files: []types.File{at("/etc/containerd/more.toml", standard("io.containerd.cri.v1.runtime", "runc")), at(main, "imports = ['/etc/x/*.toml', '[']\n")}},
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
