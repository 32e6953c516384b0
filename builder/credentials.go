package builder

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// credentials of a build live in the memory of this process only: as files
// without a name, which the libraries open through /proc/self/fd. A program in
// a RUN has neither the files nor, with its fewer capabilities, the right to
// look into this process.
type credentials struct {
	// pull and push as they were given, and both in one for the user's text,
	// which reads from base images and from the repository that is pushed to.
	pull, push, both *memoryFile
}

// maxAuthSize bounds a credentials file in bytes, as Kubernetes bounds a Secret.
const maxAuthSize = 1 << 20

// readCredentials takes the credentials of a build into memory and, unless they
// are to be kept, removes the files.
func readCredentials(options Options, repository string) (*credentials, error) {
	c := &credentials{}
	var err error
	if c.pull, err = takeCredentials(options, request.FilePullAuth); err != nil {
		return nil, err
	}
	if c.push, err = takeCredentials(options, request.FilePushAuth); err != nil {
		return nil, err
	}
	combined, err := combine(c.pull, c.push, repository)
	if err != nil {
		return nil, err
	}
	c.both, err = newMemoryFile("credentials", combined)
	return c, err
}

func (c *credentials) close() {
	for _, file := range []*memoryFile{c.pull, c.push, c.both} {
		file.close()
	}
}

// takeCredentials takes one of the files of builder/request. Where it is
// missing, a workstation has those of its user; a builder pod has none: a
// registry may need none.
func takeCredentials(options Options, name string) (*memoryFile, error) {
	if path := options.file(name); path != "" {
		taken, err := takeFile(path, options.KeepCredentials)
		if !errors.Is(err, fs.ErrNotExist) {
			return taken, err
		}
	}
	if options.Request == "" {
		return newMemoryFile(name, []byte("{}"))
	}
	content, err := hostCredentials(options.AuthFile)
	if err != nil {
		return nil, err
	}
	return newMemoryFile(name, content)
}

// hostCredentials gives all credentials of the user, those that a credential
// helper keeps too, in docker config.json format.
func hostCredentials(authFile string) ([]byte, error) {
	all, err := config.GetAllCredentials(&types.SystemContext{AuthFilePath: authFile})
	if err != nil {
		return nil, fmt.Errorf("the credentials of this user: %w", err)
	}
	entries := map[string]json.RawMessage{}
	for where, auth := range all {
		if entries[where], err = encodeAuth(auth); err != nil {
			return nil, err
		}
	}
	return json.Marshal(authsFile{Auths: entries})
}

// takeFile reads a file into memory and removes it.
func takeFile(path string, keep bool) (*memoryFile, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxAuthSize+1))
	if err != nil {
		return nil, fmt.Errorf("credentials %s: %w", path, err)
	}
	if len(raw) > maxAuthSize {
		return nil, fmt.Errorf("credentials %s: more than %d bytes", path, maxAuthSize)
	}
	if !keep {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("credentials must be out of reach before the Containerfile runs, and %w; "+
				"put a copy there (imagemode-builder copy-credentials)", err)
		}
	}
	return newMemoryFile(filepath.Base(path), raw)
}

// authsFile is the part of docker's config.json that is looked at.
type authsFile struct {
	Auths map[string]json.RawMessage `json:"auths,omitempty"`
}

func encodeAuth(auth types.DockerAuthConfig) (json.RawMessage, error) {
	return json.Marshal(map[string]string{
		"auth":          base64.StdEncoding.EncodeToString([]byte(auth.Username + ":" + auth.Password)),
		"identitytoken": auth.IdentityToken,
	})
}

// combine adds the push credentials to the pull credentials. For the
// repository itself those for pushing count; for all else, those for pulling.
func combine(pull, push *memoryFile, repository string) ([]byte, error) {
	all, err := readAuths(pull)
	if err != nil {
		return nil, err
	}
	pushing, err := readAuths(push)
	if err != nil {
		return nil, err
	}
	if all.Auths == nil {
		all.Auths = map[string]json.RawMessage{}
	}
	for where, auth := range pushing.Auths {
		if _, exists := all.Auths[where]; !exists {
			all.Auths[where] = auth
		}
	}
	if registry.IsLayout(repository) {
		return json.Marshal(all)
	}
	entry, err := entryFor(push, repository)
	if err != nil {
		return nil, err
	}
	if entry != nil {
		all.Auths[repository] = entry
	}
	return json.Marshal(all)
}

func readAuths(file *memoryFile) (authsFile, error) {
	var found authsFile
	raw, err := os.ReadFile(file.path())
	if err != nil {
		return found, fmt.Errorf("credentials: %w", err)
	}
	if err := json.Unmarshal(raw, &found); err != nil {
		// The decoder's error may quote the text.
		return found, fmt.Errorf("credentials %s are not in docker config.json format", file.name)
	}
	return found, nil
}

// entryFor finds the credentials that file has for a repository; nil: none.
func entryFor(file *memoryFile, repository string) (json.RawMessage, error) {
	named, err := reference.ParseNamed(repository)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", repository, err)
	}
	auth, err := config.GetCredentialsForRef(&types.SystemContext{AuthFilePath: file.path()}, named)
	if err != nil {
		return nil, fmt.Errorf("credentials for %s: %w", repository, err)
	}
	if auth == (types.DockerAuthConfig{}) {
		return nil, nil
	}
	return encodeAuth(auth)
}

// memoryFile is a file without a name, closed to programs this one starts.
type memoryFile struct {
	name string
	file *os.File
}

func newMemoryFile(name string, content []byte) (*memoryFile, error) {
	descriptor, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	file := os.NewFile(uintptr(descriptor), name)
	if _, err := file.Write(content); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return &memoryFile{name: name, file: file}, nil
}

// path opens the file anew at each use, from its start.
func (m *memoryFile) path() string { return fmt.Sprintf("/proc/self/fd/%d", m.file.Fd()) }

func (m *memoryFile) close() {
	if m != nil {
		_ = m.file.Close() // memory: nothing can be lost
	}
}
