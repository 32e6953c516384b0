package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/docker/distribution/registry/api/errcode"
	errcodev2 "github.com/docker/distribution/registry/api/v2"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"

	"github.com/imagemode/imagemode/builder/request"
)

// Error is what a registry operation failed with.
type Error struct {
	// Class says who can mend it.
	Class request.FailureClass
	// Image is the reference that was asked for.
	Image string
	// Err is what the library or the registry said.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("image %s: %v", e.Image, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// IsGone reports whether err says that an image does not exist, as opposed to
// not being known, or not being allowed.
func IsGone(err error) bool {
	var typed *Error
	var policy signature.PolicyRequirementError
	return errors.As(err, &typed) && typed.Class == request.Image && !errors.As(err, &policy)
}

// Wrap makes an *Error of err, with its class; nil stays nil, and an *Error is
// kept as it is.
func Wrap(image string, err error) error {
	var typed *Error
	if err == nil || errors.As(err, &typed) {
		return err
	}
	return &Error{Class: Classify(err), Image: image, Err: err}
}

// rules in order: the first that knows err decides its class.
var rules = []func(error) (request.FailureClass, bool){
	classifyOwn,
	classifyResources,
	classifyCode,
	classifyStatus,
	classifyNetwork,
	classifyContent,
}

// Classify says who can mend a failed registry operation. What no rule knows
// is the registry's: it answered something that nobody foresaw.
func Classify(err error) request.FailureClass {
	for _, rule := range rules {
		if class, known := rule(err); known {
			return class
		}
	}
	return request.Registry
}

func classifyOwn(err error) (request.FailureClass, bool) {
	var typed *Error
	if errors.As(err, &typed) {
		return typed.Class, true
	}
	return "", false
}

func classifyResources(err error) (request.FailureClass, bool) {
	return request.Resources, errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.ENOMEM)
}

// classifyCode knows the error codes of the distribution API.
func classifyCode(err error) (request.FailureClass, bool) {
	var coder errcode.ErrorCoder
	var list errcode.Errors
	switch {
	case errors.As(err, &list) && len(list) > 0:
		if !errors.As(list[0], &coder) {
			return "", false
		}
	case !errors.As(err, &coder):
		return "", false
	}
	switch coder.ErrorCode() {
	case errcode.ErrorCodeUnauthorized, errcode.ErrorCodeDenied:
		return request.Authentication, true
	case errcodev2.ErrorCodeManifestUnknown, errcodev2.ErrorCodeNameUnknown, errcodev2.ErrorCodeBlobUnknown:
		return request.Image, true
	}
	// Many registries answer with a code of their own: the text may still tell.
	return "", false
}

// statusText finds the HTTP status in errors whose type the library keeps to itself.
var statusText = regexp.MustCompile(`(?:StatusCode: |HTTP status: |error parsing HTTP |invalid status code from registry )(\d{3})`)

// classifyStatus knows HTTP status codes.
func classifyStatus(err error) (request.FailureClass, bool) {
	var unauthorized docker.ErrUnauthorizedForCredentials
	if errors.As(err, &unauthorized) {
		return request.Authentication, true
	}
	if errors.Is(err, docker.ErrTooManyRequests) {
		return request.Registry, true
	}
	if strings.Contains(err.Error(), "getting username and password") {
		return request.Authentication, true // the credentials file does not parse
	}
	switch status := httpStatus(err); {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return request.Authentication, true
	case status == http.StatusNotFound:
		return request.Image, true
	case status == http.StatusInsufficientStorage:
		return request.Resources, true
	case status != 0:
		return request.Registry, true
	}
	return "", false
}

// httpStatus gives the HTTP status behind err; 0: there is none.
func httpStatus(err error) int {
	var unexpected docker.UnexpectedHTTPStatusError
	if errors.As(err, &unexpected) {
		return unexpected.StatusCode
	}
	if found := statusText.FindStringSubmatch(err.Error()); found != nil {
		status, _ := strconv.Atoi(found[1])
		return status
	}
	return 0
}

// classifyNetwork knows what goes wrong before an answer comes.
func classifyNetwork(err error) (request.FailureClass, bool) {
	var operation *net.OpError
	var name *net.DNSError
	var timeout net.Error
	if errors.As(err, &operation) || errors.As(err, &name) || errors.As(err, &timeout) && timeout.Timeout() {
		return request.Network, true
	}
	return request.Network, isCertificateError(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// isCertificateError reports whether the peer's certificate was not accepted.
func isCertificateError(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &invalid) || errors.As(err, &header)
}

// classifyContent knows images that are there and cannot be used.
func classifyContent(err error) (request.FailureClass, bool) {
	var policy signature.PolicyRequirementError
	if errors.As(err, &policy) {
		return request.Image, true // it is there and must not be taken
	}
	text := err.Error()
	return request.Image, strings.Contains(text, "no image found in manifest list") ||
		strings.Contains(text, "no image found in image index") ||
		strings.Contains(text, "manifest unknown") ||
		strings.Contains(text, "name unknown")
}
