package bootc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/imagemode/imagemode/rollout/bootc"
)

func TestParseReference(t *testing.T) {
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"host, port and repository":    {"10.89.0.1:5000/os/worker@" + digestA, true},
		"a host without a port":        {"registry.example.com/team/os-image_x@" + digestA, true},
		"a tag":                        {"registry.example.com/os:latest", false},
		"a tag and a digest":           {"registry.example.com/os:latest@" + digestA, false},
		"no repository":                {"registry.example.com@" + digestA, false},
		"another algorithm":            {"registry.example.com/os@sha512:" + strings.Repeat("a", 128), false},
		"a digest that is too short":   {"registry.example.com/os@" + digestA[:70], false},
		"an upper-case digest":         {"registry.example.com/os@sha256:" + strings.Repeat("A", 64), false},
		"an option":                    {"--transport=oci/x@" + digestA, false},
		"a host that is an option":     {"-x/os@" + digestA, false},
		"a blank":                      {"registry.example.com/o s@" + digestA, false},
		"a second line":                {"registry.example.com/os@" + digestA + "\n", false},
		"a shell's word":               {"registry.example.com/$(reboot)@" + digestA, false},
		"a path that climbs":           {"registry.example.com/../os@" + digestA, false},
		"nothing":                      {"", false},
		"longer than the API allows":   {"registry.example.com/" + strings.Repeat("a", 400) + "@" + digestA, false},
		"a transport before the image": {"docker://registry.example.com/os@" + digestA, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reference, err := bootc.ParseReference(test.text)
			if (err == nil) != test.ok {
				t.Fatalf("error %v, want accepted = %t", err, test.ok)
			}
			if test.ok && (reference.String() != test.text || reference.Digest() != digestA) {
				t.Errorf("got %q with digest %q", reference, reference.Digest())
			}
		})
	}
}

func TestArguments(t *testing.T) {
	image, err := bootc.ParseReference("registry.example/os@" + digestA)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		got  []string
		want string
		verb bootc.Verb
	}{
		"status in its one stable form":      {bootc.StatusArguments(), "status --json --format-version=1", ""},
		"staging where switch cannot lock":   {bootc.StageArguments(image, bootc.Features{UpgradeLocks: true}), "switch --quiet " + image.String(), bootc.Stage},
		"staging where switch can lock":      {bootc.StageArguments(image, bootc.Features{SwitchLocks: true}), "switch --quiet --download-only " + image.String(), bootc.Stage},
		"locking what is staged":             {bootc.LockArguments(), "upgrade --quiet --download-only", bootc.Lock},
		"unlocking, without --apply":         {bootc.UnlockArguments(), "upgrade --quiet --from-downloaded", bootc.Unlock},
		"the help, which is no change":       {bootc.SwitchHelpArguments(), "switch --help", ""},
		"the other help, which is none, too": {bootc.UpgradeHelpArguments(), "upgrade --help", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{"/usr/bin/bootc"}, strings.Fields(test.want)...), test.got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			verb, described := bootc.Describe(test.got)
			if verb != test.verb || (verb == bootc.Stage && described != image) {
				t.Errorf("described as %q of %q, want %q", verb, described, test.verb)
			}
		})
	}
}

// TestNoArgumentIsUnvalidated holds the rule that nothing reaches a command
// line that could be an option, a second argument or a tag.
func TestNoArgumentIsUnvalidated(t *testing.T) {
	text := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[-a-z0-9.:/@ \n$]{0,40}@sha256:[0-9a-fA-F]{62,66}`),
		rapid.StringMatching(`[-a-z0-9.]{1,20}(:[0-9]{1,6})?(/[-a-z0-9._]{1,10}){0,3}@sha256:[0-9a-f]{64}`),
		rapid.StringMatching(`[a-z][a-z0-9]{0,10}\.example(/[a-z0-9]{1,10}){1,3}@sha256:[0-9a-f]{64}`), // every one is a reference
	)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		image, err := bootc.ParseReference(text.Draw(t, "text"))
		if err != nil {
			return
		}
		accepted++
		arguments := bootc.StageArguments(image, bootc.Features{})
		last := arguments[len(arguments)-1]
		if strings.HasPrefix(last, "-") || strings.ContainsAny(last, " \t\n$;&|\\\"'") || strings.Count(last, "@sha256:") != 1 {
			t.Fatalf("argument %q was accepted", last)
		}
	})
	if accepted == 0 {
		t.Error("no reference was accepted: the property was not tried")
	}
}

func TestParseFeatures(t *testing.T) {
	tests := map[string]struct {
		switchHelp, upgradeHelp string
		want                    bootc.Features
	}{
		"a bootc before 1.12":        {"Usage: bootc switch [OPTIONS] <TARGET>\n      --apply", "      --check\n      --apply", bootc.Features{}},
		"a bootc from 1.12 on":       {"      --apply", "      --download-only  Download\n      --from-downloaded\n", bootc.Features{UpgradeLocks: true}},
		"a bootc whose switch locks": {"  [--download-only]", "--download-only --from-downloaded", bootc.Features{SwitchLocks: true, UpgradeLocks: true}},
		"an option with a like name": {"--download-only-layers", "--download-only-layers --from-downloaded", bootc.Features{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, bootc.ParseFeatures(test.switchHelp, test.upgradeHelp)); diff != "" {
				t.Errorf("features (-want +got):\n%s", diff)
			}
		})
	}
}
