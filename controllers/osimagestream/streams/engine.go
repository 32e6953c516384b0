package streams

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// engine is a container engine: where its configuration stands, and how one file
// of it is read.
type engine struct {
	// main is the main file; what is in the directory dropIns and below it is read
	// after it, by name. The last one that says something counts.
	main, dropIns string
	// read takes out of a file what it says of the default runtime.
	read func(text string) (settings, error)
}

// settings are what files say of the default runtime.
type settings struct {
	// handler is the name of the default runtime handler; empty: nothing is said.
	handler string
	// programs are what handlers run, by the handler's name, where that is said.
	programs map[string]string
	// imports are patterns of more files to read.
	imports []string
}

var (
	crio       = engine{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d", readCRIO}
	containerd = engine{"/etc/containerd/config.toml", "/etc/containerd/conf.d", readContainerd}
	engines    = []engine{crio, containerd}
)

// choice returns the default runtime that an Ignition config sets for the engine:
// the program of the default handler where a file names it, else the handler's
// name, which by custom is the runtime's.
func (e engine) choice(config types.Config) (RuntimeChoice, error) {
	files := append(slices.Clone(config.Storage.Files), linked(config)...)
	merged := settings{programs: map[string]string{}}
	by := ""
	take := func(file types.File) error {
		text, err := textOf(file)
		var said settings
		if err == nil {
			said, err = e.read(string(text))
		}
		if err != nil {
			return &RuntimeFileError{Path: file.Path, Err: err}
		}
		if said.handler != "" {
			merged.handler, by = said.handler, ByFile+file.Path
		}
		maps.Copy(merged.programs, said.programs)
		merged.imports = append(merged.imports, said.imports...)
		return nil
	}
	for _, file := range files {
		if file.Path == e.main {
			if err := take(file); err != nil {
				return RuntimeChoice{}, err
			}
		}
	}
	for _, file := range e.dropInsOf(files, merged.imports) {
		if err := take(file); err != nil {
			return RuntimeChoice{}, err
		}
	}
	choice := RuntimeChoice{Runtime: merged.handler, By: by}
	if program := merged.programs[merged.handler]; program != "" {
		choice.Runtime = path.Base(program)
	}
	return choice, nil
}

// dropInsOf are the files that are read after the main one, in their order: those of
// the directory, and those that the main file imports.
func (e engine) dropInsOf(files []types.File, imports []string) []types.File {
	var dropIns []types.File
	for _, file := range files {
		isImported := slices.ContainsFunc(imports, func(pattern string) bool {
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(e.main), pattern)
			}
			matches, err := path.Match(pattern, file.Path)
			return err == nil && matches
		})
		if file.Path != e.main && (isImported || strings.HasPrefix(file.Path, e.dropIns+"/")) {
			dropIns = append(dropIns, file)
		}
	}
	slices.SortStableFunc(dropIns, func(a, b types.File) int {
		// Names are sorted within each directory.
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	return dropIns
}

// maxLinks bounds how far links lead to links.
const maxLinks = 8

// linked gives, for each link to a file of the config, that file under the link's path.
func linked(config types.Config) []types.File {
	targets := map[string]string{}
	for _, link := range config.Storage.Links {
		if link.Target != nil {
			target := *link.Target
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(link.Path), target)
			}
			targets[link.Path] = path.Clean(target)
		}
	}
	contents := map[string]types.File{}
	for _, file := range config.Storage.Files {
		contents[file.Path] = file
	}
	var files []types.File
	for from, to := range targets {
		for range maxLinks {
			if next, isLink := targets[to]; isLink {
				to = next
			}
		}
		if file, found := contents[to]; found {
			file.Path = from
			files = append(files, file)
		}
	}
	return files
}

func readCRIO(text string) (settings, error) {
	var config struct {
		CRIO struct {
			Runtime struct {
				DefaultRuntime string `toml:"default_runtime"`
				Runtimes       map[string]struct {
					Path string `toml:"runtime_path"`
				} `toml:"runtimes"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	if _, err := toml.Decode(text, &config); err != nil {
		return settings{}, fmt.Errorf("it is not TOML as CRI-O reads it: %s", oneLine(err))
	}
	said := settings{handler: config.CRIO.Runtime.DefaultRuntime, programs: map[string]string{}}
	for handler, runtime := range config.CRIO.Runtime.Runtimes {
		if runtime.Path != "" {
			said.programs[handler] = runtime.Path
		}
	}
	return said, nil
}

// containerdPlugins are the names of the plugin that runs containers, in
// versions 2 and 3 of containerd's configuration.
var containerdPlugins = []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}

func readContainerd(text string) (settings, error) {
	var config struct {
		Imports []string `toml:"imports"`
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
		return settings{}, fmt.Errorf("it is not TOML as containerd reads it: %s", oneLine(err))
	}
	said := settings{programs: map[string]string{}, imports: config.Imports}
	for _, plugin := range containerdPlugins {
		of := config.Plugins[plugin].Containerd
		if of.Default != "" {
			said.handler = of.Default
		}
		for handler, runtime := range of.Runtimes {
			if runtime.Options.BinaryName != "" {
				said.programs[handler] = runtime.Options.BinaryName
			}
		}
	}
	return said, nil
}
