package streams

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/vincent-petithory/dataurl"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// maxRuntimeFile bounds a configuration file of the runtime, unpacked, in bytes.
const maxRuntimeFile = 1 << 20

// RuntimeChoice is a default container runtime, and what makes it so.
type RuntimeChoice struct {
	// Runtime is its name, such as runc; empty: nothing chooses one, and the OS
	// image's own default holds.
	Runtime string
	// By is the file or object that chose it, for the user: ByFile and a path, or an
	// object's kind and name.
	By string
}

// ByFile begins RuntimeChoice.By where a file chose the runtime.
const ByFile = "file "

// RuntimeFileError is a configuration file of a container engine that cannot be read.
type RuntimeFileError struct {
	Path string
	Err  error
}

func (e *RuntimeFileError) Error() string { return ByFile + e.Path + ": " + e.Err.Error() }
func (e *RuntimeFileError) Unwrap() error { return e.Err }

// DefaultRuntime returns the default container runtime that an Ignition config
// sets, in any of the configuration files of CRI-O or, where those say nothing,
// of containerd. A file that does not decode or parse is an error that names it:
// nobody knows then what the nodes would run.
func DefaultRuntime(config types.Config) (RuntimeChoice, error) {
	for _, engine := range engines {
		choice, err := engine.choice(config)
		if err != nil || choice.Runtime != "" {
			return choice, err
		}
	}
	return RuntimeChoice{}, nil
}

// textOf gives a file's contents with what is appended to it.
func textOf(file types.File) ([]byte, error) {
	var text []byte
	for _, resource := range append([]types.Resource{file.Contents}, file.Append...) {
		data, err := unpack(resource)
		if err != nil {
			return nil, err
		}
		text = append(text, data...)
		if len(text) > maxRuntimeFile {
			return nil, fmt.Errorf("it has more than %d bytes", maxRuntimeFile)
		}
	}
	return text, nil
}

func unpack(resource types.Resource) ([]byte, error) {
	if resource.Source == nil || *resource.Source == "" {
		return nil, nil
	}
	decoded, err := dataurl.DecodeString(*resource.Source)
	if err != nil {
		return nil, fmt.Errorf("contents.source is no data: URL: %w", err)
	}
	if resource.Compression == nil || *resource.Compression == "" {
		return decoded.Data, nil
	}
	if *resource.Compression != "gzip" {
		return nil, fmt.Errorf("contents.compression %q is not known", *resource.Compression)
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(decoded.Data))
	if err != nil {
		return nil, fmt.Errorf("contents.compression: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(unpacker, maxRuntimeFile+1))
	if err != nil {
		return nil, fmt.Errorf("contents.compression: %w", err)
	}
	return data, nil
}

// FromContainerRuntimeConfig returns the default runtime of a
// ContainerRuntimeConfig, as JSON or YAML. Another kind of object chooses none.
func FromContainerRuntimeConfig(raw []byte) (RuntimeChoice, error) {
	var object mcfgv1.ContainerRuntimeConfig
	if err := yaml.Unmarshal(raw, &object); err != nil {
		return RuntimeChoice{}, fmt.Errorf("it is no ContainerRuntimeConfig: %s", oneLine(err))
	}
	if object.Kind != "ContainerRuntimeConfig" || object.Spec.ContainerRuntimeConfig == nil {
		return RuntimeChoice{}, nil
	}
	return RuntimeChoice{
		Runtime: string(object.Spec.ContainerRuntimeConfig.DefaultRuntime),
		By:      "ContainerRuntimeConfig " + object.Name,
	}, nil
}

// generatedDropIn is the drop-in that a ContainerRuntimeConfig becomes on a node.
const generatedDropIn = "01-ctrcfg-defaultRuntime"

// EffectiveRuntime is DefaultRuntime where a ContainerRuntimeConfig has a say,
// too: it stands among the drop-ins by the name it has on a node.
func EffectiveRuntime(config types.Config, generated RuntimeChoice) (RuntimeChoice, error) {
	if generated.Runtime == "" {
		return DefaultRuntime(config)
	}
	source := dataurl.EncodeBytes(fmt.Appendf(nil, "[crio.runtime]\ndefault_runtime = %q\n", generated.Runtime))
	file := types.File{Node: types.Node{Path: crio.dropIns + "/" + generatedDropIn}}
	file.Contents.Source = &source
	config.Storage.Files = append(slices.Clone(config.Storage.Files), file)
	choice, err := DefaultRuntime(config)
	if choice.By == ByFile+file.Path {
		choice.By = generated.By
	}
	return choice, err
}
