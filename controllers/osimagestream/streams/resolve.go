package streams

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// Request asks for the stream of one pool.
type Request struct {
	// Explicit is the pool's spec.osImageStream.name; empty: none.
	Explicit string
	// Worker is the same field of pool worker where the pool inherits from it,
	// which custom pools do and no other; empty: none.
	Worker string
}

// Resolution is the stream of a pool.
type Resolution struct {
	mcfgv1.OSImageStreamSet
	Origin Origin
}

// NoStreamsError says that no stream is known yet.
type NoStreamsError struct{}

func (NoStreamsError) Error() string {
	return "OSImageStream cluster does not exist or has no status.availableStreams yet; " +
		"name at least one stream in ConfigMap imagemode-streams (key = name, value = YAML with osImage and osExtensionsImage by digest)"
}

// UnknownStreamError says that a pool names a stream that does not exist.
type UnknownStreamError struct {
	Stream    string
	Origin    Origin
	Available []string
}

func (e *UnknownStreamError) Error() string {
	return fmt.Sprintf("OS image stream %q (%s) does not exist; choose one of OSImageStream cluster: %s",
		e.Stream, e.Origin, strings.Join(e.Available, ", "))
}

// DefaultGoneError says that the default stream was removed from the sources.
type DefaultGoneError struct {
	Stream    string
	Available []string
}

func (e *DefaultGoneError) Error() string {
	return fmt.Sprintf("the default OS image stream %q is gone, so this pool stays as it is; "+
		"set spec.defaultStream of OSImageStream cluster, or spec.osImageStream.name of the pool, to one of: %s",
		e.Stream, strings.Join(e.Available, ", "))
}

// Resolve returns the stream of a pool: the one it names, else the worker
// pool's (custom pools), else the default in object's spec. object may be nil.
// The errors are NoStreamsError, *UnknownStreamError and *DefaultGoneError; a
// name that does not exist is never replaced by the default.
func Resolve(object *mcfgv1.OSImageStream, request Request) (Resolution, error) {
	if object == nil || len(object.Status.AvailableStreams) == 0 {
		return Resolution{}, NoStreamsError{}
	}
	available := object.Status.AvailableStreams
	for _, wish := range []struct {
		name   string
		origin Origin
	}{{request.Explicit, FromPool}, {request.Worker, FromWorker}} {
		if wish.name == "" {
			continue
		}
		stream, found := find(available, wish.name)
		if !found {
			return Resolution{}, &UnknownStreamError{Stream: wish.name, Origin: wish.origin, Available: Names(available)}
		}
		return Resolution{OSImageStreamSet: stream, Origin: wish.origin}, nil
	}
	return resolveDefault(object)
}

// resolveDefault reads the default from spec: status holds another name when
// the one in spec is gone, because the API requires one that exists. An object
// of an older API version may have an empty spec; its status then counts.
func resolveDefault(object *mcfgv1.OSImageStream) (Resolution, error) {
	name := object.Spec.DefaultStream
	if name == "" {
		name = object.Status.DefaultStream
	}
	stream, found := find(object.Status.AvailableStreams, name)
	if !found {
		return Resolution{}, &DefaultGoneError{Stream: name, Available: Names(object.Status.AvailableStreams)}
	}
	return Resolution{OSImageStreamSet: stream, Origin: FromDefault}, nil
}

// OfImage returns the name of the stream whose OS image has the digest of image;
// empty: none has. The repository may be a mirror's.
func OfImage(object *mcfgv1.OSImageStream, image string) string {
	digest := digestOf(image)
	if object == nil || digest == "" {
		return ""
	}
	for _, stream := range object.Status.AvailableStreams {
		if digestOf(string(stream.OSImage)) == digest {
			return stream.Name
		}
	}
	return ""
}

// workerPool is the name of the pool whose stream custom pools inherit.
const workerPool = "worker"

// ownPools are the pools that inherit from no other one.
var ownPools = []string{"master", "control-plane", workerPool, "arbiter"}

// Requests returns what each pool asks for, by the pool's name. A custom pool,
// which is any that is not of the control plane, arbiter or worker, asks for
// the worker pool's stream where it names none.
func Requests(pools []mcfgv1.MachineConfigPool) map[string]Request {
	worker := ""
	for _, pool := range pools {
		if pool.Name == workerPool {
			worker = pool.Spec.OSImageStream.Name
		}
	}
	requests := map[string]Request{}
	for _, pool := range pools {
		request := Request{Explicit: pool.Spec.OSImageStream.Name}
		if !slices.Contains(ownPools, pool.Name) {
			request.Worker = worker
		}
		requests[pool.Name] = request
	}
	return requests
}
