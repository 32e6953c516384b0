package machineconfigpool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/builders"
)

func TestSelectConfigs(t *testing.T) {
	byRole := func(name string) *mcfgv1.MachineConfigPool {
		pool := builders.MachineConfigPool(name)
		pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{builders.RoleLabel: name}}
		return pool
	}
	none, empty := byRole("none"), byRole("all")
	none.Spec.MachineConfigSelector, empty.Spec.MachineConfigSelector = nil, &metav1.LabelSelector{}
	owned := builders.MachineConfig("99-owned", "worker")
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: "worker", Controller: new(true)}}
	all := configsOf(
		builders.MachineConfig("60-b", "worker"), builders.MachineConfig("10-infra", "infra"), builders.MachineConfig("50-a", "worker"),
		builders.MachineConfig("rendered-worker-1", "worker"), owned, builders.MachineConfig("00-master", "master"))
	for name, tc := range map[string]struct {
		pool, inherited *mcfgv1.MachineConfigPool
		want            []string
		wantReason      string
	}{
		"a pool's own, by name, without rendered ones":  {pool: byRole("worker"), want: []string{"50-a", "60-b"}},
		"a custom pool takes the worker's first":        {pool: byRole("infra"), inherited: byRole("worker"), want: []string{"50-a", "60-b", "10-infra"}},
		"none twice where both select it":               {pool: builders.MachineConfigPool("infra"), inherited: byRole("worker"), want: []string{"50-a", "60-b", "10-infra"}},
		"a custom pool without a worker pool":           {pool: byRole("infra"), want: []string{"10-infra"}},
		"no selector selects none":                      {pool: none},
		"a custom pool without one has the worker's":    {pool: none, inherited: byRole("worker"), want: []string{"50-a", "60-b"}},
		"an empty selector is refused":                  {pool: empty, wantReason: reasonInvalidSelector},
		"the worker's empty selector is refused, too":   {pool: byRole("infra"), inherited: empty, wantReason: reasonInvalidSelector},
		"a pool for which there are no MachineConfigs":  {pool: byRole("gpu")},
		"a control-plane pool does not get the workers": {pool: byRole("master"), want: []string{"00-master"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := selectConfigs(tc.pool, tc.inherited, all)
			if reason := reasonOf(err); reason != tc.wantReason {
				t.Fatalf("reason = %q (%v), want %q", reason, err, tc.wantReason)
			}
			var names []string
			for _, config := range got {
				names = append(names, config.Name)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChooseImagesRefusals(t *testing.T) {
	mine := "registry.example.com/mine" + digest
	override := builders.MachineConfig("50-mine", "worker", builders.OSImageURL(mine))
	for name, tc := range map[string]struct {
		sources  []*mcfgv1.MachineConfig
		explicit string
		object   *mcfgv1.OSImageStream
		reason   string
		want     images
	}{
		"no stream and no override":                    {object: nil, reason: reasonNoOSImage},
		"an override needs no stream":                  {sources: []*mcfgv1.MachineConfig{override}, want: images{os: mine, isOverridden: true}},
		"an unknown stream":                            {explicit: "x", object: streamsObject(), reason: reasonUnknownStream},
		"an unknown stream with an override":           {sources: []*mcfgv1.MachineConfig{override}, explicit: "x", object: streamsObject(), reason: reasonUnknownStream},
		"a default that is gone":                       {object: withDefault("gone"), reason: reasonDefaultStreamGone},
		"a default that is gone does not harm others":  {object: withDefault("gone"), explicit: "debian-12", want: images{os: baseImage, extensions: extImage}},
		"an override and an explicit stream":           {sources: []*mcfgv1.MachineConfig{override}, explicit: "debian-12", object: streamsObject(), reason: reasonStreamOverridden},
		"an override that is the stream's image":       {sources: []*mcfgv1.MachineConfig{builders.MachineConfig("50-same", "worker", builders.OSImageURL(baseImage))}, explicit: "debian-12", object: streamsObject(), want: images{os: baseImage, extensions: extImage}},
		"an override by tag":                           {sources: []*mcfgv1.MachineConfig{builders.MachineConfig("50-tag", "worker", builders.OSImageURL("registry.example.com/mine:1"))}, object: streamsObject(), reason: reasonImageByTag},
		"an override keeps the default's extensions":   {sources: []*mcfgv1.MachineConfig{override}, object: streamsObject(), want: images{os: mine, extensions: extImage, isOverridden: true}},
		"the pool's stream has its pair":               {explicit: "debian-13", object: streamsObject(), want: images{os: "registry.example.com/os/debian-13" + digest, extensions: "registry.example.com/os/debian-13-extensions" + digest}},
		"a tag that a later MachineConfig puts right":  {sources: []*mcfgv1.MachineConfig{builders.MachineConfig("10-tag", "worker", builders.OSImageURL("registry.example.com/mine:1")), override}, object: streamsObject(), want: images{os: mine, extensions: extImage, isOverridden: true}},
		"a stream object that has no status yet, also": {object: &mcfgv1.OSImageStream{}, reason: reasonNoOSImage},
	} {
		t.Run(name, func(t *testing.T) {
			stream, streamErr := streams.Resolve(tc.object, streams.Request{Explicit: tc.explicit})
			got, err := chooseImages(tc.sources, tc.explicit, stream, streamErr)
			if reason := reasonOf(err); reason != tc.reason {
				t.Fatalf("reason = %q (%v), want %q", reason, err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(images{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func withDefault(name string) *mcfgv1.OSImageStream {
	object := streamsObject()
	object.Spec.DefaultStream = name
	return object
}
