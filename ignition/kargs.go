package ignition

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// kargsDir is where bootc looks for kernel arguments of an image, kargsPath the
// file of those that are added here.
const (
	kargsDir  = "/usr/lib/bootc/kargs.d"
	kargsPath = kargsDir + "/50-imagemode.toml"
)

func (b *layerBuilder) addKernelArguments(more []string) error {
	arguments, err := kernelArguments(b.config, more)
	if err != nil {
		return refuse("kernelArguments", err)
	}
	if err := b.takeArgumentsAway(arguments); err != nil {
		return err
	}
	if len(arguments) == 0 {
		return nil
	}
	return b.addOwn(newFile(kargsPath, string(kargsFile(kargs{Arguments: arguments}))))
}

// takeArgumentsAway replaces the files by which the base image sets arguments
// that must not exist. bootc takes from a host what an image does not set any
// more. Arguments that the image never set are the machine's own.
func (b *layerBuilder) takeArgumentsAway(added []string) error {
	if len(b.config.KernelArguments.ShouldNotExist) == 0 {
		return nil
	}
	files, err := readKargs(b.base)
	if err != nil {
		return fmt.Errorf("kernelArguments.shouldNotExist: %w", err)
	}
	changed := map[string]bool{}
	for _, unwanted := range b.config.KernelArguments.ShouldNotExist {
		if slices.Contains(added, string(unwanted)) {
			return refuse("kernelArguments.shouldNotExist", fmt.Errorf("%q is asked for, too", unwanted))
		}
		found := false
		for name, file := range files {
			if slices.Contains(file.Arguments, string(unwanted)) {
				file.Arguments = slices.DeleteFunc(file.Arguments, func(argument string) bool { return argument == string(unwanted) })
				found, changed[name] = true, true
			}
		}
		if !found {
			return refuse("kernelArguments.shouldNotExist",
				fmt.Errorf("the base image does not set %q; an image cannot take away what was set at installation", unwanted))
		}
	}
	for name := range changed {
		if err := b.addOwn(newFile(kargsDir+"/"+name, string(kargsFile(*files[name])))); err != nil {
			return err
		}
	}
	return nil
}

// kargs is a file of kargs.d.
type kargs struct {
	Arguments []string `toml:"kargs"`
	// Architectures that it counts for, by the names of Rust; none: all.
	Architectures []string `toml:"match-architectures"`
}

// readKargs reads the files of the base image by name.
func readKargs(base Base) (map[string]*kargs, error) {
	directory, err := resolveAll(base, kargsDir)
	if err != nil {
		return nil, err
	}
	names, err := base.List(directory)
	if err != nil {
		return nil, err
	}
	files := map[string]*kargs{}
	for _, name := range names {
		if path.Ext(name) != ".toml" || name == path.Base(kargsPath) {
			continue
		}
		content, err := readIfThere(base, directory+"/"+name)
		if err != nil {
			return nil, err
		}
		files[name] = &kargs{}
		if err := toml.Unmarshal(content, files[name]); err != nil {
			return nil, refuse(directory+"/"+name, fmt.Errorf("the base image's file is not that of kargs.d: %w", err))
		}
	}
	return files, nil
}

// kernelArguments gives the arguments in the order of the command line: those
// of the Ignition config, then those of the MachineConfig. One entry may hold
// several arguments, as users of MachineConfigs write them.
func kernelArguments(config types.Config, more []string) ([]string, error) {
	var entries, arguments []string
	for _, entry := range config.KernelArguments.ShouldExist {
		entries = append(entries, string(entry))
	}
	for _, entry := range append(entries, more...) {
		words, err := splitArguments(entry)
		if err != nil {
			return nil, fmt.Errorf("kernel argument %q: %w", entry, err)
		}
		arguments = append(arguments, words...)
	}
	return arguments, nil
}

// splitArguments splits at spaces outside double quotes, as the kernel does.
func splitArguments(entry string) ([]string, error) {
	quoted := false
	words := strings.FieldsFunc(entry, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && unicode.IsSpace(r)
	})
	if quoted {
		return nil, fmt.Errorf("a double quote is not closed")
	}
	for _, word := range words {
		for _, r := range word {
			if r < 0x20 || r == 0x7f || r == unicode.ReplacementChar {
				return nil, fmt.Errorf("it holds the character %U", r)
			}
		}
	}
	return words, nil
}

// kargsFile writes a file of kargs.d: TOML.
func kargsFile(file kargs) []byte {
	text := "kargs = " + listTOML(file.Arguments)
	if len(file.Architectures) > 0 {
		text += "match-architectures = " + listTOML(file.Architectures)
	}
	return []byte(text)
}

func listTOML(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quoteTOML(word)
	}
	return "[" + strings.Join(quoted, ", ") + "]\n"
}

// quoteTOML writes a basic string. Control characters were refused before.
func quoteTOML(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
