//go:build envtest

package osimagestream

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/envtest"
)

// anyName draws names of streams, most of which are some.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?`),
		rapid.StringMatching(`[a-zA-Z0-9._ /@-]{1,12}`),
		rapid.SampledFrom([]string{strings.Repeat("a", 253), strings.Repeat("a", 254), "a..b", "-a", "a-", ".", "ä", "a\n"}),
	)
}

// mostly draws one kind of value seven times of eight.
func mostly[T any](usual, odd *rapid.Generator[T]) *rapid.Generator[T] {
	return rapid.OneOf(usual, usual, usual, usual, usual, usual, usual, odd)
}

// anyImage draws references, most of which are not far from what the API takes.
func anyImage() *rapid.Generator[string] {
	host := mostly(
		rapid.StringMatching(`([a-zA-Z0-9-]{1,4}\.){1,2}[a-zA-Z0-9-]{1,4}(:[0-9]{2,5})?`),
		rapid.StringMatching(`[a-zA-Z0-9-]{0,5}\.?[a-zA-Z0-9-]{0,5}(:[0-9]{0,6})?`))
	path := mostly(
		rapid.StringMatching(`/([a-zA-Z0-9_-]{0,61}/)?[a-zA-Z0-9_.-]{0,20}`),
		rapid.StringMatching(`(/[a-zA-Z0-9_.-]{0,70}){0,3}`))
	more := mostly(rapid.Just(0), rapid.IntRange(300, 380))
	digest := mostly(
		rapid.StringMatching(`@sha256:[a-f0-9]{64}`),
		rapid.OneOf(rapid.StringMatching(`@sha256:[a-fA-F0-9]{63,65}`),
			rapid.SampledFrom([]string{"", ":tag", "@", "@sha512:" + strings.Repeat("0", 128), manifestDigest + manifestDigest, manifestDigest + "\n"})))
	return rapid.Custom(func(t *rapid.T) string {
		return host.Draw(t, "host") + path.Draw(t, "path") + strings.Repeat("x", more.Draw(t, "more")) + digest.Draw(t, "digest")
	})
}

// Whatever stands in the sources, what is made of it is a status that the API server
// takes: one stream that it refuses would take all others with it.
func TestTheAPITakesWhateverIsMadeOfTheSources(t *testing.T) {
	c, err := client.New(envtest.Start(t), client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "x"}}
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		data := map[string]string{}
		var candidates []streams.Candidate
		for range rapid.IntRange(1, 6).Draw(t, "streams") {
			name, os, extensions := anyName().Draw(t, "name"), anyImage().Draw(t, "os"), anyImage().Draw(t, "extensions")
			data[name] = "osImage: " + os + "\nosExtensionsImage: " + extensions + "\n"
			candidates = append(candidates,
				streams.Candidate{Image: os, Labels: map[string]string{streams.LabelStream: name, streams.LabelBootc: "1"}},
				streams.Candidate{Image: extensions, Labels: map[string]string{streams.LabelStream: name, streams.LabelExtensions: "true"}})
		}
		merged := streams.Merge(streams.FromConfigMap("a", data), streams.Group("b", candidates))
		if len(merged.Streams) == 0 {
			return
		}
		taken++
		chosen := streams.ResolveDefault(merged.Streams, streams.Candidates{Spec: object.Spec.DefaultStream})
		wanted := object.DeepCopy()
		wanted.Status = mcfgv1.OSImageStreamStatus{AvailableStreams: merged.Streams, DefaultStream: chosen.Name}
		if err := c.Status().Update(t.Context(), wanted, client.DryRunAll); err != nil {
			t.Fatalf("%+v: %v", merged.Streams, err)
		}
	})
	if taken < 10 {
		t.Error("too little was tried")
	}
	t.Logf("%d statuses were tried", taken)
}
