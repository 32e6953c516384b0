package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func sha(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestDifferenceOf(t *testing.T) {
	file := deliveredFile{Path: "/etc/a", Mode: "0644", SHA256: sha("a")}
	same := FileState{Mode: 0o644, SHA256: sha("a")}
	with := func(change func(*FileState)) FileState { state := same; change(&state); return state }
	tests := map[string]struct {
		file  deliveredFile
		state FileState
		want  string
	}{
		"the same":                        {file, same, ""},
		"another content":                 {file, with(func(s *FileState) { s.SHA256 = sha("b") }), "content"},
		"another mode":                    {file, with(func(s *FileState) { s.Mode = 0o4755 }), "mode 4755"},
		"another owner":                   {file, with(func(s *FileState) { s.UID = 7 }), "owner 7"},
		"another group":                   {file, with(func(s *FileState) { s.GID = 8 }), "group 8"},
		"an owner that has no number yet": {deliveredFile{Mode: "0644", SHA256: sha("a"), User: "app", Group: "app"}, with(func(s *FileState) { s.UID, s.GID = 7, 8 }), ""},
		"a directory in place of a file":  {file, FileState{Kind: fs.ModeDir}, "no file"},
		"a file in place of a directory":  {deliveredFile{Directory: true, Mode: "0755"}, same, "no directory"},
		"a file in place of a link":       {deliveredFile{Target: "/x"}, same, "no link"},
		"a link that leads elsewhere":     {deliveredFile{Target: "/x"}, FileState{Kind: fs.ModeSymlink, Target: "/y"}, "leads to /y"},
		"the same link":                   {deliveredFile{Target: "/x"}, FileState{Kind: fs.ModeSymlink, Target: "/x"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := differenceOf(test.file, test.state); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// delivers has the machine's image deliver files, as the manifest says it.
func (m *machine) delivers(t *testing.T, files map[string]string) {
	t.Helper()
	var list []deliveredFile
	for path, content := range files {
		list = append(list, deliveredFile{Path: path, Mode: "0644", SHA256: sha(content)})
		m.files[path], m.files["/usr"+path] = []byte(content), []byte(content)
	}
	manifest, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	m.files[manifestPath] = manifest
}

func TestDrift(t *testing.T) {
	b := newBench(t)
	b.machine.delivers(t, map[string]string{"/etc/motd": "hello", "/etc/other": "x"})
	b.order(imageA, v1alpha1.PhaseStaged)
	b.pass()
	if got := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionDrifted); got != nil {
		t.Fatalf("nothing was changed, and %+v", got)
	}
	b.machine.files["/etc/motd"] = []byte("edited")
	b.pass()
	if got := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionDrifted); got != nil {
		t.Fatalf("the files were compared before %s: %+v", surveyInterval, got)
	}
	b.pause(surveyInterval)
	b.pass()
	b.expectCondition(v1alpha1.ConditionDrifted, metav1.ConditionTrue, "FilesChanged")
	if got := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionDrifted).Message; got != "/etc/motd (content)" {
		t.Errorf("message %q", got)
	}
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
		s.DesiredImage, s.Phase, s.CorrectDrift = imageA.String(), v1alpha1.PhaseStaged, true
	})
	b.pass() // at once
	if got := meta.FindStatusCondition(b.object().Status.Conditions, v1alpha1.ConditionDrifted); got != nil || string(b.machine.files["/etc/motd"]) != "hello" {
		t.Errorf("%+v, and the file holds %q", got, b.machine.files["/etc/motd"])
	}
}

func TestWhatDriftCannotCorrectIsSaid(t *testing.T) {
	m := newMachine(imageA, time.Now)
	m.delivers(t, map[string]string{"/etc/a": "a", "/etc/b": "b"})
	m.files["/etc/a"], m.files["/etc/b"] = []byte("edited"), []byte("edited")
	m.files["/usr/etc/a"] = []byte("of another image")
	delete(m.files, "/usr/etc/b")
	got, err := checkDrift(m, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/etc/a (content, not corrected: the image's copy below /usr/etc is another one)", "/etc/b (content, not corrected: the image's copy below /usr/etc cannot be read)"} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestRivalsAndSpaceAreReported(t *testing.T) {
	b := newBench(t)
	b.machine.active = map[string]bool{"zincati.service": true}
	b.machine.free = map[string]int64{"/sysroot": 50 << 30, "/boot": 100 << 20}
	b.order(imageA, v1alpha1.PhaseStaged)
	b.pass()
	b.expectCondition(v1alpha1.ConditionRivalUpdater, metav1.ConditionTrue, "UnitActive")
	b.expectCondition(v1alpha1.ConditionLowDiskSpace, metav1.ConditionTrue, "LowDiskSpace")
	writes := b.writes
	b.machine.free["/boot"] = 160 << 20 // not clearly more
	b.pause(surveyInterval)
	b.pass()
	if b.writes != writes {
		t.Error("a few bytes were a report")
	}
	b.machine.free["/boot"] = 300 << 20
	b.machine.active = nil
	b.pause(surveyInterval)
	b.pass()
	for _, condition := range b.object().Status.Conditions {
		if condition.Type == v1alpha1.ConditionRivalUpdater || condition.Type == v1alpha1.ConditionLowDiskSpace {
			t.Errorf("still %+v", condition)
		}
	}
	if diff := cmp.Diff(&v1alpha1.FreeSpace{SysrootMiB: 50 << 10, BootMiB: 300}, b.object().Status.FreeSpace); diff != "" {
		t.Errorf("free space (-want +got):\n%s", diff)
	}
}

// TestInspectStaysInsideTheHost: an absolute link of the host leads to the host's
// file, not to the pod's.
func TestInspectStaysInsideTheHost(t *testing.T) {
	root := t.TempDir()
	host := NewSystemdHost(root)
	for path, content := range map[string]string{"var/real/file": "inside", "etc/passwd": "host's"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"opt": "/var/real", "var/real/up": "../../../../../../etc/passwd"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/opt/file": "inside", "/opt/up": "host's"} {
		got, err := host.Inspect(path, true)
		if err != nil || got.SHA256 != sha(want) || got.Mode != 0o640 {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	if got, err := host.Inspect("/opt", false); err != nil || got.Target != "/var/real" || got.Kind != fs.ModeSymlink {
		t.Errorf("/opt: %+v, %v", got, err)
	}
	if _, err := host.Inspect("/etc/passwd/x", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
	state := FileState{Mode: 0o4755, UID: os.Getuid(), GID: os.Getgid()}
	if err := host.PutBack("/opt/file", []byte("again"), state); err != nil {
		t.Fatal(err)
	}
	if got, err := host.Inspect("/var/real/file", true); err != nil || got.SHA256 != sha("again") || got.Mode != 0o4755 {
		t.Errorf("put back: %+v, %v", got, err)
	}
}
