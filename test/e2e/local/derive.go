package local

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// derivedRepository is where images go that were made by hand.
const derivedRepository = Registry + "/os/by-hand"

// Derive pushes a copy of the first OS image with one more layer, which nothing
// can compress: the files, by path, and a file of random bytes in /usr/share. No
// two calls give the same image. It returns the image by digest.
func Derive(ctx context.Context, files map[string]string, randomBytes int64) (string, error) {
	base, err := Base()
	if err != nil {
		return "", err
	}
	reference, err := name.NewDigest(base)
	if err != nil {
		return "", err
	}
	options, err := registryOptions(ctx)
	if err != nil {
		return "", err
	}
	image, err := remote.Image(reference, options...)
	if err != nil {
		return "", fmt.Errorf("OS image %s: %w", base, err)
	}
	layer, err := randomLayer(files, randomBytes)
	if err != nil {
		return "", err
	}
	derived, err := mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCIUncompressedLayer})
	if err != nil {
		return "", err
	}
	return push(derived, options)
}

func push(image v1.Image, options []remote.Option) (string, error) {
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(derivedRepository + ":" + digest.Hex[:12]) // untagged images may be collected
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, image, options...); err != nil {
		return "", fmt.Errorf("push %s: %w", tag, err)
	}
	return tag.Context().Digest(digest.String()).String(), nil
}

// randomLayer is a layer without compression.
func randomLayer(files map[string]string, randomBytes int64) (v1.Layer, error) {
	var content bytes.Buffer
	content.Grow(int(randomBytes) + 1<<20)
	archive := tar.NewWriter(&content)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		text := files[path]
		header := &tar.Header{Name: path[1:], Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(archive, text); err != nil {
			return nil, err
		}
	}
	size := randomBytes + 16 // never without any
	header := &tar.Header{Name: "usr/share/imagemode-random", Mode: 0o644, Size: size, Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(archive, rand.Reader, size); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(content.Bytes(), types.OCIUncompressedLayer), nil
}

// Base is the OS image of the first stream by name, by digest.
func Base() (string, error) {
	streams, err := Streams()
	if err != nil {
		return "", err
	}
	names := slices.Sorted(maps.Keys(streams))
	if len(names) == 0 {
		return "", fmt.Errorf("%s names no OS image", streamsFile)
	}
	var stream struct {
		OSImage string `json:"osImage"`
	}
	if err := yaml.Unmarshal([]byte(streams[names[0]]), &stream); err != nil {
		return "", err
	}
	return stream.OSImage, nil
}

// registryOptions reach the registry as the user who may push.
func registryOptions(ctx context.Context) ([]remote.Option, error) {
	content, err := DockerConfig("push")
	if err != nil {
		return nil, err
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return nil, err
	}
	credentials, isThere := config.Auths[Registry]
	if !isThere {
		return nil, errors.New("the credentials of user push do not name the registry " + Registry)
	}
	authorities, err := os.ReadFile(CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuth(authn.FromConfig(credentials)), remote.WithTransport(transport)}, nil
}
