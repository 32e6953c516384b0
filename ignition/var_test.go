package ignition

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
)

// machine is a root directory that goes from image to image, as a host does:
// /usr is the image's, /var stays. systemd-tmpfiles does in it what the units
// have it do at boot; systemd itself does not run.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if _, err := exec.LookPath("systemd-tmpfiles"); err != nil {
		t.Fatal("this test needs systemd-tmpfiles, from Debian's package systemd")
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test changes owners: run it as root")
	}
	m := &machine{t: t, root: t.TempDir()}
	m.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1001::/var/home/core:/bin/sh\n")
	m.write("/etc/group", "root:x:0:\ncore:x:1001:\n")
	return m
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// boot starts the machine in an image.
func (m *machine) boot(layer *Layer) {
	m.t.Helper()
	m.extract(layer)
	m.run(changeUnit)
	m.run(varUnit)
}

// extract puts an image in the place of the one before.
func (m *machine) extract(layer *Layer) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.root, "usr")); err != nil {
		m.t.Fatal(err)
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(layer.Data))
	if err != nil {
		m.t.Fatal(err)
	}
	archive := tar.NewReader(unpacker)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			m.t.Fatal(err)
		}
		path := filepath.Join(m.root, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, path)
		default:
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(path, content, fs.FileMode(header.Mode))
			}
		}
		if err == nil && header.Typeflag != tar.TypeSymlink {
			err = errors.Join(os.Chown(path, header.Uid, header.Gid), os.Chmod(path, fs.FileMode(header.Mode&0o777)))
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// run does what a unit of the image does, if its condition holds.
func (m *machine) run(unit string) {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, baseUnitDir, unit))
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ConditionPathExists":
			if _, err := os.Stat(filepath.Join(m.root, strings.TrimPrefix(value, "!"))); err == nil {
				return
			}
		case "ExecStart":
			m.execute(value)
		}
	}
}

func (m *machine) execute(command string) {
	m.t.Helper()
	words := strings.Fields(strings.TrimPrefix(command, "-"))
	words[len(words)-1] = filepath.Join(m.root, words[len(words)-1])
	output, err := exec.Command(words[0], append([]string{"--root=" + m.root}, words[1:]...)...).CombinedOutput()
	if err != nil && !strings.HasPrefix(command, "-") {
		m.t.Errorf("%s: %v: %s", command, err, output)
	}
}

// list gives what is below /var, but for imagemode's own.
func (m *machine) list() []string {
	m.t.Helper()
	output, err := exec.Command("find", m.root+"/var", "-mindepth", "1", "-printf", "%M %U:%G /var/%P -> %l\n").Output()
	if err != nil {
		m.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSuffix(strings.TrimSpace(line), " ->")
		if !strings.Contains(line, "/var/lib/imagemode") {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, "/"):], b[strings.Index(b, "/"):])
	})
	return lines
}

func (m *machine) read(name string) string {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(content)
}

func TestWhatIsBelowVarComesFollowsAndGoes(t *testing.T) {
	m := newMachine(t)
	file := func(path, mode, data string) string {
		return `{"path":"` + path + `","mode":` + mode + `,"contents":{"source":"data:,` + data + `"}}`
	}
	image := func(files ...string) *Layer {
		layer, _ := makeLayer(t, config(`"storage":{"files":[`+strings.Join(files, ",")+`],
			"directories":[{"path":"/srv/d","mode":457}],"links":[{"path":"/srv/l","target":"d"}]}`))
		return layer
	}
	program := func(data string) string { return file("/usr/local/bin/a b%25*", "493", data) }
	owned := `{"path":"/home/core/o","user":{"name":"core"},"group":{"name":"core"},"contents":{"source":"data:,o"}}`

	m.boot(image(program("one"), file("/var/lib/s", "384", "one"), owned, `{"path":"/var/lib/t","mode":416}`))
	want := []string{
		"drwxr-xr-x 0:0 /var/home",
		"drwxr-xr-x 0:0 /var/home/core",
		"-rw-r--r-- 1000:1001 /var/home/core/o",
		"drwxr-xr-x 0:0 /var/lib",
		"-rw------- 0:0 /var/lib/s",
		"-rw-r----- 0:0 /var/lib/t",
		"drwxr-xr-x 0:0 /var/srv",
		"drwx--x--x 0:0 /var/srv/d",
		"lrwxrwxrwx 0:0 /var/srv/l -> d",
		"drwxr-xr-x 0:0 /var/usrlocal",
		"drwxr-xr-x 0:0 /var/usrlocal/bin",
		"lrwxrwxrwx 0:0 /var/usrlocal/bin/a b%25* -> /usr/libexec/imagemode/var/usr/local/bin/a b%25*",
	}
	if diff := cmp.Diff(want, m.list()); diff != "" {
		t.Fatal("the first image: " + diff)
	}
	if got := m.read("/usr/libexec/imagemode/var/usr/local/bin/a b%25*") + m.read("/var/lib/s"); got != "oneone" {
		t.Errorf("the first image: %q", got)
	}

	m.write("/var/usrlocal/bin/a bother", "the node's own")
	m.write("/var/lib/t", "the node's own")
	m.boot(image(program("two"), file("/var/lib/s", "420", "two"), owned, `{"path":"/var/lib/t","mode":416}`))
	if got := m.read("/usr/libexec/imagemode/var/usr/local/bin/a b%25*") + m.read("/var/lib/s"); got != "twotwo" {
		t.Errorf("changed: %q", got)
	}

	// It broke off between removing and putting in place.
	none := image()
	m.extract(none)
	m.run(changeUnit)
	m.boot(none)
	want = []string{
		"drwxr-xr-x 0:0 /var/home",
		"drwxr-xr-x 0:0 /var/home/core",
		"drwxr-xr-x 0:0 /var/lib",
		"-rw-r----- 0:0 /var/lib/t",
		"drwxr-xr-x 0:0 /var/srv",
		"drwx--x--x 0:0 /var/srv/d",
		"lrwxrwxrwx 0:0 /var/srv/l -> d",
		"drwxr-xr-x 0:0 /var/usrlocal",
		"drwxr-xr-x 0:0 /var/usrlocal/bin",
		"-rw-r--r-- 0:0 /var/usrlocal/bin/a bother",
	}
	if diff := cmp.Diff(want, m.list()); diff != "" {
		t.Error("removed: " + diff)
	}
	if got := m.read("/var/lib/t"); got != "the node's own" {
		t.Errorf("the node's own content: %q", got)
	}

	empty, _ := makeLayer(t, "")
	m.boot(empty)
	if list := strings.Join(m.list(), "\n"); strings.Contains(list, "/srv/l") {
		t.Errorf("a config of nothing leaves a link: %s", list)
	}
	m.boot(image(program("three")))
	if got := m.read("/usr/libexec/imagemode/var/usr/local/bin/a b%25*"); got != "three" {
		t.Errorf("back again: %q", got)
	}
}

func TestNothingIsWrittenBelowVarWhenNothingChanged(t *testing.T) {
	m := newMachine(t)
	layer, _ := makeLayer(t, config(`"storage":{"files":[{"path":"/opt/a","mode":493,"contents":{"source":"data:,a"}}]}`))
	m.boot(layer)
	times := func() string {
		output, err := exec.Command("find", m.root+"/var", "-printf", "%p %C@\n").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(output)
	}
	before := times()
	m.boot(layer)
	if diff := cmp.Diff(before, times()); diff != "" {
		t.Error(diff)
	}
}

func TestUnitsAreWhatSystemdReads(t *testing.T) {
	m := newMachine(t)
	layer, _ := makeLayer(t, config(`"passwd":{"groups":[{"name":"a","gid":7}]},"storage":{"files":[{"path":"/opt/a b%25/a","mode":493,"contents":{"source":"data:,a"}}]},
		"systemd":{"units":[{"name":"early.service","contents":"[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/usr/bin/systemd-tmpfiles\n[Install]\nWantedBy=sysinit.target\n","enabled":true}]}`))
	m.extract(layer)
	for _, program := range []string{"/usr/bin/systemd-tmpfiles", "/usr/bin/systemd-sysusers"} {
		m.write(program, "")
		if err := os.Chmod(filepath.Join(m.root, program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write("/usr/lib/systemd/system/sysinit.target", "[Unit]\n")
	output, err := exec.Command("systemd-analyze", "verify", "--root="+m.root, "--man=no", "--recursive-errors=no", varUnit, changeUnit, accountsUnit, "early.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
