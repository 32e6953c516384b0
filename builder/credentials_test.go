package builder

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func basic(user string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":password"))
}

func auths(t *testing.T, users map[string]string) []byte {
	t.Helper()
	entries := map[string]any{}
	for where, user := range users {
		entries[where] = map[string]string{"auth": basic(user)}
	}
	content, err := json.Marshal(map[string]any{"auths": entries})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestCombinedCredentials(t *testing.T) {
	const repository = "registry.example.com/os/worker"
	tests := map[string]struct {
		pull, push map[string]string
		want       map[string]string
	}{
		"one registry: pulling counts but for the repository itself": {
			pull: map[string]string{"registry.example.com": "pull"},
			push: map[string]string{"registry.example.com": "push"},
			want: map[string]string{"registry.example.com": "pull", repository: "push"},
		},
		"two registries": {
			pull: map[string]string{"other.example.com": "pull"},
			push: map[string]string{"registry.example.com": "push"},
			want: map[string]string{"other.example.com": "pull", "registry.example.com": "push", repository: "push"},
		},
		"credentials for part of a registry": {
			pull: map[string]string{"registry.example.com": "pull"},
			push: map[string]string{"registry.example.com/os": "push"},
			want: map[string]string{"registry.example.com": "pull", "registry.example.com/os": "push", repository: "push"},
		},
		"none for pushing": {
			pull: map[string]string{"registry.example.com": "pull"},
			want: map[string]string{"registry.example.com": "pull"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pull, push := memory(t, auths(t, test.pull)), memory(t, auths(t, test.push))
			combined, err := combine(pull, push, repository)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Auths map[string]struct{ Auth string }
			}
			if err := json.Unmarshal(combined, &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for where, user := range test.want {
				want[where] = basic(user)
			}
			found := map[string]string{}
			for where, entry := range got.Auths {
				found[where] = entry.Auth
			}
			if diff := cmp.Diff(want, found); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func memory(t *testing.T, content []byte) *memoryFile {
	t.Helper()
	file, err := newMemoryFile("test", content)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(file.close)
	return file
}

func TestCopyCredentials(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		"pull/.dockercfg":        `{"a.example.com":{"auth":"x"}}`,
		"push/.dockerconfigjson": `{"auths":{}}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := CopyCredentials(from, to); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"pull/config.json": `{"auths":{"a.example.com":{"auth":"x"}}}`,
		"push/config.json": `{"auths":{}}`,
	}
	for path, text := range want {
		content, err := os.ReadFile(filepath.Join(to, path))
		if err != nil || string(content) != text {
			t.Errorf("%s: %q %v", path, content, err)
		}
		if info, err := os.Stat(filepath.Join(to, path)); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %o", path, info.Mode().Perm())
		}
	}
	if err := CopyCredentials(t.TempDir(), to); err != nil {
		t.Errorf("no credentials at all: %v", err)
	}
}
