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
