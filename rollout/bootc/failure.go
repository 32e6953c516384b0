package bootc

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// maxMessageBytes is the limit of Attempt.message in the API.
const maxMessageBytes = 1024

// Failure is what a failed bootc command means for the image it was about.
type Failure struct {
	Class v1alpha1.FailureClass
	// Permanent is true when the same command cannot succeed with this image.
	Permanent bool
	// Message is bootc's last error in one line of printable text.
	Message string
}

// pattern maps a text that bootc or the image library beneath it prints, in
// lower case, to a class.
type pattern struct {
	text      string
	class     v1alpha1.FailureClass
	permanent bool
}

// patterns is searched from the top: bootc has one exit code for all failures,
// so that the text is all there is, and a text can hold several of these
// ("unauthorized ... not found"). The narrow ones stand first.
var patterns = []pattern{
	// The image itself: nothing but another digest helps.
	{"does not have ostree.bootable label", v1alpha1.FailureImageInvalid, true},
	{"image has architecture", v1alpha1.FailureWrongArchitecture, true},
	{"a signature was required", v1alpha1.FailureSignature, true},
	{"insecureacceptanything", v1alpha1.FailureSignature, true},
	{"same fs-verity digest as the existing", v1alpha1.FailureImageInvalid, true},
	// The host: it heals when somebody mends the host, so that it is tried again.
	{"insufficient free space for", v1alpha1.FailureDiskFull, false},
	{"no space left on device", v1alpha1.FailureDiskFull, false},
	{"local rpm-ostree modifications", v1alpha1.FailureHostDrift, false},
	{"merge conflicts found in etc", v1alpha1.FailureHostDrift, false},
	{"system not booted via bootc", v1alpha1.FailureEnvironment, false},
	{"no image source specified", v1alpha1.FailureEnvironment, false},
	{"detected container", v1alpha1.FailureEnvironment, false},
	{"must be executed as the root user", v1alpha1.FailureEnvironment, false},
	{"requires full root privileges", v1alpha1.FailureEnvironment, false},
	{"read-only block device", v1alpha1.FailureEnvironment, false},
	{"missing base image ref", v1alpha1.FailureEnvironment, false},
	{"reading deployment metadata", v1alpha1.FailureEnvironment, false},
	// The way to the registry. Signatures come that way, too: one that could not be
	// fetched is no bad one, and that image must not be rejected for all nodes.
	{"connection refused", v1alpha1.FailureRegistry, false},
	{"connection reset", v1alpha1.FailureRegistry, false},
	{"i/o timeout", v1alpha1.FailureRegistry, false},
	{"deadline exceeded", v1alpha1.FailureRegistry, false},
	{"no such host", v1alpha1.FailureRegistry, false},
	{"no route to host", v1alpha1.FailureRegistry, false},
	{"network is unreachable", v1alpha1.FailureRegistry, false},
	{"tls handshake", v1alpha1.FailureRegistry, false},
	{"source image rejected", v1alpha1.FailureSignature, true},
	// The registry. A missing manifest is tried again: it may be pushed anew.
	{"unauthorized", v1alpha1.FailureAuthentication, false},
	{"authentication required", v1alpha1.FailureAuthentication, false},
	{"denied", v1alpha1.FailureAuthentication, false},
	{"manifest unknown", v1alpha1.FailureImageGone, false},
	{"name unknown", v1alpha1.FailureImageGone, false},
	{"x509", v1alpha1.FailureRegistry, false},
	{"unexpected http status: 5", v1alpha1.FailureRegistry, false},
	{"toomanyrequests", v1alpha1.FailureRegistry, false},
	{"too many requests", v1alpha1.FailureRegistry, false},
	{"internal server error", v1alpha1.FailureRegistry, false},
	{"bad gateway", v1alpha1.FailureRegistry, false},
	{"service unavailable", v1alpha1.FailureRegistry, false},
	{"gateway timeout", v1alpha1.FailureRegistry, false},
	{"unexpected eof", v1alpha1.FailureRegistry, false},
	{"not found", v1alpha1.FailureImageGone, false},
	{"signature", v1alpha1.FailureSignature, true},
}

// Classify reads what a failed command printed to stderr. A text that is not
// known is Internal and tried again.
func Classify(stderr string) Failure {
	message := lastError(stderr)
	text := strings.ToLower(message)
	for _, p := range patterns {
		if strings.Contains(text, p.text) {
			return Failure{Class: p.class, Permanent: p.permanent, Message: message}
		}
	}
	return Failure{Class: v1alpha1.FailureInternal, Message: message}
}

// lastError is bootc's error line ("error: outer: inner"), or the last line
// that says anything.
func lastError(stderr string) string {
	lines := strings.Split(stderr, "\n")
	last := ""
	for i := len(lines) - 1; i >= 0; i-- {
		line := OneLine(lines[i])
		if strings.HasPrefix(strings.ToLower(line), "error") {
			return line
		}
		if last == "" {
			last = line
		}
	}
	return last
}

// OneLine makes a text fit for a status field: one line, printable, within the
// API's limit, cut between characters.
func OneLine(text string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
	clean = strings.Join(strings.Fields(clean), " ")
	if len(clean) <= maxMessageBytes {
		return clean
	}
	cut := maxMessageBytes - len("…")
	for !utf8.RuneStart(clean[cut]) {
		cut--
	}
	return clean[:cut] + "…"
}
