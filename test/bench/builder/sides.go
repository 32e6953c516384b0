package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/imagemode/imagemode/builder/request"
)

// files of the config, in each build with another content.
const files = 60

func (b *bench) content(file int) string {
	return strings.Repeat(fmt.Sprintf("build %d file %d\n", b.count, file), 80)
}

// imagemode runs the builder; repository 0 is the current one.
func (b *bench) imagemode(base, text string, repository int) (measurement, error) {
	if repository == 0 {
		repository = b.repository
	}
	directory := b.path("request")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return measurement{}, err
	}
	name := fmt.Sprintf("build-%d", b.count)
	sum := sha256.Sum256([]byte(name))
	encoded, err := request.Encode(&request.Request{
		Name: name, InputsHash: hex.EncodeToString(sum[:]), BaseImage: strings.Replace(base, b.host, b.counted, 1), Architecture: "amd64",
		Containerfile: text, PushSpec: fmt.Sprintf("%s/os/worker-%d:%s", b.counted, repository, name), Ignition: b.ignition(),
	})
	if err != nil {
		return measurement{}, err
	}
	file := filepath.Join(directory, "request.json.gz")
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		return measurement{}, err
	}
	before := b.counter.sent()
	m, err := timed(exec.Command(b.builder, "build", "--request", file, "--storage", b.path("storage")))
	m.sent = b.counter.sent() - before
	return m, err
}

// ignition is a config of small files; one says that the registry has no TLS.
func (b *bench) ignition() json.RawMessage {
	list := []any{file("/etc/containers/registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", b.counted))}
	for i := range files {
		list = append(list, file(fmt.Sprintf("/etc/bench/%d", i), b.content(i)))
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]string{"version": "3.4.0"}, "storage": map[string]any{"files": list}})
	if err != nil {
		panic(err) // maps of strings only
	}
	return raw
}

func file(path, content string) any {
	escaped := strings.NewReplacer("%", "%25", "\n", "%0A", " ", "%20", "[", "%5B", "]", "%5D", "\"", "%22").Replace(content)
	return map[string]any{"path": path, "mode": 0o644, "contents": map[string]string{"source": "data:," + escaped}}
}

// buildahBuild builds the same files, and text, with an empty store.
func (b *bench) buildahBuild(base, text string) (measurement, error) {
	contents := b.path("context")
	if err := os.MkdirAll(filepath.Join(contents, "bench"), 0o755); err != nil {
		return measurement{}, err
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(contents, "bench", fmt.Sprint(i)), []byte(b.content(i)), 0o644); err != nil {
			return measurement{}, err
		}
	}
	if text == "" {
		text = "FROM base\n"
	}
	text = strings.Replace(text, "FROM base", "FROM "+strings.Replace(base, b.host, b.counted, 1), 1) + "COPY bench /etc/bench/\n"
	if err := os.WriteFile(filepath.Join(contents, "Containerfile"), []byte(text), 0o644); err != nil {
		return measurement{}, err
	}
	policy := filepath.Join(b.work, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`), 0o644); err != nil {
		return measurement{}, err
	}
	store := b.path("store")
	name := fmt.Sprintf("localhost/bench-%d", b.count)
	call := func(arguments ...string) *exec.Cmd {
		return exec.Command(b.buildah, append([]string{"--root", store, "--runroot", store + "-run", "--storage-driver", "overlay"}, arguments...)...)
	}
	before := b.counter.sent()
	m, err := timed(
		call("bud", "--signature-policy", policy, "--tls-verify=false", "--isolation", "chroot", "--network", "host", "-t", name, "-f", filepath.Join(contents, "Containerfile"), contents),
		call("push", "--signature-policy", policy, "--tls-verify=false", name, fmt.Sprintf("docker://%s/os/buildah-%d:a", b.counted, b.count)))
	m.sent = b.counter.sent() - before
	return m, err
}
