package streams

// Origin says where a choice came from.
type Origin string

// Origins of a default, in the order they are asked, and of a pool's stream.
const (
	// FromSpec is OSImageStream.spec.defaultStream.
	FromSpec Origin = "spec.defaultStream"
	// FromRequest is ControllerConfig.spec.defaultStream.
	FromRequest Origin = "ControllerConfig.spec.defaultStream"
	// FromStatus is the previous OSImageStream.status.defaultStream.
	FromStatus Origin = "previous status"
	// FromOnlyStream is the only stream there is.
	FromOnlyStream Origin = "only stream"
	// FromVersion follows from the version that the cluster was installed with.
	FromVersion Origin = "version that the cluster was installed with"
	// FromOption is the controller's --default-stream.
	FromOption Origin = "--default-stream"
	// FromFirstName is the first stream by name: a guess, which is announced.
	FromFirstName Origin = "first by name"
	// FromPool is the pool's own spec.osImageStream.
	FromPool Origin = "spec.osImageStream of the pool"
	// FromWorker is the worker pool's spec.osImageStream, for custom pools.
	FromWorker Origin = "spec.osImageStream of pool worker"
	// FromDefault is the cluster's default.
	FromDefault Origin = "default stream"
)

// Candidates are the names that may become the default. Empty names are absent.
type Candidates struct {
	// Spec is OSImageStream.spec.defaultStream.
	Spec string
	// Requested is ControllerConfig.spec.defaultStream, which control planes
	// outside of the cluster have.
	Requested string
	// Status is the previous OSImageStream.status.defaultStream.
	Status string
	// Version is what BuiltinDefault gives; empty on a cluster without a
	// ClusterVersion.
	Version string
	// Option is --default-stream.
	Option string
	// IsPartial says that there may be more streams than are known now. Then
	// nothing is chosen that another stream could have changed: the choice is
	// recorded, and would stay wrong for ever.
	IsPartial bool
}

// Default is the stream for pools that name none.
type Default struct {
	// Name is empty where nothing can be chosen yet: the streams are partly known.
	Name   string
	Origin Origin
	// Gone is the stream that spec.defaultStream names and that does not exist:
	// Name is then only what the API requires to stand in the status, and pools
	// that inherit the default move nowhere.
	Gone string
}

// ResolveDefault chooses the default. streams must be sorted by name and not
// empty. The rules stand in order; the first that names a stream that exists
// wins. A spec that names a missing stream is not passed over for another
// wish: it is reported as Gone.
func ResolveDefault(streams []Set, candidates Candidates) Default {
	if candidates.Spec != "" {
		if _, found := find(streams, candidates.Spec); !found {
			return Default{Name: streams[0].Name, Origin: FromFirstName, Gone: candidates.Spec}
		}
	}
	only, first := "", ""
	if !candidates.IsPartial {
		first = streams[0].Name
		if len(streams) == 1 {
			only = first
		}
	}
	for _, rule := range []Default{
		{Name: candidates.Spec, Origin: FromSpec},
		{Name: candidates.Requested, Origin: FromRequest},
		{Name: candidates.Status, Origin: FromStatus},
		{Name: only, Origin: FromOnlyStream},
		{Name: candidates.Version, Origin: FromVersion},
		{Name: candidates.Option, Origin: FromOption},
		{Name: first, Origin: FromFirstName},
	} {
		if _, found := find(streams, rule.Name); found {
			return rule
		}
	}
	return Default{}
}
