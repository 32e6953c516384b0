package builder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry/registrytest"
)

func TestARunSeesWhatTheBuildHasAndLeavesNoTrace(t *testing.T) {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	w := newWorkplace(t, "")
	w.request.BaseImage = w.registry.Push(t, "os/trusting", registrytest.ImageSpec{
		Files:  map[string]string{"/bin/tool": toolProgram, "/etc/": "", "/tmp/": "", bundle: "own certificate\n"},
		Labels: registrytest.Bootable(),
	})
	// As a mounted Secret: the files are links into a directory beside them.
	w.write(request.DirEntitlement+"/..data/key.pem", []byte("entitled"))
	if err := os.Symlink("..data/key.pem", filepath.Join(w.options.Dir, request.DirEntitlement, "key.pem")); err != nil {
		t.Fatal(err)
	}
	w.write(request.DirYumRepos+"/a.repo", []byte("[a]"))
	w.write(request.DirGPGKeys+"/a.asc", []byte("key"))
	added, err := os.ReadFile(w.registry.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
	t.Setenv("NO_PROXY", "127.0.0.1")
	w.request.Containerfile = "FROM base AS final\n" + runs(t,
		[]string{"expect", "/etc/pki/entitlement/key.pem", "entitled"},
		[]string{"expect", "/etc/yum.repos.d/a.repo", "[a]"},
		[]string{"expect", "/etc/pki/rpm-gpg/a.asc", "key"},
		[]string{"expect", bundle, "own certificate\n" + string(added)},
		[]string{"environment", "HTTPS_PROXY", ":3128"},
		[]string{"write", "/etc/yum.repos.d/b.repo", "a RUN may write there"},
		[]string{"write", "/usr/share/a", "b"},
	)
	_, image := w.mustBuild()
	files := w.files(image, 1)
	if files["/usr/share/a"] != "b" {
		t.Errorf("the RUN's own file is missing: %v", files)
	}
	for path, content := range files {
		for _, place := range mountPlaces {
			if strings.HasPrefix(path, place.to) {
				t.Errorf("%s was left in the image", path)
			}
		}
		if path == bundle || strings.Contains(content, "entitled") || strings.Contains(content, "BEGIN CERTIFICATE") {
			t.Errorf("%s was left in the image with %q", path, content)
		}
	}
	for _, trace := range []string{"proxy.example.com", w.options.Dir, w.options.Storage} {
		if strings.Contains(string(image.Config), trace) || strings.Contains(string(image.Manifest), trace) {
			t.Errorf("the image names %s", trace)
		}
	}
}

// runs gives a RUN for each call of the test base's program.
func runs(t *testing.T, calls ...[]string) string {
	t.Helper()
	var text strings.Builder
	for _, call := range calls {
		encoded, err := json.Marshal(append([]string{"/bin/tool"}, call...))
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("RUN " + string(encoded) + "\n")
	}
	return text.String()
}

func TestATextThatUpdatesTheTrustGetsNoMount(t *testing.T) {
	for text, want := range map[string]bool{
		"RUN update-ca-trust":                        true,
		"RUN a && update-ca-certificates -f":         true,
		"RUN trust extract --format pem-bundle":      true,
		"RUN apt-get install ca-certificates":        true,
		"RUN dnf install vim":                        false,
		"RUN cat /etc/ssl/certs/ca-certificates.crt": false,
	} {
		if got := updatesTrust.MatchString(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestADirectoryForRunIsBounded(t *testing.T) {
	directory := t.TempDir()
	if err := os.MkdirAll(filepath.Join(directory, request.DirYumRepos), 0o755); err != nil {
		t.Fatal(err)
	}
	options := Options{Dir: directory}
	if mounts, err := findRunMounts(options); err != nil || len(mounts.directories) != 0 || mounts.repositories != "" {
		t.Errorf("an empty directory: %+v, %v", mounts, err)
	}
	large := filepath.Join(directory, request.DirYumRepos, "large")
	if err := os.WriteFile(large, make([]byte, maxMountSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findRunMounts(options); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v", err)
	}
}
