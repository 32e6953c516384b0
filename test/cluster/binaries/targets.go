package binaries

import (
	"strings"

	"github.com/imagemode/imagemode/test/cluster/compile"
)

// target is one program to compile.
type target struct {
	// name is the file name in the cache.
	name string
	// path is the Go package, relative to the module for its own ones.
	path string
	// sources are the module's own files in it, relative to the module.
	sources []string
	tags    []string
	// ldflags are given besides -s -w.
	ldflags string
	cgo     bool
	// links are the names the program is also called by.
	links []string
	// estimate is what the first compile takes on two cores, for the user.
	estimate string
}

// targets lists all programs. Kubernetes and etcd are one binary, because it
// links once where six would link six times. runc is the only one with cgo:
// without libseccomp it ignores the seccomp profiles of pods.
func targets(kubernetesVersion string) []target {
	return []target{
		{
			name: "kubernetes", path: "./kubernetes", sources: []string{"kubernetes/main.go"},
			ldflags:  versionFlags(kubernetesVersion),
			links:    []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"},
			estimate: "10 minutes",
		},
		{
			name: "containerd", path: "./containerd", sources: []string{"containerd/main.go"},
			tags: []string{"no_btrfs"}, estimate: "80 seconds",
		},
		{
			name: "containerd-shim-runc-v2", path: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			tags: []string{"no_btrfs"}, estimate: "10 seconds",
		},
		{
			name: "ctr", path: "github.com/containerd/containerd/v2/cmd/ctr",
			tags: []string{"no_btrfs"}, estimate: "10 seconds",
		},
		{
			name: "registry", path: "./registryserver", sources: []string{"registryserver/main.go", "registryserver/users.go"},
			estimate: "30 seconds",
		},
		{
			name: "runc", path: "github.com/opencontainers/runc",
			tags: []string{"seccomp"}, cgo: true, estimate: "60 seconds",
		},
		{
			name: "pause", path: "./pause", sources: []string{"pause/main.go"},
			estimate: "2 seconds",
		},
	}
}

// versionFlags makes Kubernetes report its version, for example v1.37.2: clients
// decide by it, and the default says v0.0.0.
func versionFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X="+pkg+".gitVersion="+version,
			"-X="+pkg+".gitMajor="+major,
			"-X="+pkg+".gitMinor="+minor,
			"-X="+pkg+".gitTreeState=clean")
	}
	return strings.Join(flags, " ")
}

// program is how to compile the target to output.
func (t target) program(moduleDir, output string) compile.Program {
	return compile.Program{Dir: moduleDir, Package: t.path, Output: output, Tags: t.tags, Ldflags: t.ldflags, Cgo: t.cgo}
}
