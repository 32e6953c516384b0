package streams

import (
	"strings"
	"testing"
)

func TestResolveHosted(t *testing.T) {
	for _, tc := range []struct {
		explicit, version string
		runc              bool
		want, failure     string
	}{
		{"rhel-9", "4.20.0", false, "rhel-9", ""},
		{"rhel-9", "4.20.0", true, "rhel-9", ""},
		{"rhel-9", "5.0.0", false, "rhel-9", ""},
		{"rhel-9", "5.0.0", true, "rhel-9", ""},
		{"rhel-9", "5.1.0", false, "rhel-9", ""},
		{"rhel-9", "5.1.0", true, "rhel-9", ""},
		{"rhel-10", "4.20.0", false, "", "requires release 5.0"},
		{"rhel-10", "4.20.0", true, "", "requires release 5.0"},
		{"rhel-10", "5.0.0", false, "rhel-10", ""},
		{"rhel-10", "5.1.3", false, "rhel-10", ""},
		{"rhel-10", "6.0.0", false, "rhel-10", ""},
		{"rhel-10", "10.0.0", false, "rhel-10", ""},
		{"rhel-10", "5.0.0-0.nightly-2026-05-01-120000", false, "rhel-10", ""},
		{"rhel-10", "5.0.0", true, "", "incompatible with runc"},
		{"rhel-10", "5.1.0", true, "", "incompatible with runc"},
		{"rhel-8", "4.20.0", false, "", "does not exist"},
		{"rhel-8", "4.20.0", true, "", "does not exist"},
		{"rhel-8", "5.0.0", false, "", "does not exist"},
		{"rhel-8", "5.0.0", true, "", "does not exist"},
		{"rhel-8", "5.1.0", false, "", "does not exist"},
		{"rhel-8", "5.1.0", true, "", "does not exist"},
		{"centos-10", "5.0.0", false, "", "does not exist"},
		{"", "4.20.0", false, "rhel-9", ""},
		{"", "4.20.0", true, "rhel-9", ""},
		{"", "5.0.0", true, "rhel-9", ""},
		{"", "5.1.0", true, "rhel-9", ""},
		{"", "5.0.0", false, "rhel-10", ""},
		{"", "5.1.0", false, "rhel-10", ""},
		{"", "6.0.0", false, "rhel-10", ""},
		{"", "5.0.0-0.nightly-2026-05-01-120000", false, "rhel-10", ""},
		{"", "x", false, "", "not of the form"},
		{"rhel-9", "", false, "", "not of the form"},
	} {
		got, err := ResolveHosted(HostedRequest{Explicit: tc.explicit, Version: tc.version, UsesRunc: tc.runc})
		if got != tc.want || (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
			t.Errorf("%q, %q, runc %t: %q, %v; want %q, %q", tc.explicit, tc.version, tc.runc, got, err, tc.want, tc.failure)
		}
	}
}

func TestHostedHashStream(t *testing.T) {
	for _, tc := range []struct {
		explicit, version string
		runc              bool
		want              string
	}{
		{"", "5.0.0", false, ""},
		{"rhel-10", "5.0.0", false, ""}, // the default set explicitly
		{"rhel-9", "5.0.0", false, "rhel-9"},
		{"rhel-9", "4.20.0", false, ""},
		{"rhel-9", "5.0.0", true, ""}, // what runc gives anyway
		{"rhel-10", "4.20.0", false, "rhel-10"},
	} {
		if got := HostedHashStream(HostedRequest{tc.explicit, tc.version, tc.runc}); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}
