package bootc_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		stderr    string
		class     v1alpha1.FailureClass
		permanent bool
	}{
		"too little room for the layers":        {"error: Switching: Preparing: Insufficient free space for /sysroot (available: 1 GB required: 2 GB)", v1alpha1.FailureDiskFull, false},
		"the disk ran full":                     {"error: Importing: write: No space left on device (os error 28)", v1alpha1.FailureDiskFull, false},
		"an image that cannot boot":             {"error: Switching: Target image does not have ostree.bootable label", v1alpha1.FailureImageInvalid, true},
		"another architecture":                  {"error: Image has architecture arm64; expected amd64", v1alpha1.FailureWrongArchitecture, true},
		"a digest that is gone":                 {"error: Switching: reading manifest sha256:ab in r.example/os: manifest unknown", v1alpha1.FailureImageGone, false},
		"a repository that is not there":        {"error: name unknown: repository name not known to registry", v1alpha1.FailureImageGone, false},
		"no credentials":                        {"error: reading manifest: unauthorized: authentication required", v1alpha1.FailureAuthentication, false},
		"unauthorized, said as not found":       {"error: unauthorized: repository not found", v1alpha1.FailureAuthentication, false},
		"credentials without the right":         {"error: requested access to the resource is denied", v1alpha1.FailureAuthentication, false},
		"no registry":                           {"error: pinging container registry 10.0.0.1:5000: dial tcp: connect: connection refused", v1alpha1.FailureRegistry, false},
		"no name":                               {"error: lookup r.example: no such host", v1alpha1.FailureRegistry, false},
		"an unknown certificate":                {"error: tls: failed to verify certificate: x509: certificate signed by unknown authority", v1alpha1.FailureRegistry, false},
		"a registry that is overrun":            {"error: toomanyrequests: rate limit exceeded", v1alpha1.FailureRegistry, false},
		"a registry that is broken":             {"error: received unexpected HTTP status: 502 Bad Gateway", v1alpha1.FailureRegistry, false},
		"no signature":                          {"error: Source image rejected: A signature was required, but no signature exists", v1alpha1.FailureSignature, true},
		"no policy for signatures":              {"error: containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage", v1alpha1.FailureSignature, true},
		"packages layered by hand":              {"error: Deployment contains local rpm-ostree modifications; cannot upgrade via bootc", v1alpha1.FailureHostDrift, false},
		"a signature that could not be fetched": {"error: Source image rejected: reading signatures: dial tcp 10.0.0.1:443: connect: connection refused", v1alpha1.FailureRegistry, false},
		"an image that the policy rejects":      {"error: Source image rejected: Running image docker://r.example/os is rejected by policy.", v1alpha1.FailureSignature, true},
		"a signature of somebody else":          {"error: Switching: signature verification failed", v1alpha1.FailureSignature, true},
		"a registry that does not answer":       {"error: Get https://r.example/v2/: dial tcp: i/o timeout", v1alpha1.FailureRegistry, false},
		"a registry that hangs up":              {"error: net/http: TLS handshake timeout", v1alpha1.FailureRegistry, false},
		"a proxy's own status":                  {"error: received unexpected HTTP status: 521 <nil>", v1alpha1.FailureRegistry, false},
		"anonymous, and not allowed":            {"error: authentication required", v1alpha1.FailureAuthentication, false},
		"something that was not found":          {"error: Fetching layer sha256:ab: not found", v1alpha1.FailureImageGone, false},
		"a host that bootc did not make":        {"error: System not booted via bootc.", v1alpha1.FailureEnvironment, false},
		"nothing to follow":                     {"error: No image source specified", v1alpha1.FailureEnvironment, false},
		"not root":                              {"error: This command must be executed as the root user", v1alpha1.FailureEnvironment, false},
		"root without its rights":               {"error: This command requires full root privileges (CAP_SYS_ADMIN)", v1alpha1.FailureEnvironment, false},
		"a medium that is read-only":            {"error: Cannot perform this operation: /sysroot is on a read-only block device", v1alpha1.FailureEnvironment, false},
		"another kind of damage":                {"error: Reading deployment metadata: Reading manifest data from commit", v1alpha1.FailureEnvironment, false},
		"files of /etc that cannot be merged":   {"error: Merge conflicts found in etc", v1alpha1.FailureHostDrift, false},
		"the same deployment twice":             {"error: the image has the same fs-verity digest as the existing booted deployment", v1alpha1.FailureImageInvalid, true},
		"a warning alone":                       {"notice: Image is missing label: containers.bootc", v1alpha1.FailureInternal, false},
		"in a container":                        {"error: Detected container; this command requires a booted host system.", v1alpha1.FailureEnvironment, false},
		"a damaged repository":                  {"error: Missing base image ref", v1alpha1.FailureEnvironment, false},
		"a text that nobody knows":              {"error: the moon is in the wrong phase", v1alpha1.FailureInternal, false},
		"progress after the error":              {"layers already present: 3\nerror: connection refused\nnotice: gone\n", v1alpha1.FailureRegistry, false},
		"a warning before another error":        {"notice: signature policy is permissive\nerror: connection refused", v1alpha1.FailureRegistry, false},
		"nothing at all":                        {"", v1alpha1.FailureInternal, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := bootc.Classify(test.stderr)
			if got.Class != test.class || got.Permanent != test.permanent {
				t.Errorf("got %s, permanent %t; want %s, %t", got.Class, got.Permanent, test.class, test.permanent)
			}
		})
	}
}

// TestOneLineFitsTheAPI: whatever a command prints, the status can be written.
func TestOneLineFitsTheAPI(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 3000, -1).Draw(t, "text") + string(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes"))
		line := bootc.OneLine(text)
		if len(line) > 1024 || !utf8.ValidString(line) || strings.ContainsAny(line, "\n\r\t\x00\x1b") {
			t.Fatalf("%q became %q", text, line)
		}
	})
}
