package ignition

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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
	config, err := Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := NewLayer(config, DefaultBase(), kernelArguments)
	if err != nil {
		t.Fatal(err)
	}
	return layer, readLayer(t, layer)
}

func readLayer(t *testing.T, layer *Layer) made {
	t.Helper()
	found := made{contents: map[string]string{}}
	if layer.IsEmpty() {
		return found
	}
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

// own are the entries that every layer has.
const ownEntries = `5 0755 0:0 usr/
5 0755 0:0 usr/lib/
5 0755 0:0 usr/lib/imagemode/
0 0644 0:0 usr/lib/imagemode/files.json`

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
			want:   "5 0755 0:0 etc/\n5 0750 0:0 etc/sudoers.d/\n0 0440 5:0 etc/sudoers.d/a\n" + ownEntries,
		},
		"a directory keeps the mode it was given": {
			config: config(`"storage":{"directories":[{"path":"/etc/a","mode":448}],"files":[{"path":"/etc/a/b","contents":{"source":"data:,"}}]}`),
			want:   "5 0755 0:0 etc/\n5 0700 0:0 etc/a/\n0 0644 0:0 etc/a/b\n" + ownEntries,
		},
		"a link, and a path through a link of the base": {
			config: config(`"storage":{"links":[{"path":"/lib/a","target":"../b"}]}`),
			want:   "5 0755 0:0 usr/\n5 0755 0:0 usr/lib/\n2 0777 0:0 usr/lib/a -> ../b\n5 0755 0:0 usr/lib/imagemode/\n0 0644 0:0 usr/lib/imagemode/files.json",
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
` + ownEntries,
		},
		"what lives in /var is kept in /usr": {
			config: config(`"storage":{"files":[{"path":"/usr/local/bin/a","mode":493,"contents":{"source":"data:,a"}}]}`),
			want: `5 0755 0:0 usr/
5 0755 0:0 usr/lib/
5 0755 0:0 usr/lib/imagemode/
0 0644 0:0 usr/lib/imagemode/files.json
5 0755 0:0 usr/lib/tmpfiles.d/
0 0644 0:0 usr/lib/tmpfiles.d/zz-imagemode.conf
5 0755 0:0 usr/libexec/
5 0755 0:0 usr/libexec/imagemode/
5 0755 0:0 usr/libexec/imagemode/var/
5 0755 0:0 usr/libexec/imagemode/var/usr/
5 0755 0:0 usr/libexec/imagemode/var/usr/local/
5 0755 0:0 usr/libexec/imagemode/var/usr/local/bin/
0 0755 0:0 usr/libexec/imagemode/var/usr/local/bin/a`,
		},
		"kernel arguments": {
			config: config(`"kernelArguments":{"shouldExist":["a=1"]}`),
			args:   []string{"b=2"},
			want: "5 0755 0:0 usr/\n5 0755 0:0 usr/lib/\n5 0755 0:0 usr/lib/bootc/\n5 0755 0:0 usr/lib/bootc/kargs.d/\n" +
				"0 0644 0:0 usr/lib/bootc/kargs.d/50-imagemode.toml\n5 0755 0:0 usr/lib/imagemode/\n0 0644 0:0 usr/lib/imagemode/files.json",
		},
		"the kubelet's pull secret stays out": {
			config: config(`"storage":{"files":[{"path":"/var/lib/kubelet/config.json","contents":{"source":"data:,secret"}}]}`),
		},
		"a config of nothing gives no layer": {
			config: config(`"passwd":{"users":[{"name":"core"}]}`),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			layer, got := makeLayer(t, test.config, test.args...)
			if diff := cmp.Diff(test.want, strings.Join(got.entries, "\n")); diff != "" {
				t.Error(diff)
			}
			if layer.IsEmpty() {
				return
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
		"what lives in /var is put in place at boot": {
			config: config(`"storage":{"files":[{"path":"/opt/a b%","mode":384,"user":{"id":7},"contents":{"source":"data:,a"}}],
				"directories":[{"path":"/opt","mode":457}],"links":[{"path":"/srv/l","target":"/x%y"}]}`),
			path: "/usr/lib/tmpfiles.d/zz-imagemode.conf",
			want: `r "/opt/a b%%" - - - -
C "/opt/a b%%" 0600 7 0 - /usr/libexec/imagemode/var/opt/a b%%
d /opt 0711 0 0 -
L+ /srv/l - - - - /x%%y
`,
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
	raw := config(`"storage":{"files":[{"path":"/etc/b","contents":{"source":"data:,b"}},{"path":"/etc/a","contents":{"source":"data:,a"}}]}`)
	first, _ := makeLayer(t, raw)
	for range 3 {
		again, _ := makeLayer(t, raw)
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
		"a wrong hash":        {`{"path":"/etc/a","contents":{"source":"data:,a","verification":{"hash":"sha256-` + strings.Repeat("0", 64) + `"}}}`, "/etc/a: contents.verification.hash does not match"},
		"gzip that is none":   {`{"path":"/etc/a","contents":{"source":"data:,a","compression":"gzip"}}`, "/etc/a: contents.compression"},
		"a bomb":              {`{"path":"/etc/a","contents":{"source":"data:;base64,` + bomb + `","compression":"gzip"}}`, "unpacks to more than"},
		"a file below a file": {`{"path":"/etc/a","contents":{"source":"data:,"}},{"path":"/etc/a/b","contents":{"source":"data:,"}}`, "/etc/a/b is below /etc/a"},
		"two spellings":       {`{"path":"/lib/a","contents":{"source":"data:,"}},{"path":"/usr/lib/a","contents":{"source":"data:,"}}`, "delivered twice"},
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
