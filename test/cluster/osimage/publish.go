package osimage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
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

// publisher pushes to one registry.
type publisher struct {
	registry  string
	transport http.RoundTripper
	keychain  authn.Keychain
}

func newPublisher(options Options) (*publisher, error) {
	publisher := &publisher{registry: options.Registry, transport: remote.DefaultTransport, keychain: authFile(options.AuthFile)}
	if options.CAFile == "" {
		return publisher, nil
	}
	authorities, err := os.ReadFile(options.CAFile)
	if err != nil {
		return nil, fmt.Errorf("the registry's CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("the registry's CA: %s holds no PEM certificate", options.CAFile)
	}
	publisher.transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return publisher, nil
}

func (p *publisher) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(p.transport), remote.WithAuthFromKeychain(p.keychain)}
}

// stillHas reads the record of an earlier push and asks the registry for both
// images. Any doubt is answered with no: the images are then pushed again.
func (p *publisher) stillHas(ctx context.Context, record string) (Stream, bool) {
	var stream Stream
	content, err := os.ReadFile(record)
	if err != nil || json.Unmarshal(content, &stream) != nil {
		return Stream{}, false
	}
	for _, image := range []string{stream.Image, stream.ExtensionsImage} {
		reference, err := name.NewDigest(image)
		if err != nil || reference.RegistryStr() != p.registry {
			return Stream{}, false
		}
		if _, err := remote.Head(reference, p.options(ctx)...); err != nil {
			return Stream{}, false
		}
	}
	return stream, true
}

// publish assembles and pushes both images of a stream and writes the record.
func (p *publisher) publish(ctx context.Context, recipe recipe, layers layerFiles, record string) (Stream, error) {
	stream := Stream{Name: recipe.Name}
	var err error
	stream.Image, err = p.push(ctx, "os/"+recipe.Name, recipe.labels("containers.bootc", "1", "ostree.bootable", "true", "dev.imagemode.runtimes", recipe.runtimesLabel()),
		layers.packages, layers.software, layers.runtimes)
	if err != nil {
		return stream, err
	}
	stream.ExtensionsImage, err = p.push(ctx, "os/"+recipe.Name+"-extensions", recipe.labels("io.openshift.os.extensions", "true"), layers.extensions)
	if err != nil {
		return stream, err
	}
	content, err := json.MarshalIndent(stream, "", "  ")
	if err != nil {
		return stream, err
	}
	return stream, writeAtomically(record, func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	})
}

// labels are those every image of a stream has, and the given pairs.
func (r recipe) labels(pairs ...string) map[string]string {
	labels := map[string]string{
		"io.openshift.os.streamclass":      r.Name,
		"org.opencontainers.image.version": r.Version,
	}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return labels
}

// push assembles an image from layer files, tags it latest, and returns its
// reference by digest.
func (p *publisher) push(ctx context.Context, repository string, labels map[string]string, layerPaths ...string) (string, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, path := range layerPaths {
		layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return "", fmt.Errorf("layer %s: %w", path, err)
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return "", err
		}
	}
	image, err := mutate.Config(image, v1.Config{Labels: labels})
	if err != nil {
		return "", err
	}
	if image, err = setPlatform(image); err != nil {
		return "", err
	}
	tag, err := name.NewTag(p.registry + "/" + repository + ":latest")
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, image, p.options(ctx)...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	return tag.Context().Digest(digest.String()).String(), nil
}

// architecture is what the binaries and packages are for.
const architecture = runtime.GOARCH

// setPlatform completes the configuration with what every image here shares.
func setPlatform(image v1.Image) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = architecture, "linux"
	config.Created = v1.Time{Time: time.Unix(sourceDate, 0).UTC()}
	return mutate.ConfigFile(image, config)
}

// authFile is a keychain that reads one docker config.json, and not the user's.
type authFile string

// Resolve returns the credentials for a registry, anonymous where there are none.
func (f authFile) Resolve(target authn.Resource) (authn.Authenticator, error) {
	if f == "" {
		return authn.Anonymous, nil
	}
	content, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("credentials of the registry: %w", err)
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return nil, fmt.Errorf("credentials of the registry: %s: %w", string(f), err)
	}
	entry, ok := config.Auths[target.RegistryStr()]
	if !ok {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(entry), nil
}
