//go:build e2e

package ignition

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// host boots images with their own systemd: a Debian root file system as
// "make cluster-up" keeps it in its cache, the layers of a test laid over it, and
// one /var that stays, as on a bootc host.
type host struct {
	t         *testing.T
	directory string
}

func newHost(t *testing.T) *host {
	t.Helper()
	cache := os.Getenv("IMAGEMODE_CACHE")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache", "imagemode")
	}
	found, err := filepath.Glob(filepath.Join(cache, "osimage", "debian-12", "packages-*.tar.gz"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no OS image in %s: run \"make cluster-up\" once", cache)
	}
	// Not below the name of the test: mount options are parted by commas.
	directory, err := os.MkdirTemp("", "imagemode-boot-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	h := &host{t, directory}
	for _, name := range []string{"base", "upper", "work", "root"} {
		h.command("mkdir", h.path(name))
	}
	h.command("tar", "-C", h.path("base"), "-xzf", found[0])
	h.command("cp", "-a", h.path("base/var"), h.path("var"))
	h.command("mkdir", h.path("upper/etc"))
	for name, content := range map[string]string{
		// A machine that boots for the first time: systemd goes by presets then.
		"machine-id": "uninitialized\n",
		// /etc is newer than /usr, as it is where images have no times.
		".updated": "",
	} {
		if err := os.WriteFile(h.path("upper/etc/"+name), []byte(content), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.directory, name) }

func (h *host) command(name string, arguments ...string) {
	h.t.Helper()
	if output, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %s: %v: %s", name, strings.Join(arguments, " "), err, output)
	}
}

// boot starts an image, waits until it powers itself off, and gives what its
// units wrote to /var/said.
func (h *host) boot(name, raw string) string {
	h.t.Helper()
	layer, _ := makeLayer(h.t, raw)
	archive := h.path(name + ".tar.gz")
	if err := os.WriteFile(archive, layer.Data, 0o600); err != nil {
		h.t.Fatal(err)
	}
	if _, err := os.Stat(h.path(name)); err != nil {
		h.command("mkdir", h.path(name))
		h.command("tar", "-C", h.path(name), "-xzf", archive)
	}
	// What the host changed in /etc stays, file by file, as the merge of bootc has it.
	h.command("rm", "-rf", h.path("work"), h.path("var/said"))
	h.command("mkdir", h.path("work"))
	h.command("mount", "-t", "overlay", "overlay", "-o",
		"lowerdir="+h.path(name)+":"+h.path("base")+",upperdir="+h.path("upper")+",workdir="+h.path("work"), h.path("root"))
	defer h.command("umount", h.path("root"))
	h.nspawn()
	said, err := os.ReadFile(h.path("var/said"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return string(said)
}

func (h *host) nspawn() {
	h.t.Helper()
	// systemd-nspawn wants a terminal.
	boot := exec.Command("script", "-qec", "systemd-nspawn --register=no --keep-unit --private-network -D "+h.path("root")+
		" --bind="+h.path("var")+":/var -b", "/dev/null")
	output, err := os.Create(h.path("console"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer output.Close()
	boot.Stdout, boot.Stderr = output, output
	if err := boot.Start(); err != nil {
		h.t.Fatal(err)
	}
	deadline := time.AfterFunc(2*time.Minute, func() { _ = boot.Process.Kill() })
	defer deadline.Stop()
	if err := boot.Wait(); err != nil {
		console, _ := os.ReadFile(h.path("console"))
		h.t.Fatalf("the image did not power off: %v\n%s", err, console)
	}
}

// TestAScriptBelowVarOnABootedMachine: it is there for a unit that starts before
// everything else, already at the first boot of a new machine; it follows the
// image; and it goes when it leaves the config. Users come with each image, too.
func TestAScriptBelowVarOnABootedMachine(t *testing.T) {
	const units = `{"name":"early.service","enabled":true,"contents":"[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/usr/local/bin/say early\n[Install]\nWantedBy=sysinit.target\n"},`
	const last = `{"name":"last.service","enabled":true,"contents":"[Service]\nType=oneshot\nExecStart=-/usr/local/bin/say late\nExecStartPost=/bin/systemctl poweroff --no-block\n[Install]\nWantedBy=multi-user.target\n"}`
	with := func(text string) string {
		script := "data:,%23!%2Fbin%2Fsh%0Aecho%20" + text + "%20%241%20%3E%3E%20%2Fvar%2Fsaid%0A"
		return config(`"passwd":{"users":[{"name":"app","uid":950},{"name":"user-` + text + `","system":true}]},"systemd":{"units":[` + units + last + `]},
			"storage":{"files":[{"path":"/usr/local/bin/say","mode":493,"contents":{"source":"` + script + `"}},
			{"path":"/var/lib/app/secret","mode":384,"user":{"name":"app"},"contents":{"source":"data:,` + text + `"}}]}`)
	}
	h := newHost(t)
	for _, boot := range []struct{ image, raw, want string }{
		{"one", with("one"), "one early\none late\n"},
		{"two", with("two"), "two early\ntwo late\n"},
		{"two", with("two"), "two early\ntwo late\n"},
		{"one", with("one"), "one early\none late\n"},
		{"none", config(`"systemd":{"units":[` + last + `]}`), ""},
	} {
		if diff := cmp.Diff(boot.want, h.boot(boot.image, boot.raw)); diff != "" {
			console, _ := os.ReadFile(h.path("console"))
			t.Fatalf("%s: %s\n%s", boot.image, diff, console)
		}
		if users, err := os.ReadFile(h.path("upper/etc/passwd")); err != nil || boot.want != "" && !strings.Contains(string(users), "user-"+boot.image) {
			t.Errorf("%s: the user of the image is not in /etc/passwd: %s, %v", boot.image, users, err)
		}
		secret, err := os.ReadFile(h.path("var/lib/app/secret"))
		if boot.image == "none" && err == nil || boot.image != "none" && string(secret) != boot.image {
			t.Errorf("%s: /var/lib/app/secret holds %q, %v", boot.image, secret, err)
		}
	}
}
