package ignition

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
)

// made is a layer as a test reads it: every entry as one line, and the content
// of its files.
type made struct {
	entries  []string
	contents map[string]string
}

func makeLayer(t *testing.T, raw string, kernelArguments ...string) (*Layer, made) {
	t.Helper()
	return makeLayerOn(t, DefaultBase(), raw, kernelArguments...)
}

func makeLayerOn(t *testing.T, base Base, raw string, kernelArguments ...string) (*Layer, made) {
	t.Helper()
	config, err := Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := NewLayer(config, base, kernelArguments)
	if err != nil {
		t.Fatal(err)
	}
	return layer, readLayer(t, layer)
}

func readLayer(t *testing.T, layer *Layer) made {
	t.Helper()
	found := made{contents: map[string]string{}}
	if got := digest.FromBytes(layer.Data); got != layer.Digest {
		t.Errorf("digest %s of data %s", layer.Digest, got)
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(layer.Data))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(unpacker)
	if err != nil {
		t.Fatal(err)
	}
	if got := digest.FromBytes(unpacked); got != layer.DiffID {
		t.Errorf("diff id %s of data %s", layer.DiffID, got)
	}
	archive := tar.NewReader(bytes.NewReader(unpacked))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(header.ModTime.Truncate(1)) || header.ModTime.Unix() != 0 || header.Uname != "" {
			t.Errorf("%s has a time or the name of an owner", header.Name)
		}
		line := fmt.Sprintf("%c %04o %d:%d %s", header.Typeflag, header.Mode, header.Uid, header.Gid, header.Name)
		if header.Linkname != "" {
			line += " -> " + header.Linkname
		}
		found.entries = append(found.entries, line)
		if header.Typeflag == tar.TypeReg {
			found.contents["/"+header.Name] = string(content)
		}
	}
}

// asked gives the entries without those that every layer has.
func (m made) asked() string {
	var asked []string
	for _, line := range m.entries {
		if !slices.ContainsFunc(ownEntries, func(own string) bool {
			return strings.HasSuffix(line, " "+own) || strings.Contains(line, " "+own+" -> ")
		}) {
			asked = append(asked, line)
		}
	}
	return strings.Join(asked, "\n")
}

var ownEntries = []string{
	"usr/", "usr/lib/",
	"usr/lib/imagemode/", "usr/lib/imagemode/files.json", "usr/lib/imagemode/var.conf",
	"usr/lib/imagemode/var-list.conf", "usr/lib/imagemode/var-take-list.conf",
	"usr/lib/systemd/", "usr/lib/systemd/system/",
	"usr/lib/systemd/system/imagemode-var.service", "usr/lib/systemd/system/imagemode-var-change.service",
	"usr/lib/systemd/system/imagemode-accounts.service", "usr/lib/systemd/system/sysinit.target.wants/imagemode-accounts.service",
	"usr/lib/systemd/system/sysinit.target.wants/", "usr/lib/systemd/system/sysinit.target.wants/imagemode-var.service",
}

func config(body string) string {
	return `{"ignition":{"version":"3.4.0"},` + body + `}`
}

func TestLayerEntries(t *testing.T) {
	tests := map[string]struct {
		config string
		args   []string
		want   string
	}{
		"files with mode and owner, and the directories above": {
			config: config(`"storage":{"files":[{"path":"/etc/sudoers.d/a","mode":288,"user":{"id":5},"group":{"name":"root"},"contents":{"source":"data:,a"}}]}`),
			want:   "5 0755 0:0 etc/\n5 0750 0:0 etc/sudoers.d/\n0 0440 5:0 etc/sudoers.d/a",
		},
		"a directory keeps the mode it was given": {
			config: config(`"storage":{"directories":[{"path":"/etc/a","mode":448}],"files":[{"path":"/etc/a/b","contents":{"source":"data:,"}}]}`),
			want:   "5 0755 0:0 etc/\n5 0700 0:0 etc/a/\n0 0644 0:0 etc/a/b",
		},
		"a directory without a mode is not opened": {
			config: config(`"storage":{"directories":[{"path":"/etc/ipsec.d"}]}`),
			want:   "5 0755 0:0 etc/\n5 0700 0:0 etc/ipsec.d/",
		},
		"a link, and a path through a link of the base": {
			config: config(`"storage":{"links":[{"path":"/lib/a","target":"../b"}]}`),
			want:   "2 0777 0:0 usr/lib/a -> ../b",
		},
		"a hard link is a copy": {
			config: config(`"storage":{"links":[{"path":"/etc/a","target":"/etc/b","hard":true}],
				"files":[{"path":"/etc/b","mode":256,"user":{"id":7},"contents":{"source":"data:,b"}}]}`),
			want: "5 0755 0:0 etc/\n0 0400 7:0 etc/a\n0 0400 7:0 etc/b",
		},
		"an owner that the config itself declares": {
			config: config(`"passwd":{"users":[{"name":"app","uid":900,"noCreateHome":true}],"groups":[{"name":"apps","gid":901}]},
				"storage":{"files":[{"path":"/etc/a","user":{"name":"app"},"group":{"name":"apps"},"contents":{"source":"data:,"}},
				{"path":"/etc/b","group":{"name":"app"},"contents":{"source":"data:,"}}]}`),
			want: "5 0755 0:0 etc/\n0 0644 900:901 etc/a\n0 0644 0:900 etc/b\n5 0755 0:0 usr/lib/sysusers.d/\n0 0644 0:0 usr/lib/sysusers.d/imagemode.conf",
		},
		"an enabled unit with a drop-in, and a masked one": {
			config: config(`"systemd":{"units":[
				{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nAlias=b.service\n",
				 "dropins":[{"name":"10.conf","contents":"[Unit]\n"},{"name":"20.conf"}]},
				{"name":"c.service","mask":true}]}`),
			want: `5 0755 0:0 etc/
5 0755 0:0 etc/systemd/
5 0755 0:0 etc/systemd/system/
0 0644 0:0 etc/systemd/system/a.service
5 0755 0:0 etc/systemd/system/a.service.d/
0 0644 0:0 etc/systemd/system/a.service.d/10.conf
2 0777 0:0 etc/systemd/system/b.service -> /etc/systemd/system/a.service
2 0777 0:0 etc/systemd/system/c.service -> /dev/null
5 0755 0:0 etc/systemd/system/multi-user.target.wants/
2 0777 0:0 etc/systemd/system/multi-user.target.wants/a.service -> /etc/systemd/system/a.service
5 0755 0:0 usr/lib/systemd/system-preset/
0 0644 0:0 usr/lib/systemd/system-preset/20-imagemode.preset`,
		},
		"a template, its instances and what is enabled with them": {
			config: config(`"systemd":{"units":[
				{"name":"a@.service","contents":"[Service]\n[Install]\nWantedBy=b.target\nAlso=c.socket\n"},
				{"name":"a@x.service","enabled":true},{"name":"a@y.service","enabled":true},
				{"name":"c.socket","contents":"[Install]\nWantedBy=sockets.target\nAlso=a@x.service\n"}]}`),
			want: `5 0755 0:0 etc/
5 0755 0:0 etc/systemd/
5 0755 0:0 etc/systemd/system/
0 0644 0:0 etc/systemd/system/a@.service
5 0755 0:0 etc/systemd/system/b.target.wants/
2 0777 0:0 etc/systemd/system/b.target.wants/a@x.service -> /etc/systemd/system/a@.service
2 0777 0:0 etc/systemd/system/b.target.wants/a@y.service -> /etc/systemd/system/a@.service
0 0644 0:0 etc/systemd/system/c.socket
5 0755 0:0 etc/systemd/system/sockets.target.wants/
2 0777 0:0 etc/systemd/system/sockets.target.wants/c.socket -> /etc/systemd/system/c.socket
5 0755 0:0 usr/lib/systemd/system-preset/
0 0644 0:0 usr/lib/systemd/system-preset/20-imagemode.preset`,
		},
		"a unit that is a file of the config is enabled, too": {
			config: config(`"storage":{"files":[{"path":"/etc/systemd/system/a@.service","contents":{"source":"data:,%5BInstall%5D%0AWantedBy=b.target%0A"}}]},
				"systemd":{"units":[{"name":"a@x.service","enabled":true}]}`),
			want: `5 0755 0:0 etc/
5 0755 0:0 etc/systemd/
5 0755 0:0 etc/systemd/system/
0 0644 0:0 etc/systemd/system/a@.service
5 0755 0:0 etc/systemd/system/b.target.wants/
2 0777 0:0 etc/systemd/system/b.target.wants/a@x.service -> /etc/systemd/system/a@.service
5 0755 0:0 usr/lib/systemd/system-preset/
0 0644 0:0 usr/lib/systemd/system-preset/20-imagemode.preset`,
		},
		"programs and data for /var are kept in /usr, behind closed doors where they are": {
			config: config(`"storage":{"directories":[{"path":"/usr/local/etc","mode":448,"user":{"id":3}}],"files":[{"path":"/usr/local/bin/a","mode":493,"contents":{"source":"data:,a"}},
				{"path":"/usr/local/etc/b","mode":384,"user":{"id":3},"contents":{"source":"data:,a"}},
				{"path":"/var/lib/c","mode":384,"user":{"id":3},"contents":{"source":"data:,a"}}]}`),
			want: `5 0755 0:0 usr/libexec/
5 0755 0:0 usr/libexec/imagemode/
5 0755 0:0 usr/libexec/imagemode/var/
5 0755 0:0 usr/libexec/imagemode/var/usr/
5 0755 0:0 usr/libexec/imagemode/var/usr/local/
5 0755 0:0 usr/libexec/imagemode/var/usr/local/bin/
0 0755 0:0 usr/libexec/imagemode/var/usr/local/bin/a
5 0700 3:0 usr/libexec/imagemode/var/usr/local/etc/
0 0600 3:0 usr/libexec/imagemode/var/usr/local/etc/b
5 0755 0:0 usr/share/
5 0755 0:0 usr/share/imagemode/
5 0700 0:0 usr/share/imagemode/var/
5 0755 0:0 usr/share/imagemode/var/var/
5 0755 0:0 usr/share/imagemode/var/var/lib/
0 0600 0:0 usr/share/imagemode/var/var/lib/c`,
		},
		"a service that starts early waits for what is put in place below /var": {
			config: config(`"storage":{"files":[{"path":"/opt/a","mode":493,"contents":{"source":"data:,a"}}]},
				"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nDefaultDependencies=no\n"},
				{"name":"b.service","contents":"[Unit]\nDefaultDependencies=no\nBefore=local-fs-pre.target\n"},
				{"name":"c.service","dropins":[{"name":"c.conf","contents":"[Unit]\nDefaultDependencies=false\n"}]}]}`),
			want: `5 0755 0:0 etc/
5 0755 0:0 etc/systemd/
5 0755 0:0 etc/systemd/system/
0 0644 0:0 etc/systemd/system/a.service
0 0644 0:0 etc/systemd/system/b.service
5 0755 0:0 etc/systemd/system/c.service.d/
0 0644 0:0 etc/systemd/system/c.service.d/c.conf
5 0755 0:0 usr/lib/systemd/system/a.service.d/
0 0644 0:0 usr/lib/systemd/system/a.service.d/50-imagemode-var.conf
5 0755 0:0 usr/lib/systemd/system/c.service.d/
0 0644 0:0 usr/lib/systemd/system/c.service.d/50-imagemode-var.conf
5 0755 0:0 usr/libexec/
5 0755 0:0 usr/libexec/imagemode/
5 0755 0:0 usr/libexec/imagemode/var/
5 0755 0:0 usr/libexec/imagemode/var/opt/
0 0755 0:0 usr/libexec/imagemode/var/opt/a`,
		},
		"kernel arguments": {
			config: config(`"kernelArguments":{"shouldExist":["a=1"]}`),
			args:   []string{"b=2"},
			want:   "5 0755 0:0 usr/lib/bootc/\n5 0755 0:0 usr/lib/bootc/kargs.d/\n0 0644 0:0 usr/lib/bootc/kargs.d/50-imagemode.toml",
		},
		"what is live, and the kubelet's pull secret, stay out": {
			config: config(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]},
				"storage":{"files":[{"path":"/var/lib/kubelet/config.json","contents":{"source":"data:,secret"}},
				{"path":"/etc/pki/ca-trust/source/anchors/a.crt","contents":{"source":"data:,a"}}]}`),
		},
		"a config of nothing": {
			config: config(`"passwd":{"users":[{"name":"core"}]}`),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			layer, got := makeLayer(t, test.config, test.args...)
			if diff := cmp.Diff(test.want, got.asked()); diff != "" {
				t.Error(diff)
			}
			if problems, err := Lint(layer.Data); err != nil || len(problems) > 0 {
				t.Errorf("lint: %v %v", problems, err)
			}
		})
	}
}

func TestLayerContents(t *testing.T) {
	var packedText bytes.Buffer
	packer := gzip.NewWriter(&packedText)
	fmt.Fprint(packer, "unpacked")
	packer.Close()
	encoded := base64.StdEncoding.EncodeToString(packedText.Bytes())
	tests := map[string]struct {
		config string
		args   []string
		path   string
		want   string
	}{
		"a data URL is decoded": {
			config: config(`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:text/plain;charset=utf-8;base64,aGVsbG8="}}]}`),
			path:   "/etc/a", want: "hello",
		},
		"percent encoding is decoded": {
			config: config(`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a%20b%0A"}}]}`),
			path:   "/etc/a", want: "a b\n",
		},
		"gzip is unpacked": {
			config: config(`"storage":{"files":[{"path":"/etc/a","contents":{"compression":"gzip","source":"data:;base64,` + encoded + `"}}]}`),
			path:   "/etc/a", want: "unpacked",
		},
		"kernel arguments keep their order and their quotes": {
			config: config(`"kernelArguments":{"shouldExist":["a=1"]}`),
			args:   []string{`b=2 c="x y"`, `d=\n`},
			path:   "/usr/lib/bootc/kargs.d/50-imagemode.toml",
			want:   `kargs = ["a=1", "b=2", "c=\"x y\"", "d=\\n"]` + "\n",
		},
		"the lines that put in place what lives in /var": {
			config: config(`"storage":{"files":[{"path":"/opt/a b%","mode":493,"contents":{"source":"data:,a"}},
				{"path":"/var/lib/b*","mode":384,"user":{"name":"core"},"group":{"id":7},"contents":{"source":"data:,a"}},
				{"path":"/var/lib/c","mode":416}],
				"directories":[{"path":"/opt","mode":457}],"links":[{"path":"/srv/l","target":"/x%y"},{"path":"/srv/m","target":"-"}]}`),
			path: varLines,
			want: `r "/var/lib/b[*]" - - - -
C "/var/lib/b*" 0600 core 7 - /usr/share/imagemode/var/var/lib/b*
f /var/lib/c 0640 - - -
d /var/opt 0711 - - -
L+ "/var/opt/a b%%" - - - - /usr/libexec/imagemode/var/opt/a b%%
L+ /var/srv/l - - - - /x%%y
L+ /var/srv/m - - - - \x2d
f /var/lib/imagemode/var-abc93c8aede01777 0600 0 0 -
`,
		},
		"presets say the same as the links": {
			config: config(`"systemd":{"units":[{"name":"b.service","enabled":true,"contents":"[Install]\nWantedBy=a.target"},
				{"name":"a@.service","contents":"[Install]\nWantedBy=a.target"},{"name":"m.service","mask":true,"enabled":true},
				{"name":"a@y.service","enabled":true},{"name":"a@x.service","enabled":true}]}`),
			path: presetPath,
			want: "enable a@.service x y\nenable b.service\n",
		},
		"users and groups": {
			config: config(`"passwd":{"groups":[{"name":"apps","gid":901},{"name":"sys","system":true}],"users":[
				{"name":"core","groups":["wheel"]},
				{"name":"app","uid":900,"gecos":"An App","primaryGroup":"apps","groups":["sys","apps"],"shell":"/bin/sh"},
				{"name":"daemon","system":true}]}`),
			path: sysusersPath,
			want: "g apps 901\ng sys -\nu app 900:apps \"An App\" /home/app /bin/sh\nu daemon - - - -\nm app apps\nm app sys\nm core wheel\n",
		},
		"the list of delivered files": {
			config: config(`"storage":{"files":[{"path":"/usr/local/bin/a","mode":493,"contents":{"source":"data:,a"}}],"links":[{"path":"/etc/l","target":"a"}]}`),
			path:   FilesPath,
			want: `[
 {
  "path": "/etc/l",
  "uid": 0,
  "gid": 0,
  "target": "a"
 },
 {
  "path": "/usr/local/bin/a",
  "mode": "0755",
  "uid": 0,
  "gid": 0,
  "sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
 }
]
`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, got := makeLayer(t, test.config, test.args...)
			if diff := cmp.Diff(test.want, got.contents[test.path]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheSameConfigGivesTheSameBytes(t *testing.T) {
	files := []string{`{"path":"/etc/b","contents":{"source":"data:,b"}}`, `{"path":"/opt/a","contents":{"source":"data:,a"}}`, `{"path":"/opt/c","contents":{"source":"data:,a"}}`}
	units := []string{`{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=b.target"}`, `{"name":"c.service","enabled":true,"contents":"[Install]\nWantedBy=b.target"}`}
	in := func() string {
		return config(`"storage":{"files":[` + strings.Join(files, ",") + `]},"systemd":{"units":[` + strings.Join(units, ",") + `]}`)
	}
	first, _ := makeLayer(t, in())
	for range 3 {
		slices.Reverse(files)
		slices.Reverse(units)
		again, _ := makeLayer(t, in())
		if !bytes.Equal(first.Data, again.Data) {
			t.Fatal("other bytes")
		}
	}
}

func TestLongNames(t *testing.T) {
	long := "/etc/" + strings.Repeat("d", 120) + "/" + strings.Repeat("f", 200)
	_, got := makeLayer(t, config(`"storage":{"files":[{"path":"`+long+`","contents":{"source":"data:,a"}}]}`))
	if got.contents[long] != "a" {
		t.Errorf("got %v", got.entries)
	}
}

func TestNewLayerRefusesContentThatDoesNotDecode(t *testing.T) {
	bomb := gzipped(t, MaxFileSize+1)
	tests := map[string]struct {
		body string
		want string
	}{
		"a wrong hash":                {`{"path":"/etc/a","contents":{"source":"data:,a","verification":{"hash":"sha256-` + strings.Repeat("0", 64) + `"}}}`, "/etc/a: contents.verification.hash does not match"},
		"gzip that is none":           {`{"path":"/etc/a","contents":{"source":"data:,a","compression":"gzip"}}`, "/etc/a: contents.compression"},
		"gzip to append that is none": {`{"path":"/etc/a","contents":{"source":"data:,"},"append":[{"source":"data:,x","compression":"gzip"}]}`, "/etc/a: append[0].compression"},
		"a bomb":                      {`{"path":"/etc/a","contents":{"source":"data:;base64,` + bomb + `","compression":"gzip"}}`, "unpacks to more than"},
		"a file below a file":         {`{"path":"/etc/a","contents":{"source":"data:,"}},{"path":"/etc/a/b","contents":{"source":"data:,"}}`, "/etc/a/b: it is below /etc/a"},
		"two spellings in /var":       {`{"path":"/opt/a","contents":{"source":"data:,"}},{"path":"/var/opt/a","contents":{"source":"data:,"}}`, "delivered twice"},
		"an append below /var":        {`{"path":"/var/lib/a","append":[{"source":"data:,"}]}`, "the content is the node's own"},
		"imagemode's own list":        {`{"path":"/usr/lib/imagemode/files.json","contents":{"source":"data:,"}}`, "imagemode's own"},
		"two spellings":               {`{"path":"/lib/a","contents":{"source":"data:,"}},{"path":"/usr/lib/a","contents":{"source":"data:,"}}`, "delivered twice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := Parse([]byte(config(`"storage":{"files":[` + test.body + `]}`)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewLayer(config, DefaultBase(), nil)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a *RefusedError with %q", err, test.want)
			}
		})
	}
}

func gzipped(t *testing.T, zeros int) string {
	t.Helper()
	var buffer bytes.Buffer
	packer := gzip.NewWriter(&buffer)
	if _, err := packer.Write(make([]byte, zeros)); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(buffer.Bytes())
}
