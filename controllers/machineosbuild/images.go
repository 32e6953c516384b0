package machineosbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// revisionLabel of an image holds the image inputs hash.
const revisionLabel = "org.opencontainers.image.revision"

// readTimeout ends a look-up in a registry that does not answer. A reconcile
// waits for it, and other MachineOSConfigs wait for the worker.
const readTimeout = 15 * time.Second

// ImageReader looks images up in registries.
type ImageReader interface {
	// Read reads manifest and config of an image with the given credentials, a
	// docker config.json, and nothing else; trustBundle is PEM and may be empty.
	// Whoever reads must not use credentials of its own. The error is a
	// *registry.Error where the registry, or the way to it, is to blame.
	Read(ctx context.Context, image string, credentials []byte, trustBundle string) (ImageFacts, error)
}

// ImageFacts is what is known of an image that could be read.
type ImageFacts struct {
	// Digest of the manifest, sha256:<64 hex>.
	Digest string
	// InputsHash is the image inputs hash in the image's label, 64 hex.
	InputsHash string
}

// registryReader asks the real registries.
type registryReader struct{ architecture string }

// Read writes credentials and certificates to files, since that is how they
// are passed on, and deletes them before it returns.
func (r registryReader) Read(ctx context.Context, image string, credentials []byte, trustBundle string) (ImageFacts, error) {
	directory, err := os.MkdirTemp("", "read-image-")
	if err != nil {
		return ImageFacts{}, fmt.Errorf("read image %s: %w", image, err)
	}
	defer os.RemoveAll(directory)
	access := registry.Access{
		AuthFile:     filepath.Join(directory, "config.json"),
		TrustBundle:  filepath.Join(directory, "ca-bundle.crt"),
		Architecture: r.architecture,
	}
	err = errors.Join(
		os.WriteFile(access.AuthFile, credentials, 0o600),
		os.WriteFile(access.TrustBundle, []byte(trustBundle), 0o600),
	)
	if err != nil {
		return ImageFacts{}, fmt.Errorf("read image %s: %w", image, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := registry.Inspect(ctx, access, image)
	if err != nil {
		return ImageFacts{}, err
	}
	return ImageFacts{Digest: found.Digest.String(), InputsHash: found.Parsed.Config.Labels[revisionLabel]}, nil
}

// readability says whether the nodes can pull an image. It has three answers: a
// registry that is down must not look like one that refuses.
type readability string

const (
	readable   readability = "readable"
	unreadable readability = "unreadable"
	// unknown keeps the answer given before.
	unknown readability = "unknown"
	// unchecked: it is not known what the nodes pull with.
	unchecked readability = "unchecked"
)

// pullCheck is the answer for one image.
type pullCheck struct {
	readability readability
	// message says why, for unreadable and unknown.
	message string
}

// pullChecker asks whether nodes can pull an image, and remembers that they
// can: an image by digest does not change, and one answer is one request less
// on every reconcile.
type pullChecker struct {
	images ImageReader
	mutex  sync.Mutex
	// passed holds image and credentials of the look-ups that succeeded, by name
	// of the MachineOSConfig: one each.
	passed map[string]string
}

// check asks for the image of a MachineOSConfig with what its nodes pull with.
func (c *pullChecker) check(ctx context.Context, s *scope, image string) pullCheck {
	ref := s.nodePullSecretRef()
	if ref.name == "" {
		return pullCheck{readability: unchecked}
	}
	credentials, err := s.authsOf(ref)
	if err != nil {
		return pullCheck{unreadable, err.Error()}
	}
	config, err := credentials.configJSON()
	if err != nil {
		return pullCheck{unreadable, err.Error()}
	}
	key := hashOf("pull check", []string{image, string(config), s.trustBundle})
	if c.hasPassed(s.config.Name, key) {
		return pullCheck{readability: readable}
	}
	if _, err = c.images.Read(ctx, image, config, s.trustBundle); err != nil {
		return judge(err, ref)
	}
	c.remember(s.config.Name, key)
	return pullCheck{readability: readable}
}

// judge tells a refusal from an outage.
func judge(err error, ref secretRef) pullCheck {
	var failure *registry.Error
	if errors.As(err, &failure) && (failure.Class == request.Authentication || failure.Class == request.Image) {
		return pullCheck{unreadable, fmt.Sprintf("with secret %q (%s): %v", ref.name, ref.source, err)}
	}
	return pullCheck{unknown, localAddress.ReplaceAllString(err.Error(), "")}
}

// localAddress is this side of a connection in the text of a network error. Its
// port is another one each time: a condition with it would never be at rest.
var localAddress = regexp.MustCompile(`[0-9a-fA-F.:\[\]]+->`)

func (c *pullChecker) hasPassed(config, key string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.passed[config] == key
}

func (c *pullChecker) remember(config, key string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.passed == nil {
		c.passed = map[string]string{}
	}
	c.passed[config] = key
}

// pushedImage looks for the image that a build pushed under its tag. problem
// says why there is none; err asks for another try.
func pushedImage(ctx context.Context, images ImageReader, owner *scope, tag, inputsHash string) (digest, problem string, err error) {
	credentials, err := owner.authsOf(owner.pushSecretRef())
	if err != nil {
		return "", err.Error(), nil
	}
	config, err := credentials.configJSON()
	if err != nil {
		return "", err.Error(), nil
	}
	found, err := images.Read(ctx, tag, config, owner.trustBundle)
	if err != nil {
		if check := judge(err, owner.pushSecretRef()); check.readability == unreadable {
			return "", "its image cannot be read: " + check.message, nil
		}
		return "", "", err
	}
	if found.InputsHash != inputsHash {
		return "", fmt.Sprintf("the image %s is not the one that was asked for (its label %s)", tag, revisionLabel), nil
	}
	return found.Digest, "", nil
}
