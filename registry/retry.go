package registry

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.podman.io/common/pkg/retry"
	"go.podman.io/image/v5/docker"

	"github.com/imagemode/imagemode/builder/request"
)

// Attempts after the first, and the waits before them: 1, 2 and 4 seconds. It
// bridges a registry's restart; what takes longer is a failed build that is
// tried again by the controller.
const attempts = 3

// Retry runs operation, again while it fails with what may pass: an answer of
// 429 or 5xx, a connection that broke off or could not be made. Certificates,
// credentials and missing images do not mend themselves within seconds.
func Retry(ctx context.Context, operation func() error) error {
	return retry.IfNecessary(ctx, operation, &retry.Options{
		MaxRetry:         attempts,
		IsErrorRetryable: IsPassing,
	})
}

// RetryDelay is the wait between the attempts of a library that does its own.
const RetryDelay = time.Second

// IsPassing reports whether err may pass by itself within seconds. The end of
// the caller's own time does not count.
func IsPassing(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || isCertificateError(err) {
		return false
	}
	switch Classify(err) {
	case request.Network:
		return true
	case request.Registry:
		status := httpStatus(err)
		return errors.Is(err, docker.ErrTooManyRequests) || status == http.StatusTooManyRequests || status >= 500
	}
	return false
}
