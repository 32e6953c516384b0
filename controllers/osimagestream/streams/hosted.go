package streams

import (
	"fmt"
	"slices"
)

// hostedStreams are the streams a hosted node pool may name.
var hostedStreams = []string{"rhel-9", "rhel-10"}

// firstMajorOfRHEL10 is the first release whose hosted node pools may run RHEL 10.
const firstMajorOfRHEL10 = 5

// HostedRequest asks for the stream of a hosted node pool.
type HostedRequest struct {
	// Explicit is NodePool.spec.osImageStream.name; empty: none.
	Explicit string
	// Version of the node pool's release, such as 5.0.0.
	Version string
	// UsesRunc: the node pool's configuration makes runc the default runtime.
	UsesRunc bool
}

// ResolveHosted returns the stream of a hosted node pool. Unlike the default of
// a cluster it follows the release that the pool runs, and not the one it was
// installed with: a pool that names no stream moves to RHEL 10 with release 5,
// unless it needs runc, which RHEL 10 lacks. It never looks at a status: the
// same spec gives the same stream.
func ResolveHosted(request HostedRequest) (string, error) {
	major, err := majorOf(request.Version)
	if err != nil {
		return "", fmt.Errorf("the release's %w", err)
	}
	hasRHEL10 := major >= firstMajorOfRHEL10
	switch {
	case request.Explicit != "" && !slices.Contains(hostedStreams, request.Explicit):
		return "", fmt.Errorf("stream %q does not exist; spec.osImageStream.name is rhel-9 or rhel-10", request.Explicit)
	case request.Explicit == "rhel-10" && !hasRHEL10:
		return "", fmt.Errorf("stream \"rhel-10\" requires release 5.0 or later, and this node pool's is %s; choose rhel-9, or update the node pool first", request.Version)
	case request.Explicit == "rhel-10" && request.UsesRunc:
		return "", fmt.Errorf("stream \"rhel-10\" is incompatible with runc, which RHEL 10 does not ship; " +
			"remove the configuration that makes runc the default runtime, or choose rhel-9")
	case request.Explicit != "":
		return request.Explicit, nil
	case hasRHEL10 && !request.UsesRunc:
		return "rhel-10", nil
	default:
		return "rhel-9", nil
	}
}

// HostedHashStream returns what of spec.osImageStream goes into the config hash
// of a hosted node pool: the explicit stream where it differs from the one that
// the pool would get anyway. So setting the default explicitly rolls nothing.
// On an explicit stream that is not allowed it is the stream as it stands.
func HostedHashStream(request HostedRequest) string {
	unset := request
	unset.Explicit = ""
	if derived, err := ResolveHosted(unset); err == nil && derived == request.Explicit {
		return ""
	}
	return request.Explicit
}
