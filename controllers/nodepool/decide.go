package nodepool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
)

// Reasons of the condition ValidMachineConfig.
const (
	reasonValid      = "AsExpected"
	reasonFailed     = "ValidationFailed"
	reasonKeptByRunc = "StreamKeptForRunc"
)

// facts are everything that a decision about a node pool is made from.
type facts struct {
	// explicit is spec.osImageStream.name.
	explicit string
	// payload of spec.release.image.
	payload *streams.Payload
	texts   []configText
}

// answer is what a node pool is to run, or why it cannot be said.
type answer struct {
	// problem is for the user; empty: everything goes together.
	problem string
	// note says what is not as one might expect, though it goes together.
	reason, note string

	set streams.Set
	// version of the release.
	version string
	// standard is the default container runtime; runtimes are all, sorted.
	standard string
	runtimes []string
	hash     string
}

// decide resolves the stream of a node pool.
func decide(known facts) answer {
	// The order of spec.config means nothing: MachineConfigs are merged by name.
	known.texts = slices.SortedFunc(slices.Values(known.texts), func(a, b configText) int { return strings.Compare(a.Text, b.Text) })
	choice, err := runtimeOf(known.texts)
	if err != nil {
		return answer{problem: err.Error()}
	}
	request := streams.HostedRequest{
		Explicit: known.explicit, Version: known.payload.Version, UsesRunc: choice.Runtime == streams.RuntimeRunc,
	}
	name, err := streams.ResolveHosted(request)
	if err != nil {
		return answer{problem: err.Error()}
	}
	source := streams.FromTags("payload", known.payload)
	i := slices.IndexFunc(source.Streams, func(set streams.Set) bool { return set.Name == name })
	if i < 0 {
		return answer{problem: fmt.Sprintf("stream %q is not in the release %s, which has %s; choose one of these, or another release",
			name, known.payload.Version, strings.Join(streams.Names(source.Streams), ", "))}
	}
	decided := answer{
		reason: reasonValid, set: source.Streams[i], version: known.payload.Version,
		runtimes: streams.RuntimesOf(nil, name), hash: configHash(known.texts, request),
	}
	decided.standard = choice.Runtime
	if decided.standard == "" {
		decided.standard = streams.RuntimeCrun
	}
	decided.noteKept(request, choice)
	return decided
}

// noteKept says that a node pool without a stream is held on RHEL 9 by runc.
func (a *answer) noteKept(request streams.HostedRequest, choice streams.RuntimeChoice) {
	without := request
	without.UsesRunc = false
	other, err := streams.ResolveHosted(without)
	if request.Explicit != "" || !request.UsesRunc || err != nil || other == a.set.Name {
		return
	}
	a.reason = reasonKeptByRunc
	a.note = fmt.Sprintf("%s makes runc the default container runtime, which %s does not ship, so the node pool runs %s; choose crun there to move on",
		choice.By, other, a.set.Name)
}
