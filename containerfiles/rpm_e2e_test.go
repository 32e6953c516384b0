//go:build e2e

package containerfiles

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	rpmManager = flag.String("rpm.manager", "dnf", "package manager of the system that packages are installed on: dnf or dnf5")
	rpmSuite   = flag.String("rpm.suite", "bookworm", "Debian's suite that has the package manager")
)

// rpmPackage is one that holds the named files, each with its path for content; a
// path that ends in a slash is a directory.
type rpmPackage struct {
	name, requires string
	files          []string
}

// TestRPM installs extensions and another kernel on a system of RPM packages with
// the package manager itself. The system is Debian's, which has both dnf and dnf5;
// its packages and those of the extensions image are made on it.
func TestRPM(t *testing.T) {
	root := newRPMSystem(t)
	root.makePackage(rpmPackage{"kernel-core", "", []string{"/usr/lib/modules/1.0/vmlinuz", "/usr/lib/modules/1.0/initramfs.img"}})
	root.run("rpm --nodeps -i /rpms/kernel-core-*.rpm && rm /rpms/*")
	for _, one := range []rpmPackage{
		{"kernel-rt-core", "", []string{"/usr/lib/modules/2.0-rt/vmlinuz", "/usr/lib/modules/2.0-rt/initramfs.img"}},
		{"libusbguard", "", []string{"/usr/lib/libusbguard.so"}},
		{"usbguard", "libusbguard", []string{"/usr/bin/usbguard", "/var/lib/usbguard/"}},
		{"unwanted", "", []string{"/usr/bin/unwanted"}},
	} {
		root.makePackage(one)
	}
	const repository = "/run/extensions/usr/share/rpm-ostree/extensions"
	root.run("createrepo_c -q /rpms && mkdir -p " + filepath.Dir(repository) + " && mv /rpms " + repository)

	plan, err := Extensions(Packages{Install: []string{"usbguard"}, NewKernel: []string{"kernel-rt-core"}, OldKernel: []string{"kernel-core", "kernel"}})
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(plan.Text, "<<'END-OF-EXTENSIONS'\n")
	script, _, _ = strings.Cut(script, "END-OF-EXTENSIONS\n")
	root.write("/script", script)
	before := root.run("echo; find /etc /var/log /var/cache ! -type d")
	t.Log(root.run("sh /script 2>&1"))

	if diff := cmp.Diff("kernel-rt-core libusbguard usbguard", strings.Join(strings.Fields(root.run("rpm -qa --qf '%{NAME}\n' | sort")), " ")); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if kernels := strings.TrimSpace(root.run("ls /usr/lib/modules")); kernels != "2.0-rt" {
		t.Errorf("kernels %q", kernels)
	}
	if made := root.run("cat /usr/lib/tmpfiles.d/imagemode-extensions.conf"); !strings.Contains(made, "d /var/lib/usbguard 755 root root -\n") {
		t.Errorf("directories that boot makes:\n%s", made)
	}
	for path := range strings.Lines(root.run("find /etc /var/log /var/cache ! -type d")) {
		if !strings.Contains(before, "\n"+path) {
			t.Errorf("left behind: %s", path)
		}
	}
}

// rpmSystem is a root directory with a package manager of RPM and without apt.
type rpmSystem struct {
	*testing.T
	directory string
}

func newRPMSystem(t *testing.T) rpmSystem {
	t.Helper()
	s := rpmSystem{t, filepath.Join(t.TempDir(), "root")}
	// A mirror may lag behind: the lists of a suite that changes daily expire soon.
	made := exec.Command("mmdebstrap", "--variant=minbase", `--aptopt=Acquire::Check-Valid-Until "false"`, "--include="+*rpmManager+",rpm,createrepo-c", *rpmSuite, s.directory)
	if said, err := made.CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, said)
	}
	s.run("rm /usr/bin/apt-get && mkdir /rpms && command -v " + *rpmManager)
	return s
}

// run runs a script on the system; what it mounts goes with its namespace.
func (s rpmSystem) run(script string) string {
	s.Helper()
	command := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
		`mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" sh -euc "$1"`, s.directory, script)
	var said bytes.Buffer
	command.Stderr = &said
	output, err := command.Output()
	if err != nil {
		s.Fatalf("%s: %v\n%s%s", script, err, output, said.String())
	}
	return string(output)
}

func (s rpmSystem) write(path, content string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.directory, path), []byte(content), 0o644); err != nil {
		s.Fatal(err)
	}
}

// makePackage puts a package in /rpms.
func (s rpmSystem) makePackage(p rpmPackage) {
	s.Helper()
	spec := fmt.Sprintf("Name: %s\nVersion: 1\nRelease: 1\nSummary: A test\nLicense: none\nBuildArch: noarch\n", p.name)
	if p.requires != "" {
		spec += "Requires: " + p.requires + "\n"
	}
	spec += "%description\nA test.\n%install\n"
	listed := "%files\n"
	for _, path := range p.files {
		if directory, isOne := strings.CutSuffix(path, "/"); isOne {
			spec += "mkdir -p %{buildroot}" + directory + "\n"
			listed += "%dir " + directory + "\n"
			continue
		}
		spec += fmt.Sprintf("mkdir -p %%{buildroot}%s && echo %s >%%{buildroot}%s\n", filepath.Dir(path), path, path)
		listed += path + "\n"
	}
	s.write("/spec", spec+listed)
	s.run("rpmbuild --quiet --define '_topdir /made' -bb /spec 2>&1 && mv /made/RPMS/noarch/*.rpm /rpms/ && rm -r /made /spec")
}
