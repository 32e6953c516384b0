package machineconfigpool

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/builders"
)

const runcText = "[crio.runtime]\ndefault_runtime = \"runc\"\n"

func TestADefaultRuntimeThatTheStreamLacksIsNotRendered(t *testing.T) {
	const dropIn = "/etc/crio/crio.conf.d/99-runtime"
	const runc, crun = runcText, "[crio.runtime]\ndefault_runtime = \"crun\"\n"
	ownOf := func(digit string) string { return "registry.example.com/os/own@sha256:" + strings.Repeat(digit, 64) }
	own := func(digit string) builders.MachineConfigOption { return builders.OSImageURL(ownOf(digit)) }
	object := &mcfgv1.OSImageStream{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			machineconfiguration.AnnotationStreamTraits: streams.EncodeTraits(map[string]streams.Traits{
				"debian-12": {Runtimes: []string{"crun", "runc"}, Image: digest1}, "debian-13": {Runtimes: []string{"crun"}, Image: digest2},
				"away": {Unread: "its registry is away"},
			}),
			machineconfiguration.AnnotationOverrides: streams.EncodeOverrides(map[string]streams.Override{
				streams.DigestOf(ownOf("3")): {Read: true}, streams.DigestOf(ownOf("4")): {Stream: "rhel-10", Read: true}, streams.DigestOf(ownOf("7")): {}, streams.DigestOf(ownOf("5")): {Unread: "its registry is away"},
			}),
		}},
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "debian-13"},
		Status: mcfgv1.OSImageStreamStatus{DefaultStream: "debian-13", AvailableStreams: []mcfgv1.OSImageStreamSet{
			{Name: "away", OSImage: mcfgv1.ImageDigestFormat(ownOf("8")), OSExtensionsImage: image1},
			{Name: "debian-12", OSImage: image1, OSExtensionsImage: image1}, {Name: "debian-13", OSImage: image2, OSExtensionsImage: image2},
			{Name: "new", OSImage: mcfgv1.ImageDigestFormat(ownOf("9")), OSExtensionsImage: image1},
		}},
	}
	for name, tc := range map[string]struct {
		stream, text string
		options      []builders.MachineConfigOption
		// reason of a refusal; "wait": nothing is rendered for now; empty: it is.
		reason       string
		isUnlabelled bool
	}{
		"runc on a stream with crun alone":                                {stream: "debian-13", text: runc, reason: reasonRuntimeMissing},
		"runc on the default stream":                                      {text: runc, reason: reasonRuntimeMissing},
		"runc on a stream that has it":                                    {stream: "debian-12", text: runc},
		"crun everywhere":                                                 {stream: "debian-13", text: crun},
		"runc on a stream whose image is not looked at yet":               {stream: "new", text: runc, reason: "wait"},
		"crun on one":                                                     {stream: "new", text: crun},
		"runc on a stream whose image does not answer":                    {stream: "away", text: runc, reason: reasonRuntimeUnknown},
		"an image that is no stream's, and says nothing":                  {text: runc, options: []builders.MachineConfigOption{own("3")}},
		"an image that is no stream's, and was made for one without runc": {text: runc, options: []builders.MachineConfigOption{own("4")}, reason: reasonRuntimeMissing},
		"an image that does not answer":                                   {text: runc, options: []builders.MachineConfigOption{own("5")}, reason: reasonRuntimeUnknown},
		"an image that is not looked at yet":                              {text: runc, options: []builders.MachineConfigOption{own("6")}, reason: "wait"},
		"one of which only something is noted":                            {text: runc, options: []builders.MachineConfigOption{own("7")}, reason: "wait"},
		"one that is not, with crun":                                      {text: crun, options: []builders.MachineConfigOption{own("6")}},
		"one that nobody will ever look at":                               {text: runc, options: []builders.MachineConfigOption{own("6")}, isUnlabelled: true},
		"an image that is another stream's":                               {text: runc, options: []builders.MachineConfigOption{builders.OSImageURL("mirror.example.com/os@" + digest1)}},
	} {
		t.Run(name, func(t *testing.T) {
			config := builders.MachineConfig("50-runtime", "worker", append(tc.options, builders.File(dropIn, tc.text))...)
			s := &scope{
				pool: builders.MachineConfigPool("worker", builders.Stream(tc.stream)), streams: object, isUnlabelled: tc.isUnlabelled, configs: []mcfgv1.MachineConfig{*config},
			}
			_, err := s.render()
			var wait *waitError
			got := reasonOf(err)
			if errors.As(err, &wait) {
				got = "wait"
			}
			if got != tc.reason {
				t.Fatalf("error %v, want %q", err, tc.reason)
			}
			if err != nil && !strings.Contains(err.Error(), "file "+dropIn+" of MachineConfig 50-runtime makes runc the default container runtime") {
				t.Errorf("%v", err)
			}
		})
	}
}

// What is refused names the MachineConfigs that users have to change.
func TestARefusedRuntimeNamesItsMachineConfigs(t *testing.T) {
	const dropIn = "/etc/crio/crio.conf.d/99-runtime"
	runc := builders.File(dropIn, runcText)
	storage := func(entry string) builders.MachineConfigOption {
		return builders.Ignition(`{"ignition":{"version":"3.4.0"},"storage":{` + entry + `}}`)
	}
	appended := storage(`"files":[{"path":"` + dropIn + `","append":[{"source":"data:,%23%20more%0A"}]}]`)
	for name, tc := range map[string]struct {
		configs []builders.MachineConfigOption
		want    string
	}{
		"the last that has the file":   {[]builders.MachineConfigOption{runc, runc, builders.File("/etc/motd", "")}, "MachineConfig 51"},
		"one that appends to it, too":  {[]builders.MachineConfigOption{runc, runc, appended}, "MachineConfig 51 and 52"},
		"one that links to it":         {[]builders.MachineConfigOption{builders.File("/etc/x", runcText), storage(`"links":[{"path":"` + dropIn + `","target":"/etc/x"}]`)}, "MachineConfig 51"},
		"a file that cannot be parsed": {[]builders.MachineConfigOption{builders.File(dropIn, "no TOML")}, "MachineConfig 50"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld()
			s := w.scope()
			s.streams = &mcfgv1.OSImageStream{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					machineconfiguration.AnnotationStreamTraits: streams.EncodeTraits(map[string]streams.Traits{"debian-13": {Runtimes: []string{"crun"}, Image: digest2}}),
				}},
				Status: mcfgv1.OSImageStreamStatus{DefaultStream: "debian-13", AvailableStreams: []mcfgv1.OSImageStreamSet{{Name: "debian-13", OSImage: image2, OSExtensionsImage: image2}}},
			}
			for i, option := range tc.configs {
				s.configs = append(s.configs, *builders.MachineConfig(fmt.Sprint(50+i), "worker", option))
			}
			_, err := s.render()
			if reasonOf(err) != reasonRuntimeMissing || !strings.Contains(err.Error(), "file "+dropIn+" of "+tc.want) || strings.Contains(err.Error(), tc.want+" and") {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// A config that is refused although the pool has it brings the nodes no new image;
// another one that is refused keeps nothing from them.
func TestARefusedConfigIsNotHandedOff(t *testing.T) {
	w := aWorld()
	s := &scope{pool: w.pool, osConfig: w.osConfig, builds: w.builds, rollout: w.rollout}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"nothing is refused":                 {nil, image2},
		"the pool's own config is":           {&refusedError{config2, &renderError{reason: reasonRuntimeMissing}}, ""},
		"it waits for labels":                {&refusedError{config2, &waitError{}}, ""},
		"the next one is":                    {&refusedError{"rendered-worker-3", &renderError{reason: reasonRuntimeMissing}}, image2},
		"the next one could not be rendered": {&renderError{reason: reasonInvalidConfig}, image2},
	} {
		if got := s.offered(s.target(), tc.err).image(); got != tc.want {
			t.Errorf("%s: %q is handed off, want %q", name, got, tc.want)
		}
	}
}

// A pool whose next config waits for the labels of an image is not degraded, and
// says what it waits for.
func TestAPoolThatAwaitsLabelsSaysSo(t *testing.T) {
	const message = "whether OS image x has it is known when the labels of its image have been read"
	for name, tc := range map[string]struct {
		isPaused         bool
		updating, reason string
	}{
		"it waits":                  {false, "True", "ConfigChanges"},
		"under pause nothing moves": {true, "False", "Paused"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld().booted(digest2, "n1", "n2")
			w.pool.Spec.Paused = tc.isPaused
			w.err = &waitError{message}
			status := w.status()
			for kind, want := range map[mcfgv1.MachineConfigPoolConditionType]struct{ status, reason string }{
				mcfgv1.MachineConfigPoolUpdated:        {"False", "ConfigChanges"},
				mcfgv1.MachineConfigPoolUpdating:       {tc.updating, tc.reason},
				mcfgv1.MachineConfigPoolRenderDegraded: {"False", "Waiting"},
			} {
				got := findCondition(status.Conditions, kind)
				if string(got.Status) != want.status || got.Reason != want.reason || !strings.Contains(got.Message, message) {
					t.Errorf("%+v, want %s because %s", got, want.status, want.reason)
				}
			}
			if got, _ := condition(status, mcfgv1.MachineConfigPoolDegraded); got != "False" || status.OSImageStream.Name != "" {
				t.Errorf("Degraded %s, stream %q", got, status.OSImageStream.Name)
			}
		})
	}
}
