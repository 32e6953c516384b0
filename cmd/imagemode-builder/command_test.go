package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/builder/request"
)

func execute(arguments ...string) (string, error) {
	var out bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(arguments)
	err := command.Execute()
	return out.String(), err
}

func TestCommandLine(t *testing.T) {
	empty := t.TempDir()
	tests := map[string]struct {
		arguments []string
		output    string
		fails     string
	}{
		"help names both commands":              {[]string{"--help"}, "copy-credentials", ""},
		"help of build says what is read":       {[]string{"build", "--help"}, "request.json.gz", ""},
		"copy-credentials needs its flags":      {[]string{"copy-credentials"}, "", "needs --from and --to"},
		"an argument that is not expected":      {[]string{"build", "now"}, "", "unknown command"},
		"help of build says what is kept":       {[]string{"build", "--help"}, "step-<key>", ""},
		"a dry run without a request":           {[]string{"build", "--dir", empty, "--dry-run"}, "", "request.json.gz"},
		"a request that is not there":           {[]string{"build", "--request", empty + "/none.json", "--storage", empty}, "", "there is no build request " + empty + "/none.json; name a file with one (--request)"},
		"a directory without a request":         {[]string{"build", "--dir", empty, "--storage", empty}, "", "a directory that holds request.json.gz (--dir)"},
		"credentials that are not there":        {[]string{"build", "--request", "r.json", "--dry-run", "--authfile", empty + "/none.json"}, "", "--authfile " + empty + "/none.json: there is no file"},
		"credentials that are a directory":      {[]string{"build", "--request", "r.json", "--dry-run", "--authfile", empty}, "", "is no file"},
		"a directory that is not there":         {[]string{"build", "--request", "r.json", "--dir", empty + "/none"}, "", "--dir " + empty + "/none: there is no directory"},
		"a result that could not be written":    {[]string{"build", "--request", "r.json", "--result", empty + "/none/result"}, "", "there is no directory " + empty + "/none"},
		"an output that is no layout":           {[]string{"build", "--request", "r.json", "--output", "dir:" + empty}, "", `--output "dir:` + empty + `": only an image layout, oci:DIRECTORY`},
		"an output without a directory":         {[]string{"build", "--request", "r.json", "--output", "oci:"}, "", "only an image layout, oci:DIRECTORY"},
		"help of build has a request":           {[]string{"build", "--help"}, `"baseImage": "registry.example.com`, ""},
		"copying from where there are no files": {[]string{"copy-credentials", "--from", empty, "--to", empty}, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			output, err := execute(test.arguments...)
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			if !strings.Contains(output, test.output) {
				t.Errorf("output %q, want %q", output, test.output)
			}
		})
	}
}

// TestTheRequestInTheHelpIsRead, once it names an image.
func TestTheRequestInTheHelpIsRead(t *testing.T) {
	help, err := execute("build", "--help")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(help, "\n  {\n")
	text, _, found := strings.Cut(text, "\n  }\n")
	if !found {
		t.Fatalf("no request in %s", help)
	}
	text = strings.ReplaceAll("{"+text+"}", "<64 hex>", strings.Repeat("0", 64))
	if _, err := request.DecodeLocal(strings.NewReader(text), true); err != nil {
		t.Error(err)
	}
}

func TestCredentialsThatTheEnvironmentNamesHaveToBeThere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.json")
	t.Setenv("REGISTRY_AUTH_FILE", missing)
	if _, err := execute("build", "--request", "r.json", "--dry-run"); err == nil || !strings.Contains(err.Error(), "REGISTRY_AUTH_FILE="+missing+": there is no file") {
		t.Errorf("%v", err)
	}
}

func TestAFailureIsWrittenToTheResult(t *testing.T) {
	directory := t.TempDir()
	result := filepath.Join(directory, "result")
	if _, err := execute("build", "--dir", directory, "--storage", directory, "--result", result); err == nil {
		t.Fatal("a build without a request succeeded")
	}
	message, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	got, err := request.DecodeResult(message)
	if err != nil {
		t.Fatal(err)
	}
	if got.Failure == nil || got.Failure.Class != request.Internal || got.Failure.Step != "inputs" {
		t.Errorf("%+v", got.Failure)
	}
}
