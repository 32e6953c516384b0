package machineosbuild

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/ignition"
)

// imageInputs is everything that the content of an image depends on, in
// canonical form: two ways of writing the same thing give the same imageInputs.
// It names no pool, no object and no secret, so that equal inputs are equal
// images wherever they are declared.
type imageInputs struct {
	// BaseImage and ExtensionsImage are digests only: a mirror's name makes no
	// difference. ExtensionsImage is empty when nothing uses it.
	BaseImage       string `json:"baseImage"`
	ExtensionsImage string `json:"extensionsImage,omitempty"`
	// Extensions are sorted and without duplicates.
	Extensions []string `json:"extensions,omitempty"`
	// KernelType is empty for the default one.
	KernelType string `json:"kernelType,omitempty"`
	// KernelArguments keep their order: it has a meaning.
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// Ignition is the SHA-256 of the Ignition config, 64 hex; empty: none.
	Ignition string `json:"ignition,omitempty"`
	// Containerfile is the SHA-256 of the text for Architecture; empty: none.
	Containerfile string `json:"containerfile,omitempty"`
	// YumRepos and GPGKeys are the SHA-256 of the package repositories and of
	// their keys, 64 hex; empty: there are none, or nothing runs.
	YumRepos string `json:"yumRepos,omitempty"`
	GPGKeys  string `json:"gpgKeys,omitempty"`
	// AgentImage is the digest of the image that brings the agent as a service of
	// the host; empty: none does.
	AgentImage string `json:"agentImage,omitempty"`
	// Architecture is Go's name for it.
	Architecture string `json:"architecture"`
	// Rebuild is the number of rebuilds asked for. It counts only where a
	// program runs during the build; without one, nothing would come out
	// different.
	Rebuild int `json:"rebuild,omitempty"`
}

// hash is the image inputs hash: 64 hex digits.
func (i imageInputs) hash() string {
	return hashOf("image inputs 1", i)
}

// buildInputs is what a MachineOSBuild is made of: its image's inputs, and what
// makes it another build even where the image is the same. It stands in an
// annotation of the MachineOSBuild, from which the next one tells what changed.
type buildInputs struct {
	Image                 imageInputs `json:"image"`
	RenderedMachineConfig string      `json:"renderedMachineConfig"`
	PushRepository        string      `json:"pushRepository"`
	Rebuild               int         `json:"rebuild,omitempty"`
	Attempt               int         `json:"attempt,omitempty"`
}

// identity tells builds apart that are not attempts at the same: 32 hex.
func (b buildInputs) identity() string {
	b.Attempt = 0
	return hashOf("build inputs 1", b)[:hashDigits]
}

// hash is what the MachineOSBuild's name is made from: 64 hex.
func (b buildInputs) hash() string {
	return hashOf("build inputs 1", b)
}

// hashOf is the SHA-256, in hex, of a value's JSON; domain keeps hashes of
// different kinds of values apart.
func hashOf(domain string, value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		// Only strings, numbers and lists of them come here.
		panic(fmt.Sprintf("encode %s: %v", domain, err))
	}
	sum := sha256.New()
	sum.Write([]byte(domain + "\n"))
	sum.Write(raw)
	return hex.EncodeToString(sum.Sum(nil))
}

func hashOfText(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// change is one input that differs from the previous build's.
type change struct {
	Input string `json:"input"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// maxChangeValue bounds what one side of a change shows, in bytes. Digests and
// names fit; a long list of kernel arguments is cut.
const maxChangeValue = 256

// changesBetween lists what differs, in a fixed order. A first build, without
// previous inputs, has one change: the MachineOSConfig itself.
func changesBetween(config string, previous *buildInputs, current buildInputs) []change {
	if previous == nil {
		return []change{{Input: "MachineOSConfig", New: config}}
	}
	var changes []change
	before, after := previous.values(), current.values()
	for i := range after {
		if before[i] != after[i] {
			changes = append(changes, change{
				Input: inputNames[i],
				Old:   truncate(before[i], maxChangeValue),
				New:   truncate(after[i], maxChangeValue),
			})
		}
	}
	return changes
}

// inputNames are the names of what values returns, in the same order.
var inputNames = []string{
	"baseImage", "extensionsImage", "extensions", "kernelType", "kernelArguments", "ignition", "containerfile",
	"yumRepos", "gpgKeys", "agentImage", "architecture", inputRendered, "pushRepository", "rebuild", inputAttempt,
}

const (
	// inputRendered is the name of the rendered MachineConfig.
	inputRendered = "renderedMachineConfig"
	// inputAttempt is what differs when the same is tried again.
	inputAttempt = "attempt"
)

// automaticInputs change without anybody editing the MachineOSConfig.
var automaticInputs = []string{
	"baseImage", "extensionsImage", "extensions", "kernelType", "kernelArguments", "ignition",
	"yumRepos", "gpgKeys", "agentImage", inputRendered, inputAttempt,
}

func (b buildInputs) values() []string {
	return []string{
		b.Image.BaseImage, b.Image.ExtensionsImage, strings.Join(b.Image.Extensions, " "), b.Image.KernelType,
		strings.Join(b.Image.KernelArguments, " "), b.Image.Ignition, b.Image.Containerfile,
		b.Image.YumRepos, b.Image.GPGKeys, b.Image.AgentImage, b.Image.Architecture, b.RenderedMachineConfig, b.PushRepository, strconv.Itoa(b.Rebuild), strconv.Itoa(b.Attempt),
	}
}

// canonicalExtensions sorts a list and drops duplicates and empty names.
func canonicalExtensions(extensions []string) []string {
	sorted := slices.Compact(slices.Sorted(slices.Values(extensions)))
	return slices.DeleteFunc(sorted, func(name string) bool { return name == "" })
}

// canonicalKernelType writes the default kernel type as "".
func canonicalKernelType(kernelType string) string {
	if kernelType == "default" {
		return ""
	}
	return kernelType
}

// canonicalIgnition returns the part of an Ignition config that goes into the
// image, in one way of writing it, or "" when there is none of it: what reaches
// nodes without an image is no reason to build one.
func canonicalIgnition(raw []byte) (string, error) {
	found, err := readConfig(raw)
	return found.image, err
}

// rendition is what is known of an Ignition config.
type rendition struct {
	// image is the part that goes into the image, in canonical form.
	image string
	// refused is what of it no image can hold; nil: nothing.
	refused error
}

func readConfig(raw []byte) (rendition, error) {
	return remember(readConfigs, string(raw), func() (rendition, error) {
		config, err := ignition.Parse(raw)
		if err != nil {
			return rendition{}, fmt.Errorf("spec.config: %w", err)
		}
		image, err := ignition.ForImage(config)
		return rendition{image: string(image), refused: ignition.Check(config)}, err
	})
}

// builderIgnition is what of a config a builder gets: all but the kubelet's own
// credentials. Of what does not go into the image it takes the certificates of
// registries, to pull with.
func builderIgnition(raw []byte) ([]byte, error) {
	config, err := ignition.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("spec.config: %w", err)
	}
	return json.Marshal(ignition.Merge(ignition.Split(config)))
}

// architectures are the API's names of Go's architectures.
var architectures = map[string]mcfgv1.ContainerfileArch{
	"amd64": mcfgv1.Amd64, "arm64": mcfgv1.Arm64, "ppc64le": mcfgv1.Ppc, "s390x": mcfgv1.S390,
}

// containerfileFor returns the text for one architecture: its own entry, else
// the one for any. found is false when there are entries, but none that fits.
func containerfileFor(files []mcfgv1.MachineOSContainerfile, architecture string) (text string, found bool) {
	for _, wanted := range []mcfgv1.ContainerfileArch{architectures[architecture], mcfgv1.NoArch, ""} {
		for _, file := range files {
			if file.ContainerfileArch == wanted && architectures[architecture] != "" {
				return file.Content, true
			}
		}
	}
	return "", len(files) == 0
}

// wantsExtensionsImage reports whether anything takes packages from the
// extensions image. Otherwise a new one is no reason to build.
func wantsExtensionsImage(spec *mcfgv1.MachineConfigSpec, text *containerfiles.Plan) bool {
	return installsPackages(spec) || text != nil && text.UsesExtensions
}

// installsPackages reports whether the rendered config asks for packages or for
// another kernel.
func installsPackages(spec *mcfgv1.MachineConfigSpec) bool {
	return len(canonicalExtensions(spec.Extensions)) > 0 || canonicalKernelType(spec.KernelType) != ""
}

// truncate cuts a text to a number of bytes and marks the cut.
func truncate(text string, limit int) string {
	const mark = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}
