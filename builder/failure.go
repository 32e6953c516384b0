package builder

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/containerfiles"
	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// userError is what a Containerfile failed with.
type userError struct {
	// line of the user's text; 0: not known.
	line int
	// instruction that ran, as the user wrote it.
	instruction string
	lastLines   []string
	err         error
}

func (e *userError) Error() string {
	if e.line > 0 {
		return fmt.Sprintf("Containerfile line %d: %v", e.line, e.err)
	}
	return e.err.Error()
}

func (e *userError) Unwrap() error { return e.err }

// lintError is an image in which bootc's own checks failed.
type lintError struct{ userError }

func (e *lintError) Error() string { return "bootc container lint found that the image could not boot" }
func (e *lintError) Unwrap() error { return e.err }

// isRegistryError reports whether err came from a pull.
func isRegistryError(err error) bool {
	var coder errcode.ErrorCoder
	var list errcode.Errors
	var network *net.OpError
	var status docker.UnexpectedHTTPStatusError
	var unauthorized docker.ErrUnauthorizedForCredentials
	return errors.As(err, &coder) || errors.As(err, &list) || errors.As(err, &network) ||
		errors.As(err, &status) || errors.As(err, &unauthorized) || errors.Is(err, docker.ErrTooManyRequests) ||
		transportName.MatchString(err.Error()) // a proxy's answer has no type of its own
}

// failureOf makes the Failure that a user sees of a step's error.
func failureOf(step string, err error) *request.Failure {
	failure := &request.Failure{Class: classOf(err), Step: step, Message: err.Error()}
	var text *containerfiles.Error
	if errors.As(err, &text) {
		failure.Line = text.Line
	}
	var user *userError
	if errors.As(err, &user) {
		failure.Line = user.line
		failure.LastLines = user.lastLines
		failure.ExitCode = exitCode(err)
		failure.Message = userMessage(user, failure)
	}
	var packages *packagesError
	if errors.As(err, &packages) {
		failure.Message = packagesMessage(failure)
	}
	var lint *lintError
	if errors.As(err, &lint) {
		failure.LastLines = lint.lastLines
	}
	failure.Repository = repositoryIn(err)
	return failure
}

// transportName finds the image in an error of a library that keeps it in its text.
var transportName = regexp.MustCompile(`docker://([^\s"]+)`)

// repositoryIn is the repository that an error of a registry is about; empty: it is
// not about one, or does not say.
func repositoryIn(err error) string {
	var remote *registry.Error
	var user *userError
	name := ""
	switch {
	case errors.As(err, &remote):
		name = remote.Image
	case errors.As(err, &user) && exitCode(user.err) == 0 && isRegistryError(user.err):
		if found := transportName.FindStringSubmatch(user.err.Error()); found != nil {
			name = strings.TrimRight(found[1], ":,")
		}
	}
	named, err := reference.ParseNormalizedNamed(name)
	if name == "" || err != nil {
		return ""
	}
	return named.Name()
}

// userMessage says in one sentence what failed; the output follows by itself.
func userMessage(user *userError, failure *request.Failure) string {
	if failure.ExitCode == 0 {
		return user.Error()
	}
	where := user.instruction
	if len(where) > 120 {
		where = clean(where[:120]) + "…"
	}
	message := fmt.Sprintf("line %d: %s: exit status %d", user.line, where, failure.ExitCode)
	if failure.Class == request.Network {
		message += " (a package manager or program could not reach the network)"
	}
	return message
}

// packagesMessage says what failed where the user asked for packages by name.
func packagesMessage(failure *request.Failure) string {
	message := "the package manager of the OS image could not install the extensions or the kernel"
	if failure.ExitCode != 0 {
		message += fmt.Sprintf(": exit status %d", failure.ExitCode)
	}
	return message
}

// exitCode is that of a program in a RUN; 0: there was none.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// classOf says who can mend err.
func classOf(err error) request.FailureClass {
	var (
		text      *containerfiles.Error
		refused   *ignition.RefusedError
		config    *configError
		image     *imageError
		lint      *lintError
		user      *userError
		remote    *registry.Error
		installed *packagesError
	)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EDQUOT):
		return request.Resources
	case errors.As(err, &installed) && classOfUser(installed.userError) == request.Containerfile:
		return request.Config // there is no text: the names in the MachineConfig are wrong
	case errors.As(err, &text):
		return request.Containerfile
	case errors.As(err, &refused), errors.As(err, &config):
		return request.Config
	case errors.As(err, &image), errors.As(err, &lint):
		return request.Image
	case errors.As(err, &user):
		return classOfUser(user)
	case errors.As(err, &remote):
		return remote.Class
	case containsAny(err.Error(), resourceTexts):
		// A helper process reports what it met as text.
		return request.Resources
	}
	return request.Internal
}

// classOfUser tells the user's own mistakes from a network or a disk that
// failed under them, and from an image that could not be pulled. Of a program
// that ran, its output is all there is to go by.
func classOfUser(user *userError) request.FailureClass {
	output := strings.Join(append(user.lastLines, user.err.Error()), "\n")
	switch {
	case exitCode(user.err) == 0 && isRegistryError(user.err):
		return registry.Classify(user.err)
	case containsAny(output, resourceTexts):
		return request.Resources
	case exitCode(user.err) == 137, strings.Contains(user.err.Error(), "signal: killed"):
		// 137 is 128+9: nothing but the kernel's memory killer sends it here.
		return request.Resources
	case containsAny(output, networkTexts):
		return request.Network
	}
	return request.Containerfile
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// resourceTexts are said by programs that ran out of disk or memory.
var resourceTexts = []string{
	"No space left on device",
	"no space left on device",
	"Disk quota exceeded",
	"Cannot allocate memory",
}

// networkTexts are said by package managers, curl and the like when they could
// not reach what they asked for.
var networkTexts = []string{
	"Could not resolve host",
	"Could not resolve '",
	"Temporary failure in name resolution",
	"Temporary failure resolving",
	"Name or service not known",
	"Network is unreachable",
	"No route to host",
	"Connection timed out",
	"Connection refused",
	"Failed to connect to",
	"Could not connect to",
	"Unable to connect to",
	"Operation timed out",
	"Curl error (6)",
	"Curl error (7)",
	"Curl error (28)",
	"Cannot download repomd.xml",
	"Failed to download metadata for repo",
	"TLS handshake timeout",
}
