package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root makes a root file system that passes all checks, changed by the pairs of
// path and content; "-> target" makes a link, "/" a directory, "" removes.
func root(t *testing.T, pairs ...string) string {
	t.Helper()
	directory := t.TempDir()
	all := append([]string{"dev", "/", "proc", "/", "sys", "/", "run", "/", "sysroot", "/", "ostree", "-> sysroot/ostree", "etc/os-release", "x", "var/run", "-> /run"}, pairs...)
	for i := 0; i < len(all); i += 2 {
		path, content := filepath.Join(directory, all[i]), all[i+1]
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := place(path, content); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func place(path, content string) error {
	target, isLink := strings.CutPrefix(content, "-> ")
	switch {
	case isLink:
		return os.Symlink(target, path)
	case content == "/":
		return os.Mkdir(path, 0o755)
	case content == "":
		return nil
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		change  []string
		options Options
		// report is a line of the output, failure the error.
		report, failure string
	}{
		"a good root": {report: "Checks passed: 10"},
		"a directory at /var/run": {
			change: []string{"var/run", "/"}, report: "Failed lint: var-run: Not a symlink: var/run", failure: "Checks failed: 1",
		},
		"a skipped check": {change: []string{"var/run", "/"}, options: Options{Skip: []string{"var-run"}}, report: "Checks passed: 9"},
		"/usr/etc beside /etc": {
			change:  []string{"usr/etc/x", "x"},
			report:  "Failed lint: etc-usretc: Found /usr/etc - this is a bootc implementation detail and not supported to use in containers",
			failure: "Checks failed: 1",
		},
		"kernel arguments": {change: []string{"usr/lib/bootc/kargs.d/10.toml", `kargs = ["quiet"]`}, report: "Checks passed: 10"},
		"kernel arguments with an unknown key": {
			change: []string{"usr/lib/bootc/kargs.d/10.toml", "kargs = []\nother = 1"},
			report: "Failed lint: bootc-kargs: Parsing 10.toml: unknown field `other`", failure: "Checks failed: 1",
		},
		"one kernel": {change: []string{"usr/lib/modules/6.1/vmlinuz", "x"}, report: "Checks passed: 10"},
		"two kernels": {
			change:  []string{"usr/lib/modules/6.1/vmlinuz", "x", "usr/lib/modules/6.2/vmlinuz", "x"},
			report:  "Failed lint: kernel: Found multiple kernels: usr/lib/modules/6.1/vmlinuz, usr/lib/modules/6.2/vmlinuz",
			failure: "Checks failed: 1",
		},
		"a name that is not UTF-8": {
			change: []string{"usr/share/\xff", "x"}, report: "Failed lint: utf8: /usr/share/?: Found non-utf8 filename", failure: "Checks failed: 1",
		},
		"a link target that is not UTF-8": {
			change: []string{"usr/share/l", "-> \xff"}, report: "Failed lint: utf8: /usr/share/l: Found non-utf8 symlink target", failure: "Checks failed: 1",
		},
		"no /proc": {
			change: []string{"proc", ""}, report: "Failed lint: api-base-directories: Missing API filesystem base directory: /proc", failure: "Checks failed: 1",
		},
		"no /sysroot": {change: []string{"sysroot", ""}, report: "Failed lint: baseimage-root: Missing /sysroot", failure: "Checks failed: 1"},
		"a wrong /ostree": {
			change: []string{"ostree", "-> elsewhere"}, report: "Failed lint: baseimage-root: Expected /ostree -> sysroot/ostree, not elsewhere", failure: "Checks failed: 1",
		},
		"a log is a warning": {change: []string{"var/log/dpkg.log", "x"}, report: "Lint warning: var-log: Found non-empty logfile: /var/log/dpkg.log"},
		"a warning may be fatal": {
			change: []string{"boot/x", "x"}, options: Options{FatalWarnings: true}, report: "Warnings: 1", failure: "Checks failed: 1",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(root(t, test.change...), test.options, &out)
			if got := message(err); got != test.failure {
				t.Errorf("error is %q, want %q", got, test.failure)
			}
			if !strings.Contains("\n"+out.String(), "\n"+test.report+"\n") {
				t.Errorf("reported\n%s\nwant the line %q", out.String(), test.report)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
