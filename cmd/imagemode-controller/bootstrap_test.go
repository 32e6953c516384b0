package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBootstrapPrintsWhatItWrote(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	manifests, out := t.TempDir(), t.TempDir()
	text := "apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nspec:\n  defaultStream: rhel-9\n" +
		"  baseOSContainerImage: quay.io/ocp/os" + digest + "\n  baseOSExtensionsContainerImage: quay.io/ocp/extensions" + digest + "\n"
	if err := os.WriteFile(filepath.Join(manifests, "config.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	command := newCommand(nil)
	command.SetOut(&printed)
	command.SetArgs([]string{"bootstrap", "--manifests", manifests, "--out", out})
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(strings.TrimSpace(printed.String()))
	if err != nil || !strings.Contains(string(written), "defaultStream: rhel-9") {
		t.Errorf("%v: %s", err, written)
	}
	command = newCommand(nil)
	command.SetArgs([]string{"bootstrap", "--manifests", manifests})
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "out") {
		t.Errorf("without --out: %v", err)
	}
}
