package streams

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// engine is a container engine: where its configuration stands, and how the
// default container runtime is read from one file of it.
type engine struct {
	// main is the main file; drop-ins are read after it, by name. The last one that
	// says something counts.
	main, dropIns string
	// standard reads the default runtime; empty: the file says nothing of it.
	standard func(text string) (string, error)
}

var (
	crio       = engine{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d", crioDefault}
	containerd = engine{"/etc/containerd/config.toml", "/etc/containerd/conf.d", containerdDefault}
	engines    = []engine{crio, containerd}
)

// choice returns the default runtime that an Ignition config sets for the engine.
func (e engine) choice(config types.Config) (RuntimeChoice, error) {
	var choice RuntimeChoice
	for _, file := range e.files(config) {
		text, err := textOf(file)
		if err != nil {
			return RuntimeChoice{}, fmt.Errorf("file %s: %w", file.Path, err)
		}
		runtime, err := e.standard(string(text))
		if err != nil {
			return RuntimeChoice{}, fmt.Errorf("file %s: %w", file.Path, err)
		}
		if runtime != "" {
			choice = RuntimeChoice{Runtime: runtime, By: "file " + file.Path}
		}
	}
	return choice, nil
}

// files are the engine's in the order it reads them.
func (e engine) files(config types.Config) []types.File {
	var mains, dropIns []types.File
	for _, file := range config.Storage.Files {
		switch {
		case file.Path == e.main:
			mains = append(mains, file)
		case path.Dir(file.Path) == e.dropIns:
			dropIns = append(dropIns, file)
		}
	}
	slices.SortStableFunc(dropIns, func(a, b types.File) int { return strings.Compare(a.Path, b.Path) })
	return append(mains, dropIns...)
}

func crioDefault(text string) (string, error) {
	var config struct {
		CRIO struct {
			Runtime struct {
				DefaultRuntime string `toml:"default_runtime"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	if _, err := toml.Decode(text, &config); err != nil {
		return "", fmt.Errorf("it is not TOML as CRI-O reads it: %s", oneLine(err))
	}
	return config.CRIO.Runtime.DefaultRuntime, nil
}

// containerdPlugins are the names of the plugin that runs containers, in
// versions 3 and 2 of containerd's configuration.
var containerdPlugins = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"}

// containerdDefault returns the program of the default handler where the file
// names it, else the handler's name, which by custom is the runtime's.
func containerdDefault(text string) (string, error) {
	var config struct {
		Plugins map[string]struct {
			Containerd struct {
				Default  string `toml:"default_runtime_name"`
				Runtimes map[string]struct {
					Options struct {
						BinaryName string
					} `toml:"options"`
				} `toml:"runtimes"`
			} `toml:"containerd"`
		} `toml:"plugins"`
	}
	if _, err := toml.Decode(text, &config); err != nil {
		return "", fmt.Errorf("it is not TOML as containerd reads it: %s", oneLine(err))
	}
	for _, plugin := range containerdPlugins {
		settings := config.Plugins[plugin].Containerd
		if settings.Default == "" {
			continue
		}
		if binary := settings.Runtimes[settings.Default].Options.BinaryName; binary != "" {
			return path.Base(binary), nil
		}
		return settings.Default, nil
	}
	return "", nil
}
