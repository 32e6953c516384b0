package streams

import "fmt"

// Pair is an OS image and its extensions image, both by digest, that something
// other than a payload names.
type Pair struct {
	OSImage, ExtensionsImage string
}

// IsEmpty reports whether the pair names no image at all.
func (p Pair) IsEmpty() bool { return p == Pair{} }

// Keys of the ConfigMap machine-config-osimageurl.
const (
	KeyBaseImage       = "baseOSContainerImage"
	KeyExtensionsImage = "baseOSExtensionsContainerImage"
	KeyReleaseVersion  = "releaseVersion"
)

// PairFromConfigMap reads the data of the ConfigMap machine-config-osimageurl.
// version is that of the running release, or empty where it is not known: a
// ConfigMap of another release is an error, because its images are that
// release's.
func PairFromConfigMap(data map[string]string, version string) (Pair, error) {
	pair := Pair{OSImage: data[KeyBaseImage], ExtensionsImage: data[KeyExtensionsImage]}
	if of := data[KeyReleaseVersion]; version != "" && of != "" && of != version {
		return Pair{}, fmt.Errorf("%s is %s and the cluster's release is %s; its images are not taken until they agree", KeyReleaseVersion, of, version)
	}
	return pair, pair.check(KeyBaseImage, KeyExtensionsImage)
}

// PairFromOptions checks the pair of the command line. The names are those of
// the options.
func PairFromOptions(pair Pair, osOption, extensionsOption string) (Pair, error) {
	return pair, pair.check(osOption, extensionsOption)
}

func (p Pair) check(osField, extensionsField string) error {
	if err := checkImage(osField, p.OSImage); err != nil {
		return err
	}
	return checkImage(extensionsField, p.ExtensionsImage)
}

// Named makes the pair a stream of a given name, without looking at labels.
func (p Pair) Named(source, stream string) (Source, error) {
	set, err := newSet(stream, p)
	if err != nil {
		return Source{}, err
	}
	return Source{Name: source, Streams: []Set{set}}, nil
}
