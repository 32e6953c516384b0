package ignition

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the golden tests find into testdata")

// TestGoldenLayers compares whole layers with those in testdata/layers: every
// entry with kind, mode, owner and the beginning of its SHA-256, the diff ID,
// and the text of everything that imagemode adds itself. An image changes for
// everybody when one of them does.
func TestGoldenLayers(t *testing.T) {
	inputs, err := filepath.Glob("testdata/layers/*.json")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(input, ".json")
		t.Run(filepath.Base(name), func(t *testing.T) {
			got := describeLayer(t, input)
			if *update {
				if err := os.WriteFile(name+".layer", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name + ".layer")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run go test ./ignition -run Golden -update if this is meant:\n%s", diff)
			}
		})
	}
}

// goldenInput is a rendered MachineConfig as far as it counts here.
type goldenInput struct {
	// Read says that the base image is the one of system, else DefaultBase.
	Read            bool
	KernelArguments []string
	Config          json.RawMessage
}

func describeLayer(t *testing.T, input string) string {
	t.Helper()
	raw, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	var golden goldenInput
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	base := DefaultBase()
	if golden.Read {
		base = system()
	}
	layer, found := makeLayerOn(t, base, string(golden.Config), golden.KernelArguments...)
	if problems, err := Lint(layer.Data); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	var text, own strings.Builder
	for _, line := range found.entries {
		path := "/" + strings.SplitN(line, " ", 4)[3]
		if content, isFile := found.contents[path]; isFile {
			line += fmt.Sprintf(" %.12x", sha256.Sum256([]byte(content)))
			if isAdded(path) {
				fmt.Fprintf(&own, "\n== %s\n%s", path, content)
			}
		}
		text.WriteString(line + "\n")
	}
	fmt.Fprintf(&text, "%s\n%s", layer.DiffID, own.String())
	return text.String()
}

// isAdded reports whether a file of a layer is not the config's.
func isAdded(path string) bool {
	for _, own := range []string{ownDir, kargsPath, sysusersPath, presetPath, baseUnitDir + "/" + varUnit, baseUnitDir + "/" + changeUnit, baseUnitDir + "/" + accountsUnit} {
		if isBelow(path, own) {
			return true
		}
	}
	return strings.HasSuffix(path, "/50-imagemode-var.conf")
}
