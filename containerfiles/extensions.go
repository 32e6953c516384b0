package containerfiles

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed extensions.sh
var extensionsScript string

// ExtensionsRecipe is a text that changes whenever the way changes in which
// extensions are installed.
func ExtensionsRecipe() string { return extensionsScript }

// Packages are what a build installs from an extensions image, by the names of
// the base's package manager.
type Packages struct {
	// Install are the packages of the extensions.
	Install []string
	// NewKernel takes the place of OldKernel, of which some may not be installed;
	// both are empty when the kernel stays.
	NewKernel, OldKernel []string
}

// packageName is what a package of Debian or Fedora may be called, with an
// optional version behind: nothing that means something to a shell.
var packageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._:~^-]*$`)

// Extensions gives the Containerfile that installs packages on base from the
// context extensions. A name that no package can have is an error: it would
// reach a shell.
func Extensions(packages Packages) (*Plan, error) {
	var text strings.Builder
	text.WriteString("FROM " + ContextBase + " AS final\n" +
		"RUN --mount=type=bind,from=" + ContextExtensions + ",target=/run/extensions <<'END-OF-EXTENSIONS'\n")
	for _, variable := range []struct {
		name     string
		packages []string
	}{
		{"PACKAGES", packages.Install}, {"NEW_KERNEL", packages.NewKernel}, {"OLD_KERNEL", packages.OldKernel},
	} {
		for _, name := range variable.packages {
			if !packageName.MatchString(name) {
				return nil, fmt.Errorf("%q is not the name of a package", name)
			}
		}
		fmt.Fprintf(&text, "%s='%s'\n", variable.name, strings.Join(variable.packages, " "))
	}
	text.WriteString(extensionsScript + "END-OF-EXTENSIONS\n")
	return &Plan{From: FromBase, UsesBase: true, UsesExtensions: true, HasRun: true, IsOwn: true, Text: text.String()}, nil
}
