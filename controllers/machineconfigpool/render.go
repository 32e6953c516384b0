package machineconfigpool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Reasons of the condition RenderDegraded.
const (
	reasonInvalidSelector   = "InvalidSelector"
	reasonInvalidConfig     = "InvalidConfig"
	reasonRefusedConfig     = "RefusedConfig"
	reasonNoOSImage         = "NoOSImage"
	reasonUnknownStream     = "UnknownStream"
	reasonDefaultStreamGone = "DefaultStreamGone"
	reasonImageByTag        = "ImageByTag"
	reasonStreamOverridden  = "StreamOverridden"
	reasonRuntimeMissing    = "RuntimeMissing"
	reasonRuntimeUnknown    = "RuntimeUnknown"
	reasonRenderFailed      = "RenderFailed"
)

// renderError is a reason why a pool cannot be rendered, which only the user
// can mend: trying again does not help, a changed input does.
type renderError struct {
	// reason of the condition RenderDegraded.
	reason string
	// message names the object, the field, and what to do.
	message string
}

func (e *renderError) Error() string { return e.message }

// rendered is what a pool is to run.
type rendered struct {
	// name is rendered-<pool>-<32 hex>; fullName is the same with the whole name
	// of a pool that was too long for it, else empty.
	name, fullName string
	spec           mcfgv1.MachineConfigSpec
	// ignition is spec.config, parsed.
	ignition types.Config
	// sources in the order in which they were merged.
	sources []*mcfgv1.MachineConfig
	// isOverridden is true when a MachineConfig, and not the stream, gave the OS image.
	isOverridden bool
	// live is what reaches the nodes without an image; nil: nothing.
	live *v1alpha1.LiveContent
}

// render merges sources, in their order, on top of images. The same input
// gives the same name on any machine. Its errors are *renderError.
func render(pool string, sources []*mcfgv1.MachineConfig, images images) (*rendered, error) {
	parsed, config, err := mergeIgnition(sources)
	if err != nil {
		return nil, err
	}
	spec := mcfgv1.MachineConfigSpec{
		OSImageURL:                     images.os,
		BaseOSExtensionsContainerImage: images.extensions,
		Config:                         runtime.RawExtension{Raw: config},
		KernelArguments:                []string{},
	}
	extensions := map[string]bool{}
	for _, source := range sources {
		spec.KernelArguments = append(spec.KernelArguments, source.Spec.KernelArguments...)
		spec.FIPS = spec.FIPS || source.Spec.FIPS
		if source.Spec.KernelType != "" {
			spec.KernelType = source.Spec.KernelType
		}
		for _, extension := range source.Spec.Extensions {
			extensions[extension] = true
		}
	}
	// Never nil: the API takes an empty list here and no null.
	spec.Extensions = append([]string{}, slices.Sorted(maps.Keys(extensions))...)
	result := &rendered{spec: spec, ignition: parsed, sources: sources, isOverridden: images.isOverridden}
	result.name, result.fullName, err = renderedName(pool, spec)
	return result, err
}

// kernelTypes are those that the API knows.
var kernelTypes = []string{"", "default", "realtime", "64k-pages"}

// checkFields refuses what no image can hold, and what the API has no meaning for.
func checkFields(sources []*mcfgv1.MachineConfig) error {
	for _, source := range sources {
		if source.Spec.FIPS {
			return &renderError{reason: reasonRefusedConfig, message: fmt.Sprintf("MachineConfig %s: spec.fips: "+
				"an image cannot switch FIPS mode on: it is chosen when a node is installed; install the nodes with it, and leave the field out", source.Name)}
		}
		if !slices.Contains(kernelTypes, source.Spec.KernelType) {
			return &renderError{reason: reasonInvalidConfig, message: fmt.Sprintf("MachineConfig %s: spec.kernelType: %q is none of default, realtime and 64k-pages",
				source.Name, source.Spec.KernelType)}
		}
	}
	return nil
}

// renderedHashLength is the number of hex digits of the content's SHA-256 in a name.
const renderedHashLength = 32

// renderedName names a rendered config by its content. Annotations are no part
// of it: an upgrade of the controller renames nothing. The pool's part is
// shortened where the name would be longer than the API allows.
func renderedName(pool string, spec mcfgv1.MachineConfigSpec) (name, fullName string, err error) {
	content, err := json.Marshal(spec)
	if err != nil {
		return "", "", fmt.Errorf("encode the rendered config of pool %s: %w", pool, err)
	}
	sum := sha256.Sum256(content)
	suffix := "-" + hex.EncodeToString(sum[:])[:renderedHashLength]
	short := machineconfiguration.Shorten(pool, machineconfiguration.MaxName-len(renderedPrefix)-len(suffix))
	if short != pool {
		fullName = renderedPrefix + pool + suffix
	}
	return renderedPrefix + short + suffix, fullName, nil
}
