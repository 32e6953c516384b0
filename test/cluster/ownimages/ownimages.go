// Package ownimages builds imagemode's programs from the checkout and pushes
// each as an image to the cluster's registry, where a release would have done
// so long before.
package ownimages

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/test/cluster/compile"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/minimalimage"
	"github.com/imagemode/imagemode/test/cluster/registry"
	"github.com/imagemode/imagemode/test/cluster/source"
)

// program is one of imagemode's programs.
type program struct {
	// image is the last part of the repository, and the key in images.yaml.
	image string
	// command is the folder below cmd, and the program's name.
	command string
	ldflags string
	cgo     bool
	// unit is the file in the checkout with the unit of a program that can be laid
	// on OS images as a service; empty: it cannot.
	unit string
}

// programs are all that are deployed. The builder needs cgo, for it re-executes
// itself in new namespaces before Go's runtime starts; statically linked, so
// that its image needs no C library.
var programs = []program{
	{image: "controller", command: "imagemode-controller"},
	{image: "builder", command: "imagemode-builder", cgo: true, ldflags: `-extldflags "-static"`},
	{image: "agent", command: "imagemode-agent", unit: "config/agent/service/imagemode-agent.service"},
}

// Options say what to build and how to call it.
type Options struct {
	// Source is the checkout.
	Source string
	// BuildDir receives the compiled programs.
	BuildDir string
	// Tag is given to all images.
	Tag string
	Log func(format string, args ...any)
}

// Published is one pushed image.
type Published struct {
	// Image is its key, as in controller.
	Image string
	// Tagged is registry/repository:tag, Digested registry/repository@sha256:….
	Tagged, Digested string
}

// Publish compiles and pushes the images and writes their digests to
// layout.ImagesFile. Errors name the program.
func Publish(ctx context.Context, options Options) ([]Published, error) {
	push, err := newPusher()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.BuildDir, 0o755); err != nil {
		return nil, err
	}
	var published []Published
	for _, program := range programs {
		began := time.Now()
		if err := program.compile(ctx, options); err != nil {
			return nil, err
		}
		compiled := time.Since(began)
		one, err := program.push(ctx, options, push)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", program.image, err)
		}
		options.Log("%s (compiled in %s)", one.Digested, compiled.Round(100*time.Millisecond))
		published = append(published, one)
	}
	return published, write(published)
}

func (p program) compile(ctx context.Context, options Options) error {
	options.Log("%s: compiling", p.command)
	return compile.Build(ctx, compile.Program{
		Dir: options.Source, Package: "./cmd/" + p.command, Output: filepath.Join(options.BuildDir, p.command),
		Tags: source.Tags, Ldflags: p.ldflags, Cgo: p.cgo,
	})
}

func (p program) push(ctx context.Context, options Options, push []remote.Option) (Published, error) {
	of := minimalimage.Program{File: filepath.Join(options.BuildDir, p.command), Name: p.command, Architecture: runtime.GOARCH}
	if p.unit != "" {
		unit, err := os.ReadFile(filepath.Join(options.Source, p.unit))
		if err != nil {
			return Published{}, err
		}
		of.Unit = string(unit)
	}
	image, err := minimalimage.New(of)
	if err != nil {
		return Published{}, err
	}
	tag, err := name.NewTag(fmt.Sprintf("%s/imagemode/%s:%s", layout.Registry(), p.image, options.Tag))
	if err != nil {
		return Published{}, err
	}
	if err := remote.Write(tag, image, append(push, remote.WithContext(ctx))...); err != nil {
		return Published{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return Published{}, err
	}
	return Published{Image: p.image, Tagged: tag.Name(), Digested: tag.Context().Digest(digest.String()).Name()}, nil
}

// newPusher returns how to reach the cluster's registry as the user who pushes.
func newPusher() ([]remote.Option, error) {
	user, password, err := registry.Credentials(registry.Push)
	if err != nil {
		return nil, fmt.Errorf("the local cluster is not up (%w): run up", err)
	}
	authority, err := os.ReadFile(layout.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return []remote.Option{
		remote.WithAuth(&authn.Basic{Username: user, Password: password}),
		remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}),
	}, nil
}

// write keeps the references by digest: image key to reference, as YAML.
func write(published []Published) error {
	references := map[string]string{}
	for _, one := range published {
		references[one.Image] = one.Digested
	}
	content, err := yaml.Marshal(references)
	if err != nil {
		return err
	}
	return os.WriteFile(layout.ImagesFile, content, 0o644)
}
