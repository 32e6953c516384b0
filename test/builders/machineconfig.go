package builders

import (
	"encoding/json"
	"fmt"

	"github.com/vincent-petithory/dataurl"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// ignition is the part of an Ignition config, spec 3.4, that the options write.
type ignition struct {
	Ignition struct {
		Version string `json:"version"`
	} `json:"ignition"`
	Storage struct {
		Files []file `json:"files,omitempty"`
	} `json:"storage,omitzero"`
	Systemd struct {
		Units []unit `json:"units,omitempty"`
	} `json:"systemd,omitzero"`
}

type file struct {
	Path      string       `json:"path"`
	Mode      int          `json:"mode"`
	Overwrite bool         `json:"overwrite"`
	Contents  fileContents `json:"contents"`
}

type fileContents struct {
	Source string `json:"source"`
}

type unit struct {
	Name     string `json:"name"`
	Enabled  bool   `json:"enabled"`
	Contents string `json:"contents"`
}

// MachineConfigOption sets a part of a MachineConfig.
type MachineConfigOption func(*mcfgv1.MachineConfig, *ignition)

// MachineConfig returns a MachineConfig for the pools of a role. Without
// options its Ignition config is empty.
func MachineConfig(name, role string, options ...MachineConfigOption) *mcfgv1.MachineConfig {
	config := &mcfgv1.MachineConfig{
		TypeMeta: typeMeta("MachineConfig"),
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{RoleLabel: role},
		},
	}
	var content ignition
	content.Ignition.Version = "3.4.0"
	for _, option := range options {
		option(config, &content)
	}
	if config.Spec.Config.Raw == nil {
		config.Spec.Config = runtime.RawExtension{Raw: marshal(content)}
	}
	return config
}

// File is a regular file, mode 0644, that replaces one of the image.
func File(path, text string) MachineConfigOption {
	return ModeFile(path, 0o644, text)
}

// ModeFile is a regular file with a mode, such as 0o755 for a script.
func ModeFile(path string, mode int, text string) MachineConfigOption {
	return func(_ *mcfgv1.MachineConfig, content *ignition) {
		content.Storage.Files = append(content.Storage.Files, file{
			Path: path, Mode: mode, Overwrite: true,
			Contents: fileContents{Source: dataurl.EncodeBytes([]byte(text))},
		})
	}
}

// Unit is a systemd unit that is enabled.
func Unit(name, text string) MachineConfigOption {
	return func(_ *mcfgv1.MachineConfig, content *ignition) {
		content.Systemd.Units = append(content.Systemd.Units, unit{Name: name, Enabled: true, Contents: text})
	}
}

// KernelArguments are appended to the host's command line.
func KernelArguments(arguments ...string) MachineConfigOption {
	return func(config *mcfgv1.MachineConfig, _ *ignition) {
		config.Spec.KernelArguments = append(config.Spec.KernelArguments, arguments...)
	}
}

// Extensions are sets of packages from the stream's extensions image.
func Extensions(names ...string) MachineConfigOption {
	return func(config *mcfgv1.MachineConfig, _ *ignition) {
		config.Spec.Extensions = append(config.Spec.Extensions, names...)
	}
}

// OSImageURL overrides the stream's image.
func OSImageURL(image string) MachineConfigOption {
	return func(config *mcfgv1.MachineConfig, _ *ignition) { config.Spec.OSImageURL = image }
}

// Ignition is the whole Ignition config as JSON, in place of files and units.
func Ignition(raw string) MachineConfigOption {
	return func(config *mcfgv1.MachineConfig, _ *ignition) {
		config.Spec.Config = runtime.RawExtension{Raw: []byte(raw)}
	}
}

func marshal(content ignition) []byte {
	raw, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("a struct of strings and numbers does not marshal: %v", err))
	}
	return raw
}
