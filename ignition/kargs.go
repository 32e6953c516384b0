package ignition

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// kargsPath is where bootc looks for kernel arguments of an image.
const kargsPath = "/usr/lib/bootc/kargs.d/50-imagemode.toml"

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

// kargsFile writes a file of kargs.d: TOML with the one key kargs.
func kargsFile(arguments []string) []byte {
	var text strings.Builder
	text.WriteString("kargs = [")
	for i, argument := range arguments {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(quoteTOML(argument))
	}
	text.WriteString("]\n")
	return []byte(text.String())
}

// quoteTOML writes a basic string. Control characters were refused before.
func quoteTOML(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
