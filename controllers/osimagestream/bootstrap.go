package osimagestream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// bootstrapFile is the name of the manifest that Bootstrap writes.
const bootstrapFile = "99_osimagestream.yaml"

// BootstrapResult is what a bootstrap made.
type BootstrapResult struct {
	// File is the path of the manifest with OSImageStream cluster.
	File string
	// Problems with tags of the payload that were left out.
	Problems []streams.Problem
}

// Bootstrap reads the manifests in a directory and writes OSImageStream cluster
// with its status to another. It takes the payload's ImageStream (another
// ImageStream is passed over), OSImageStream cluster in any version that is
// known, and ControllerConfig; ControllerConfig's defaultStream comes before
// that of the OSImageStream. No connection is opened. The error names the file,
// and nothing is written then.
func Bootstrap(manifests, out string) (BootstrapResult, error) {
	known, installed, err := readManifests(manifests)
	if err != nil {
		return BootstrapResult{}, err
	}
	source, err := streams.FromAtHand(sourceAtHand, known)
	if err != nil {
		return BootstrapResult{}, err
	}
	merged := streams.Merge(source)
	chosen := streams.ResolveDefault(merged.Streams, streams.Candidates{Spec: known.Requested, Version: streams.BuiltinDefault(installed)})
	object := &mcfgv1.OSImageStream{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "OSImageStream"},
		ObjectMeta: metav1.ObjectMeta{Name: machineconfiguration.OSImageStreamName},
		Spec:       mcfgv1.OSImageStreamSpec{DefaultStream: chosen.Name},
		Status:     mcfgv1.OSImageStreamStatus{AvailableStreams: merged.Streams, DefaultStream: chosen.Name},
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return BootstrapResult{}, fmt.Errorf("write OSImageStream: %w", err)
	}
	result := BootstrapResult{File: filepath.Join(out, bootstrapFile), Problems: merged.Problems}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return BootstrapResult{}, fmt.Errorf("write OSImageStream: %w", err)
	}
	return result, os.WriteFile(result.File, text, 0o644)
}

// manifestSuffixes are the files of a directory that are read.
var manifestSuffixes = []string{".yaml", ".yml", ".json"}

// readManifests reads what is known, and the version of the release.
func readManifests(directory string) (streams.AtHand, string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return streams.AtHand{}, "", fmt.Errorf("read manifests: %w", err)
	}
	var collected collection
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains(manifestSuffixes, filepath.Ext(entry.Name())) {
			continue
		}
		if err := collected.addFile(filepath.Join(directory, entry.Name())); err != nil {
			return streams.AtHand{}, "", fmt.Errorf("manifest %s: %w", entry.Name(), err)
		}
	}
	return collected.known()
}

// collection is what the manifests say.
type collection struct {
	payload  *streams.Payload
	config   *controllerConfig
	manifest string
}

// known joins it.
func (c collection) known() (streams.AtHand, string, error) {
	known := streams.AtHand{Payload: c.payload, Requested: c.manifest}
	if c.config != nil {
		known.Pair = c.config.pair()
		if c.config.Spec.DefaultStream != "" {
			known.Requested = c.config.Spec.DefaultStream
		}
	}
	if c.payload == nil {
		return known, "", nil
	}
	return known, c.payload.Version, nil
}

// addFile reads a file with one or more documents. Documents of other kinds are
// passed over.
func (c *collection) addFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(io.LimitReader(file, 2*streams.MaxPayloadSize)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.add(document); err != nil {
			return err
		}
	}
}

func (c *collection) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return fmt.Errorf("it is no YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	switch kind.Kind {
	case "OSImageStream":
		name, err := streams.DefaultFromManifest(document)
		if err != nil || name == "" {
			return err
		}
		if c.manifest != "" && c.manifest != name {
			return fmt.Errorf("it asks for the default stream %q, and another OSImageStream for %q; leave one of them", name, c.manifest)
		}
		c.manifest = name
		return nil
	case "ImageStream":
		payload, err := streams.ParsePayload(document)
		if errors.Is(err, streams.ErrNotPayload) {
			return nil
		}
		if err == nil && c.payload != nil && c.payload.Version != payload.Version {
			return fmt.Errorf("it is the payload of release %s, and there is one of %s, too; leave one of them", payload.Version, c.payload.Version)
		}
		c.payload = payload
		return err
	case "ControllerConfig":
		c.config = &controllerConfig{}
		return yaml.Unmarshal(document, c.config)
	}
	return nil
}
