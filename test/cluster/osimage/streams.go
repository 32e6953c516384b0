package osimage

import "fmt"

// recipe is everything that makes one OS stream. Adding a stream is adding an
// entry to recipes; the code names no stream.
type recipe struct {
	// Name is the stream's name, the value of the label
	// io.openshift.os.streamclass and the image's repository below os/.
	Name string
	// Suite is the Debian suite the packages come from.
	Suite string
	// Version becomes the label org.opencontainers.image.version.
	Version string
	// Packages are installed beside the essential ones, with what they depend on.
	Packages []string
	// Runtimes are the container runtimes of the OS image, the default one first:
	// runc is compiled for this cluster, any other is the package of that name.
	Runtimes []string
	// Extensions are the packages offered by the extensions image, with those of
	// their dependencies that the OS image lacks.
	Extensions []string
}

// nodePackages are what systemd as PID 1, kubelet, containerd and the bootc
// stand-in call or load. apt stays in the image: Containerfiles install with it.
var nodePackages = []string{
	"apt", "ca-certificates", "conntrack", "containernetworking-plugins", "dbus", "ethtool",
	"iproute2", "iptables", "kmod", "libseccomp2", "mount", "procps",
	"systemd", "systemd-sysv", "util-linux",
}

// extensionPackages have dependencies of different depth: none, and two levels.
var extensionPackages = []string{"figlet", "jq", "tree"}

var recipes = []recipe{
	{
		Name: "debian-12", Suite: "bookworm", Version: "12", Runtimes: []string{"runc", "crun"},
		Packages: append([]string{"crun"}, nodePackages...), Extensions: extensionPackages,
	},
	{
		Name: "debian-13", Suite: "trixie", Version: "13", Runtimes: []string{"crun"},
		Packages: append([]string{"crun"}, nodePackages...), Extensions: extensionPackages,
	},
}

// DefaultStreams are built when Options names none; machines are installed with
// the first one.
var DefaultStreams = []string{"debian-12", "debian-13"}

// selectRecipes returns the recipes of the named streams in the order asked for.
func selectRecipes(names []string) ([]recipe, error) {
	if len(names) == 0 {
		names = DefaultStreams
	}
	selected := make([]recipe, 0, len(names))
	for _, name := range names {
		found, err := recipeOf(name)
		if err != nil {
			return nil, err
		}
		selected = append(selected, found)
	}
	return selected, nil
}

func recipeOf(name string) (recipe, error) {
	known := make([]string, 0, len(recipes))
	for _, candidate := range recipes {
		if candidate.Name == name {
			return candidate, nil
		}
		known = append(known, candidate.Name)
	}
	return recipe{}, fmt.Errorf("OS stream %q is not known: choose from %v, or add it to the recipes of package osimage", name, known)
}
