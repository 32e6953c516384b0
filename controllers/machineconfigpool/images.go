package machineconfigpool

import (
	"errors"
	"fmt"
	"regexp"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// images are what a pool's image is built on.
type images struct {
	// os and extensions are references by digest; extensions may be empty.
	os, extensions string
	// isOverridden is true when a MachineConfig named another OS image than the
	// pool's stream has.
	isOverridden bool
}

// override is an image that a MachineConfig names.
type override struct {
	image  string
	config string
}

// byDigest matches a reference that always means the same image.
var byDigest = regexp.MustCompile(`^[^@\s]+@sha256:[a-f0-9]{64}$`)

// chooseImages takes the images that the last MachineConfig names, each for
// itself, else those of the pool's stream. explicit is the stream that the pool
// itself names; stream and streamErr are what resolving its stream gave.
func chooseImages(sources []*mcfgv1.MachineConfig, explicit string, stream streams.Resolution, streamErr error) (images, error) {
	os, extensions, err := overrides(sources)
	if err != nil {
		return images{}, err
	}
	if streamErr != nil && (os.image == "" || explicit != "") {
		return images{}, streamProblem(streamErr)
	}
	chosen := images{os: string(stream.OSImage), extensions: string(stream.OSExtensionsImage)}
	if os.image != "" && os.image != chosen.os {
		if explicit != "" {
			return images{}, conflictingStream(os, explicit)
		}
		chosen.os, chosen.isOverridden = os.image, true
	}
	if extensions.image != "" {
		chosen.extensions = extensions.image
	}
	return chosen, nil
}

// overrides returns the last OS image and the last extensions image that users'
// MachineConfigs name. MachineConfigs that a controller made repeat the
// cluster's image and do not count.
func overrides(sources []*mcfgv1.MachineConfig) (os, extensions override, err error) {
	for _, source := range sources {
		if source.Annotations[machineconfiguration.AnnotationGeneratedByControllerVersion] != "" {
			continue
		}
		if source.Spec.OSImageURL != "" {
			os = override{image: source.Spec.OSImageURL, config: source.Name}
		}
		if source.Spec.BaseOSExtensionsContainerImage != "" {
			extensions = override{image: source.Spec.BaseOSExtensionsContainerImage, config: source.Name}
		}
	}
	if err := os.check("spec.osImageURL"); err != nil {
		return override{}, override{}, err
	}
	return os, extensions, extensions.check("spec.baseOSExtensionsContainerImage")
}

// check refuses an image by tag: it would make the same input give different
// images under the same name.
func (o override) check(field string) error {
	if o.image == "" || byDigest.MatchString(o.image) {
		return nil
	}
	return &renderError{
		reason: reasonImageByTag,
		message: fmt.Sprintf("MachineConfig %s: %s %q has no digest; a tag can move: write host[:port]/repository@sha256:<64 hex>",
			o.config, field, o.image),
	}
}

// conflictingStream refuses two wishes for the OS image, beginning with the
// text that users know, and names the ways out.
func conflictingStream(os override, explicit string) error {
	return &renderError{
		reason: reasonStreamOverridden,
		message: fmt.Sprintf("cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously: "+
			"delete MachineConfig %s, clear its spec.osImageURL, or clear the pool's spec.osImageStream (%s)", os.config, explicit),
	}
}

// streamProblem turns the error of a resolution into the pool's.
func streamProblem(err error) error {
	var (
		none    streams.NoStreamsError
		unknown *streams.UnknownStreamError
		gone    *streams.DefaultGoneError
	)
	switch {
	case errors.As(err, &none):
		return &renderError{reason: reasonNoOSImage, message: err.Error() + ", or set spec.osImageURL in a MachineConfig of the pool"}
	case errors.As(err, &unknown):
		return &renderError{reason: reasonUnknownStream, message: err.Error()}
	case errors.As(err, &gone):
		return &renderError{reason: reasonDefaultStreamGone, message: err.Error()}
	default:
		return err
	}
}
