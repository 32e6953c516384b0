package builder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/ignition"
)

// The kernel types besides the default one, as the API spells them.
const (
	kernelRealtime = "realtime"
	kernel64k      = "64k-pages"
)

// extensionPackages are the packages of extensions for which the extensions
// image says nothing itself. Other extensions are packages of their own name.
var extensionPackages = map[string][]string{
	"two-node-ha":          {"pacemaker", "pcs", "fence-agents-all"},
	"ipsec":                {"NetworkManager-libreswan", "libreswan"},
	"kerberos":             {"krb5-workstation", "libkadm5"},
	"kernel-devel":         {"kernel-devel", "kernel-headers"},
	"sandboxed-containers": {"kata-containers"},
}

// kernel is what a kernel type is made of. Packages that only some releases
// have are optional.
type kernel struct {
	// extension is its name in the metadata of an extensions image.
	extension          string
	packages, optional []string
}

var kernels = map[string]kernel{
	kernelRealtime: {"kernel-rt", []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}, []string{"kernel-rt-modules-core", "kernel-rt-kvm"}},
	kernel64k:      {"kernel-64k", []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}, nil},
}

// defaultKernel are the packages that another kernel takes the place of.
var defaultKernel = []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}

// checkPackages refuses what can be told to be impossible without looking into
// any image.
func checkPackages(r *request.Request) error {
	var problems []ignition.Problem
	if r.WantsPackages() && r.ExtensionsImage == "" {
		problems = append(problems, ignition.Problem{Path: "spec.extensions",
			Reason: "extensions and other kernels come from the extensions image, and the OS stream has none"})
	}
	if _, known := kernels[r.KernelType]; !known && r.KernelType != "" {
		problems = append(problems, ignition.Problem{Path: "spec.kernelType",
			Reason: fmt.Sprintf("kernel type %q is none of default, %s, %s", r.KernelType, kernelRealtime, kernel64k)})
	}
	if r.KernelType == kernel64k && r.Architecture != "arm64" {
		problems = append(problems, ignition.Problem{Path: "spec.kernelType",
			Reason: fmt.Sprintf("kernel type %s is for arm64 only, the pool has %s", kernel64k, r.Architecture)})
	}
	if len(problems) > 0 {
		return &ignition.RefusedError{Problems: problems}
	}
	return nil
}

// extensionsMetadata is what rpm-ostree leaves about extensions beside their
// packages.
const (
	extensionsDirectory = "usr/share/rpm-ostree/extensions"
	extensionsMetadata  = extensionsDirectory + "/extensions.json"
	maxMetadata         = 1 << 20
)

// offer is what an extensions image says about its content; nil: nothing.
type offer map[string]struct {
	Packages []string `json:"packages"`
}

func readOffer(root *os.Root) (offer, error) {
	raw, err := readIn(root, extensionsMetadata, maxMetadata)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Extensions offer `json:"extensions"`
	}
	if err := json.Unmarshal(raw, &metadata); err != nil {
		return nil, imageErrorf("/%s of the extensions image does not parse: %v", extensionsMetadata, err)
	}
	return metadata.Extensions, nil
}

// packagesFor gives the packages of the extensions and of the kernel that a
// request asks for, as the extensions image with this root names them.
func packagesFor(r *request.Request, root *os.Root) (containerfiles.Packages, error) {
	var packages containerfiles.Packages
	offered, err := readOffer(root)
	if err != nil {
		return packages, err
	}
	var problems []ignition.Problem
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.Extensions))) {
		described, known := offered[name]
		switch listed := extensionPackages[name]; {
		case known:
			packages.Install = append(packages.Install, described.Packages...)
		case offered != nil:
			problems = append(problems, ignition.Problem{Path: "spec.extensions", Reason: fmt.Sprintf(
				"the extensions image of this OS stream has no %q; it has %s", name, strings.Join(offered.names(), ", "))})
		case listed != nil:
			packages.Install = append(packages.Install, listed...)
		default:
			packages.Install = append(packages.Install, name)
		}
	}
	if len(problems) > 0 {
		return packages, &ignition.RefusedError{Problems: problems}
	}
	if wanted, isOther := kernels[r.KernelType]; isOther {
		packages.NewKernel, packages.OldKernel = wanted.packagesIn(offered, root), defaultKernel
	}
	return packages, nil
}

func (o offer) names() []string {
	var names []string
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// packagesIn gives the packages of a kernel that an extensions image has.
func (k kernel) packagesIn(offered offer, root *os.Root) []string {
	if described, known := offered[k.extension]; known {
		return described.Packages
	}
	packages := slices.Clone(k.packages)
	for _, name := range k.optional {
		if found, err := fs.Glob(root.FS(), extensionsDirectory+"/"+name+"-[0-9]*.rpm"); err == nil && len(found) > 0 {
			packages = append(packages, name)
		}
	}
	return packages
}
