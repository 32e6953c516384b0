package etc

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree in a test maps a path to "mode content", to "-> target" or to "dir mode".
type files map[string]string

func (f files) write(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for path, description := range f {
		full := filepath.Join(directory, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := create(full, description); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func create(path, description string) error {
	kind, rest, _ := strings.Cut(description, " ")
	mode := fs.FileMode(0o644)
	switch kind {
	case "->":
		return os.Symlink(rest, path)
	case "dir":
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if rest == "private" {
			mode = 0o700
		} else {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	case "private":
		mode = 0o600
	}
	if err := os.WriteFile(path, []byte(rest), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

func read(t *testing.T, directory string) files {
	t.Helper()
	found := files{}
	entries, err := tree(directory)
	if err != nil {
		t.Fatal(err)
	}
	for path, info := range entries {
		full := filepath.Join(directory, path)
		kind := "public "
		if info.Mode().Perm()&0o077 == 0 {
			kind = "private "
		}
		switch {
		case info.IsDir():
			found[path] = "dir " + strings.TrimSpace(kind)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(full)
			if err != nil {
				t.Fatal(err)
			}
			found[path] = "-> " + target
		default:
			content, err := os.ReadFile(full)
			if err != nil {
				t.Fatal(err)
			}
			found[path] = kind + string(content)
		}
	}
	return found
}

func TestMerge(t *testing.T) {
	tests := map[string]struct {
		pristine, current, target, want files
	}{
		"an unchanged file follows the image": {
			pristine: files{"a": "public 1"}, current: files{"a": "public 1"}, target: files{"a": "public 2"},
			want: files{"a": "public 2"},
		},
		"a changed file is kept, whatever the image has": {
			pristine: files{"a": "public 1"}, current: files{"a": "public x"}, target: files{"a": "public 2"},
			want: files{"a": "public x"},
		},
		"a change of mode alone keeps the whole file": {
			pristine: files{"a": "public 1"}, current: files{"a": "private 1"}, target: files{"a": "public 2"},
			want: files{"a": "private 1"},
		},
		"a file that was added is kept, with its directory": {
			pristine: files{}, current: files{"d/a": "public x"}, target: files{},
			want: files{"d": "dir public", "d/a": "public x"},
		},
		"a file that was deleted stays deleted": {
			pristine: files{"a": "public 1"}, current: files{}, target: files{"a": "public 2"},
			want: files{},
		},
		"a file that the image removed goes when it was not changed": {
			pristine: files{"a": "public 1"}, current: files{"a": "public 1"}, target: files{},
			want: files{},
		},
		"a file that the image removed stays when it was changed": {
			pristine: files{"d/a": "public 1"}, current: files{"d/a": "public x"}, target: files{},
			want: files{"d": "dir public", "d/a": "public x"},
		},
		"a link that was changed is kept": {
			pristine: files{"a": "-> one"}, current: files{"a": "-> two"}, target: files{"a": "-> three"},
			want: files{"a": "-> two"},
		},
		"a link may take a file's place": {
			pristine: files{"a": "public 1"}, current: files{"a": "-> two"}, target: files{"a": "public 2"},
			want: files{"a": "-> two"},
		},
		"a directory's mode is its own, and its files follow the image": {
			pristine: files{"d": "dir public", "d/a": "public 1"}, current: files{"d": "dir private", "d/a": "public 1"},
			target: files{"d": "dir public", "d/a": "public 2"},
			want:   files{"d": "dir private", "d/a": "public 2"},
		},
		"a deleted directory goes with what the image adds to it": {
			pristine: files{"d/a": "public 1"}, current: files{}, target: files{"d/a": "public 1", "d/b": "public 2"},
			want: files{},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			target := test.target.write(t)
			if _, err := Merge(test.pristine.write(t), test.current.write(t), target); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, read(t, target)); diff != "" {
				t.Errorf("/etc (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMergeNamesAConflict(t *testing.T) {
	tests := map[string]struct{ current, target files }{
		"a local file where the image has a directory": {files{"a": "public x"}, files{"a/b": "public 2"}},
		"a local directory where the image has a file": {files{"a": "dir public"}, files{"a": "public 2"}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			_, err := Merge(files{}.write(t), test.current.write(t), test.target.write(t))
			if err == nil || !strings.Contains(err.Error(), "merging /etc/a: ") {
				t.Errorf("error is %v, want one that names /etc/a", err)
			}
		})
	}
}

func TestCopyIsTheSameTree(t *testing.T) {
	source := files{"a": "private 1", "d": "dir private", "d/b": "public 2", "l": "-> a"}.write(t)
	target := filepath.Join(t.TempDir(), "copy")
	if err := Copy(source, target); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read(t, source), read(t, target)); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	changes, err := Merge(source, target, files{}.write(t))
	if err != nil || len(changes.Kept)+len(changes.Deleted) > 0 {
		t.Errorf("a copy differs from its source: %+v, %v", changes, err)
	}
}
