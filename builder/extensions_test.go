package builder

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// standInDNF is no package manager: it notes what it is asked for, and does to
// the kernels what one would do. The real ones run in the end-to-end tests.
const standInDNF = `#!/bin/sh
echo "$@" >>/usr/share/dnf.log
case "$*" in *repofrompath*install*) ls /run/extensions/usr/share/rpm-ostree/extensions/repodata >/dev/null || exit 1 ;; esac
case "$*" in *install*usbguard*) mkdir -p /var/log/usbguard ;; esac
case "$*" in *install*kernel-rt-core*) mkdir -p /usr/lib/modules/rt && echo >/usr/lib/modules/rt/vmlinuz && echo >/usr/lib/modules/rt/initramfs.img ;; esac
case "$*" in *install*stubborn*) mkdir -p /usr/lib/modules/two && echo >/usr/lib/modules/two/vmlinuz ;; esac
case "$*" in *install*missing*) echo "No match for argument: missing" && exit 1 ;; esac
case "$*" in *remove*kernel-core-5*) rm -rf /usr/lib/modules/5 ;; esac
`

// standInRPMOSTree is the same for rpm-ostree, which takes its repositories from
// files and changes a kernel in one command.
const standInRPMOSTree = `#!/bin/sh
echo "$@" >>/usr/share/dnf.log
grep -q '^baseurl=file:///run/extensions/usr/share/rpm-ostree/extensions$' /etc/yum.repos.d/imagemode-extensions.repo || exit 1
case "$*" in *--install=kernel-rt-core*) mkdir -p /usr/lib/modules/rt && echo >/usr/lib/modules/rt/vmlinuz && echo >/usr/lib/modules/rt/initramfs.img ;; esac
case "$*" in "override remove kernel-core-5 "*) rm -rf /usr/lib/modules/5 ;; esac
`

const standInRPM = `#!/bin/sh
echo "package kernel is not installed"
[ ! -e /usr/lib/modules/5 ] || echo kernel-core-5
exit 1
`

// withShell adds programs of this machine, with the libraries they need, to the
// files of a test image.
func withShell(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	add := func(from, to string) {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[to] = string(content)
	}
	library := regexp.MustCompile(`(/\S+) \(0x`)
	for _, name := range []string{"dash", "find", "wc", "grep", "mktemp", "sort", "rm", "install", "ls", "mkdir", "basename"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		add(path, "/usr/bin/"+name)
		needs, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", path, err)
		}
		for _, match := range library.FindAllStringSubmatch(string(needs), -1) {
			add(match[1], match[1])
		}
	}
	files["/bin/sh"] = files["/usr/bin/dash"]
	return files
}

// extensionsWorkplace has a base with a package manager and one kernel, and an
// extensions image with metadata.
func extensionsWorkplace(t *testing.T) *workplace {
	t.Helper()
	return extensionsWorkplaceWith(t, "dnf", standInDNF)
}

func extensionsWorkplaceWith(t *testing.T, manager, standIn string) *workplace {
	t.Helper()
	w := newWorkplace(t, "")
	w.request.BaseImage = w.registry.Push(t, "os/packaged", registrytest.ImageSpec{
		Files: withShell(t, map[string]string{
			"/tmp/": "", "/var/": "", "/usr/share/": "", "/bin/tool": toolProgram,
			"/usr/bin/" + manager: standIn, "/usr/bin/rpm": standInRPM, "/usr/lib/modules/5/vmlinuz": "", "/etc/yum.repos.d/": "",
		}),
		Labels: registrytest.Bootable(),
	})
	w.request.ExtensionsImage = w.registry.Push(t, "os/rpms", registrytest.ImageSpec{Files: map[string]string{
		"/usr/share/rpm-ostree/extensions/repodata/repomd.xml": "",
		"/usr/share/rpm-ostree/extensions/extensions.json": `{"extensions":{
			"usbguard":{"packages":["usbguard"]}, "stubborn":{"packages":["stubborn"]}, "missing":{"packages":["missing"]},
			"kernel-rt":{"packages":["kernel-rt-core","kernel-rt-modules"],"match-base-evr":"kernel"}}}`,
	}})
	return w
}

func TestExtensions(t *testing.T) {
	w := extensionsWorkplace(t)
	w.options.KeepCredentials = true
	w.request.Extensions, w.request.KernelType = []string{"usbguard"}, "realtime"
	w.request.Containerfile = "FROM base\nRUN [\"/bin/tool\", \"expect\", \"/usr/lib/modules/rt/vmlinuz\", \"\\n\"]\n"
	result, image := w.mustBuild()
	if diff := cmp.Diff([]string{"base", "extensions", "user", "configs", "verify", "publish"}, stepNames(result)); diff != "" {
		t.Error(diff)
	}
	files := w.files(image, 1)
	install, remove := "install usbguard kernel-rt-core kernel-rt-modules\n", "remove kernel-core-5\n"
	if log := files["/usr/share/dnf.log"]; !strings.Contains(log, install) || !strings.Contains(log, remove) {
		t.Errorf("the package manager was called with\n%s", log)
	}
	if got := files["/usr/lib/tmpfiles.d/imagemode-extensions.conf"]; !strings.Contains(got, "d /var/log/usbguard 755 0 0 -\n") {
		t.Errorf("tmpfiles %q", got)
	}
	for path := range files {
		if strings.HasPrefix(path, "/run/") || strings.HasPrefix(path, "/tmp/tmp.") {
			t.Errorf("%s was left in the image", path)
		}
	}
	w.otherConfig()
	w.request.Containerfile = ""
	again, _ := w.mustBuild()
	if diff := cmp.Diff([]string{"extensions"}, reused(again)); diff != "" {
		t.Error(diff)
	}
}

// TestExtensionsWhereOnlyRPMOSTreeIs: the kernel changes in one command, and no
// repository is left behind.
func TestExtensionsWhereOnlyRPMOSTreeIs(t *testing.T) {
	w := extensionsWorkplaceWith(t, "rpm-ostree", standInRPMOSTree)
	w.options.KeepCredentials = true
	w.request.Extensions, w.request.KernelType = []string{"usbguard"}, "realtime"
	_, image := w.mustBuild()
	files := w.files(image, 1)
	want := "override remove kernel-core-5 --install=kernel-rt-core --install=kernel-rt-modules\ninstall -y usbguard\n"
	if got := files["/usr/share/dnf.log"]; got != want {
		t.Errorf("rpm-ostree was called with\n%swant\n%s", got, want)
	}
	if content, isThere := files["/etc/yum.repos.d/imagemode-extensions.repo"]; isThere {
		t.Errorf("the repository was left: %s", content)
	}
}

func TestExtensionsThatCannotBeInstalled(t *testing.T) {
	for name, test := range map[string]struct {
		extension string
		message   string
		last      string
	}{
		"one that the image does not have":         {"vim", `has no "vim"; it has kernel-rt, missing, stubborn, usbguard`, ""},
		"one that leaves two kernels":              {"stubborn", "exit status 65", "2 kernels are left"},
		"one that the package manager cannot find": {"missing", "exit status 1", "No match for argument"},
	} {
		t.Run(name, func(t *testing.T) {
			w := extensionsWorkplace(t)
			w.request.Extensions = []string{test.extension}
			result, err := w.build()
			if err == nil {
				t.Fatal("it was built")
			}
			got := result.Failure
			if got.Class != request.Config || got.Step != "extensions" || got.Line != 0 || !strings.Contains(got.Message, test.message) {
				t.Errorf("%+v", got)
			}
			if last := strings.Join(got.LastLines, "\n"); !strings.Contains(last, test.last) {
				t.Errorf("last lines %q", last)
			}
		})
	}
}

func TestPackagesFor(t *testing.T) {
	const metadata = `{"extensions":{"usbguard":{"packages":["usbguard","a"]},"kernel-rt":{"packages":["kernel-rt-core-5"]}}}`
	tests := map[string]struct {
		files   map[string]string
		request request.Request
		want    containerfiles.Packages
	}{
		"by the image's own metadata": {
			files:   map[string]string{extensionsMetadata: metadata},
			request: request.Request{Extensions: []string{"usbguard", "usbguard"}, KernelType: "realtime"},
			want:    containerfiles.Packages{Install: []string{"usbguard", "a"}, NewKernel: []string{"kernel-rt-core-5"}, OldKernel: defaultKernel},
		},
		"by the table": {
			request: request.Request{Extensions: []string{"kerberos"}},
			want:    containerfiles.Packages{Install: []string{"krb5-workstation", "libkadm5"}},
		},
		"a package of its own name": {
			request: request.Request{Extensions: []string{"figlet"}},
			want:    containerfiles.Packages{Install: []string{"figlet"}},
		},
		"packages of a kernel that only some releases have": {
			files:   map[string]string{extensionsDirectory + "/kernel-rt-kvm-5.14.rpm": ""},
			request: request.Request{KernelType: "realtime"},
			want: containerfiles.Packages{
				NewKernel: []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra", "kernel-rt-kvm"}, OldKernel: defaultKernel,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := packagesFor(&test.request, rootWith(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := packagesFor(&request.Request{Extensions: []string{"a"}}, rootWith(t, map[string]string{extensionsMetadata: "{"})); err == nil {
		t.Error("metadata that does not parse was accepted")
	}
}

func rootWith(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	directory := t.TempDir()
	for path, content := range files {
		if err := copyFile(filepath.Join(directory, path), strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestNoLinkOfAnImageLeadsOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte(`{"extensions":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	root := rootWith(t, map[string]string{extensionsDirectory + "/a": ""})
	if err := os.Symlink(outside, filepath.Join(root.Name(), extensionsMetadata)); err != nil {
		t.Fatal(err)
	}
	if _, err := readOffer(root); err == nil {
		t.Error("it was read")
	}
}
