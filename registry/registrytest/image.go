package registrytest

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ImageSpec describes an image for a test.
type ImageSpec struct {
	// Files by absolute path; a path that ends with / is a directory. Files are
	// executable.
	Files map[string]string
	// Entries follow the files as they are, without content: what a tar could hold
	// that no one should put into it.
	Entries []*tar.Header
	// Labels of the config.
	Labels map[string]string
	// Architecture, amd64 if empty.
	Architecture string
	// Docker makes it a docker schema 2 image; else it is OCI.
	Docker bool
	// Layers is the number of layers, one if 0; the files are in the first.
	Layers int
}

// Bootable are the labels of an OS image.
func Bootable() map[string]string {
	return map[string]string{"containers.bootc": "1", "org.opencontainers.image.version": "12.1"}
}

// Push makes an image and gives host/repository@digest. Faults and users of
// the registry are passed by.
func (r *Registry) Push(t testing.TB, repository string, spec ImageSpec) string {
	t.Helper()
	image := newImage(t, spec)
	tag, err := name.NewTag(r.Host + "/" + repository + ":base")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image, r.remoteOptions()...); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return r.Host + "/" + repository + "@" + digest.String()
}

func (r *Registry) remoteOptions() []remote.Option {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // a test's own server
	options := []remote.Option{remote.WithTransport(transport)}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for user, password := range r.users {
		return append(options, remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	}
	return options
}

func newImage(t testing.TB, spec ImageSpec) v1.Image {
	t.Helper()
	image, mediaType := empty.Image, types.OCILayer
	if spec.Docker {
		mediaType = types.DockerLayer
	} else {
		image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	for i := range max(spec.Layers, 1) {
		files, entries := spec.Files, spec.Entries
		if i > 0 {
			files, entries = map[string]string{"/layer" + string(rune('a'+i)): ""}, nil
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(archive(t, files, entries))), nil
		}, tarball.WithMediaType(mediaType))
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			t.Fatal(err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", spec.Architecture
	if spec.Architecture == "" {
		config.Architecture = "amd64"
	}
	config.Created = v1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	config.Config.Labels = spec.Labels
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

func archive(t testing.TB, files map[string]string, entries []*tar.Header) []byte {
	t.Helper()
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, name := range names {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Mode: 0o755, Size: int64(len(files[name]))}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(writer, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	for _, entry := range entries {
		if err := writer.WriteHeader(entry); err != nil {
			t.Fatal(err)
		}
		if entry.Size > 0 {
			return buffer.Bytes() // it is not there
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}
