package streams

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

// read is what is known of the stream of a name, once its image was looked at.
func read(stream string, runtimes ...string) map[string]Traits {
	return map[string]Traits{stream: {Runtimes: runtimes, Image: digestOf(string(set(stream).OSImage))}}
}

// unread is a stream whose image does not answer.
func unread(stream string) map[string]Traits {
	return map[string]Traits{stream: {Unread: "its registry is away"}}
}

// known is an OSImageStream with what is known of its streams, besides debian-12,
// which has both runtimes.
func known(traits map[string]Traits, names ...string) *mcfgv1.OSImageStream {
	all := read("debian-12", RuntimeCrun, RuntimeRunc)
	maps.Copy(all, traits)
	return withTraits(EncodeTraits(all), append(names, "debian-12")...)
}

func withTraits(annotation string, names ...string) *mcfgv1.OSImageStream {
	return &mcfgv1.OSImageStream{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{machineconfiguration.AnnotationStreamTraits: annotation}},
		Status:     mcfgv1.OSImageStreamStatus{AvailableStreams: sets(names...)},
	}
}

// What comes of a config on a stream or an image.
const (
	passes    = ""
	isMissing = "missing"
	isUnknown = "unknown"
	isWaiting = "waiting"
	isUntold  = "cannot be told"
)

func outcomeOf(err error) string {
	var missing *RuntimeMissingError
	var unknown *RuntimeUnknownError
	switch {
	case err == nil:
		return passes
	case errors.As(err, &missing):
		return isMissing
	case errors.As(err, &unknown) && unknown.Why == "":
		return isWaiting
	case errors.As(err, &unknown):
		return isUnknown
	case strings.Contains(err.Error(), isUntold):
		return isUntold
	}
	return err.Error()
}

func choosing(runtime string) types.Config {
	if runtime == "" {
		return types.Config{}
	}
	return types.Config{Storage: types.Storage{Files: []types.File{dropIn("99-x", encoded(runtimeText(runtime)))}}}
}

// broken is a file of which nobody can tell what it chooses.
func broken() types.Config {
	return types.Config{Storage: types.Storage{Files: []types.File{dropIn("99-x", encoded("{"))}}}
}

func TestTheRuntimeOfAStream(t *testing.T) {
	other := read("debian-13", RuntimeCrun)
	other["debian-13"] = Traits{Runtimes: []string{RuntimeCrun, RuntimeRunc}, Image: "sha256:" + strings.Repeat("9", 64)}
	youki := read("debian-13", RuntimeCrun)
	maps.Copy(youki, read("mine", RuntimeCrun, "youki"))
	for name, tc := range map[string]struct {
		object *mcfgv1.OSImageStream
		stream string
		config types.Config
		want   string
	}{
		"RHEL 10 has no runc":                                    {known(read("rhel-10"), "rhel-10"), "rhel-10", choosing("runc"), isMissing},
		"RHEL 10 has crun":                                       {known(read("rhel-10"), "rhel-10"), "rhel-10", choosing("crun"), passes},
		"RHEL 9 has runc":                                        {known(read("rhel-9"), "rhel-9"), "rhel-9", choosing("runc"), passes},
		"CentOS 10 has no runc":                                  {known(read("centos-10"), "centos-10"), "centos-10", choosing("runc"), isMissing},
		"no choice":                                              {known(read("rhel-10"), "rhel-10"), "rhel-10", choosing(""), passes},
		"a drop-in that chooses none":                            {known(read("rhel-10"), "rhel-10"), "rhel-10", types.Config{Storage: types.Storage{Files: []types.File{dropIn("99-x", encoded(""))}}}, passes},
		"runc that a later drop-in takes back":                   {known(read("rhel-10"), "rhel-10"), "rhel-10", types.Config{Storage: types.Storage{Files: []types.File{dropIn("10-x", encoded(runtimeText("runc"))), dropIn("99-x", encoded(runtimeText("crun")))}}}, passes},
		"crun that a later drop-in takes back":                   {known(read("rhel-10"), "rhel-10"), "rhel-10", types.Config{Storage: types.Storage{Files: []types.File{dropIn("10-x", encoded(runtimeText("crun"))), dropIn("99-x", encoded(runtimeText("runc")))}}}, isMissing},
		"labels that say nothing of a stream that nobody knows":  {known(read("mine"), "mine"), "mine", choosing("runc"), passes},
		"the label says no":                                      {known(read("debian-13", "crun"), "debian-13"), "debian-13", choosing("runc"), isMissing},
		"the label says yes":                                     {known(read("debian-13", "crun", "runc"), "debian-13"), "debian-13", choosing("runc"), passes},
		"the label wins over what is known of the name":          {known(read("rhel-10", "crun", "runc"), "rhel-10"), "rhel-10", choosing("runc"), passes},
		"a label without crun":                                   {known(read("mine", "runc"), "mine"), "mine", choosing("crun"), isMissing},
		"a runtime that comes with the configuration":            {known(read("debian-13", "crun"), "debian-13"), "debian-13", choosing("kata"), passes},
		"a runtime that another stream has":                      {known(youki, "debian-13", "mine"), "debian-13", choosing("youki"), isMissing},
		"not looked at yet":                                      {known(nil, "debian-13"), "debian-13", choosing("runc"), isWaiting},
		"not even where the name is known: a label may say more": {known(nil, "rhel-10"), "rhel-10", choosing("runc"), isWaiting},
		"nothing waits where nothing is chosen":                  {known(nil, "debian-13"), "debian-13", choosing(""), passes},
		"nor for crun, which every OS image has":                 {known(nil, "debian-13"), "debian-13", choosing("crun"), passes},
		"a new image of the stream is not looked at yet":         {known(other, "debian-13"), "debian-13", choosing("runc"), isWaiting},
		"a broken annotation is as good as none":                 {withTraits("{", "rhel-10"), "rhel-10", choosing("runc"), isWaiting},
		"the image does not answer":                              {known(unread("debian-13"), "debian-13"), "debian-13", choosing("runc"), isUnknown},
		"the image does not answer, and crun is chosen":          {known(unread("debian-13"), "debian-13"), "debian-13", choosing("crun"), passes},
		"where it does not answer the name has to do: RHEL 10":   {known(unread("rhel-10"), "rhel-10"), "rhel-10", choosing("runc"), isMissing},
		"where it does not answer the name has to do: RHEL 9":    {known(unread("rhel-9"), "rhel-9"), "rhel-9", choosing("runc"), passes},
		"what cannot be told, on RHEL 10":                        {known(read("rhel-10"), "rhel-10"), "rhel-10", broken(), isUntold},
		"what cannot be told, where all go":                      {known(read("rhel-9"), "rhel-9"), "rhel-9", broken(), passes},
		"what cannot be told, where nothing is known":            {known(read("mine"), "mine"), "mine", broken(), passes},
		"what cannot be told, before the image is looked at":     {known(nil, "mine"), "mine", broken(), isWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			guard := RuntimeGuard{Object: tc.object}
			if err := guard.checkConfig(guard.ofStream(tc.stream), tc.config); outcomeOf(err) != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// Where nobody reads labels, because something else keeps the OSImageStream or the
// feature is off, nothing waits for them.
func TestWithoutLabelsTheNameHasToDo(t *testing.T) {
	const image = "registry.example.com/mine@sha256:" + "1111111111111111111111111111111111111111111111111111111111111111"
	object := withTraits("", "rhel-10", "rhel-9", "mine")
	for name, tc := range map[string]struct {
		object *mcfgv1.OSImageStream
		target func(RuntimeGuard) target
		want   string
	}{
		"RHEL 10":             {object, func(g RuntimeGuard) target { return g.ofStream("rhel-10") }, isMissing},
		"RHEL 9":              {object, func(g RuntimeGuard) target { return g.ofStream("rhel-9") }, passes},
		"a stranger":          {object, func(g RuntimeGuard) target { return g.ofStream("mine") }, passes},
		"an image of its own": {object, func(g RuntimeGuard) target { return g.ofImage(image) }, passes},
		"no object at all":    {nil, func(g RuntimeGuard) target { return g.ofImage(image) }, passes},
	} {
		t.Run(name, func(t *testing.T) {
			guard := RuntimeGuard{Object: tc.object, IsUnlabelled: true}
			if err := guard.checkConfig(tc.target(guard), choosing("runc")); outcomeOf(err) != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// The images that MachineConfigs name in the place of a stream's.
func TestTheRuntimeOfAnImage(t *testing.T) {
	image := func(digit string) string { return "registry.example.com/mine/os@sha256:" + strings.Repeat(digit, 64) }
	ten, centos, nine, bare, own, away, fresh := image("1"), image("2"), image("3"), image("4"), image("5"), image("6"), image("7")
	object := known(read("rhel-10"), "rhel-10", "rhel-9")
	object.Annotations[machineconfiguration.AnnotationOverrides] = EncodeOverrides(map[string]Override{
		DigestOf(ten): {Stream: "rhel-10", Read: true}, DigestOf(centos): {Stream: "centos-10", Read: true}, DigestOf(nine): {Stream: "rhel-9", Read: true},
		DigestOf(bare): {Read: true}, DigestOf(own): {Stream: "mine", Runtimes: []string{"crun"}, Read: true}, DigestOf(away): {Unread: "image x cannot be read now"},
	})
	both := choosing("runc")
	both.Storage.Files = append(both.Storage.Files, dropIn("99-y", encoded(runtimeText("crun"))))
	for name, tc := range map[string]struct {
		object *mcfgv1.OSImageStream
		image  string
		config types.Config
		want   string
	}{
		"runc on an image of RHEL 10":               {object, ten, choosing("runc"), isMissing},
		"runc on an image of CentOS 10":             {object, centos, choosing("runc"), isMissing},
		"runc on an image whose label says":         {object, own, choosing("runc"), isMissing},
		"crun on an image of RHEL 10":               {object, ten, choosing("crun"), passes},
		"runc on an image of RHEL 9":                {object, nine, choosing("runc"), passes},
		"runc overridden by crun":                   {object, ten, both, passes},
		"an image without the label":                {object, bare, choosing("runc"), passes},
		"an image that was not looked at yet":       {object, fresh, choosing("runc"), isWaiting},
		"one that was not, and crun":                {object, fresh, choosing("crun"), passes},
		"one that was not, and no choice":           {object, fresh, choosing(""), passes},
		"an image that does not answer":             {object, away, choosing("runc"), isUnknown},
		"one that does not, and crun":               {object, away, choosing("crun"), passes},
		"no image":                                  {object, "", choosing(""), passes},
		"a stream's own image, from a mirror":       {object, "mirror.example.com/x" + digest, choosing("runc"), isMissing},
		"no OSImageStream, so nobody looks at it":   {nil, fresh, choosing("runc"), isUnknown},
		"no OSImageStream, and nothing is chosen":   {nil, fresh, choosing(""), passes},
		"a file that is broken, on one that is new": {object, fresh, broken(), isWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (RuntimeGuard{Object: tc.object}).CheckImage(tc.image, tc.config); outcomeOf(err) != tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTheGuardSaysWhatToDo(t *testing.T) {
	labelled := known(read("debian-13", "crun"), "debian-13", "mine")
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"missing": {RuntimeGuard{Object: labelled}.checkConfig(RuntimeGuard{Object: labelled}.ofStream("debian-13"), choosing("runc")), []string{
			"file /etc/crio/crio.conf.d/99-x makes runc the default container runtime", `OS image stream "debian-13" has only crun`, "a stream with runc (debian-12)",
		}},
		"not known yet": {RuntimeGuard{Object: labelled}.checkConfig(RuntimeGuard{Object: labelled}.ofStream("mine"), choosing("runc")), []string{
			"file /etc/crio/crio.conf.d/99-x makes runc", `whether OS image stream "mine" has it is known when the labels of its image have been read`,
		}},
		"not to be known": {&RuntimeUnknownError{RuntimeChoice{"runc", "file f"}, "OS image i", "its registry is away"}, []string{
			"whether OS image i has it is not known: its registry is away", "choose crun",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, want := range tc.want {
				if tc.err == nil || !strings.Contains(tc.err.Error(), want) {
					t.Errorf("%v does not say %q", tc.err, want)
				}
			}
		})
	}
}

func TestTraitsSurviveTheAnnotation(t *testing.T) {
	traits := map[string]Traits{
		"a": {Runtimes: []string{"crun"}, Deprecated: true}, "nothing": {}, "read": {Image: "sha256:1"}, "unread": {Unread: "why"},
	}
	object := withTraits(EncodeTraits(traits))
	delete(traits, "nothing")
	if diff := cmp.Diff(traits, DecodeTraits(object)); diff != "" {
		t.Error(diff)
	}
	if EncodeTraits(map[string]Traits{"a": {}}) != "" || len(DecodeTraits(nil)) != 0 {
		t.Error("nothing known should be nothing")
	}
}

func TestOverrideOf(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   Override
	}{
		"both":                     {map[string]string{LabelStream: " RHEL-10 ", LabelRuntimes: "crun"}, Override{Stream: "rhel-10", Runtimes: []string{"crun"}, Read: true}},
		"no labels":                {nil, Override{Read: true}},
		"what cannot be a stream":  {map[string]string{LabelStream: "a_b"}, Override{Read: true}},
		"what is too long for one": {map[string]string{LabelStream: strings.Repeat("a", 5000)}, Override{Read: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, OverrideOf(tc.labels)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if EncodeOverrides(nil) != "" || len(DecodeOverrides(nil)) != 0 || len(DecodeOverrides(withTraits(""))) != 0 {
		t.Error("nothing known should be nothing")
	}
}

// What stands in annotations is less than an object may have of them, 256 KiB.
func TestAnnotationsAreBounded(t *testing.T) {
	traits, overrides := map[string]Traits{}, map[string]Override{}
	var all []string
	for i := range 20 {
		all = append(all, strings.Repeat(string(rune('a'+i)), 32))
	}
	runtimes := strings.Join(all, ",")
	for i := range maxStreams {
		known := TraitsOf(map[string]string{LabelRuntimes: runtimes, LabelDeprecated: "yes"})
		known.Image, known.Unread = strings.Repeat("1", 71), strings.Repeat("u", 300)
		traits[strings.Repeat("s", 250)+string(rune('0'+i/10))+string(rune('0'+i%10))] = known
	}
	for i := range MaxOverrides {
		overrides[strings.Repeat("2", 68)+string(rune('0'+i/100))+string(rune('0'+i/10%10))+string(rune('0'+i%10))] =
			OverrideOf(map[string]string{LabelStream: strings.Repeat("s", 253), LabelRuntimes: runtimes})
	}
	if size := len(EncodeTraits(traits)) + len(EncodeOverrides(overrides)); size > 230<<10 {
		t.Errorf("%d bytes", size)
	}
}

func TestNamesImage(t *testing.T) {
	user := builders.MachineConfig("50-x", "worker", builders.OSImageURL("registry.example.com/mine"+digest))
	controllers := builders.MachineConfig("00-x", "worker", builders.OSImageURL("registry.example.com/mine"+digest))
	controllers.Annotations = map[string]string{machineconfiguration.AnnotationGeneratedByControllerVersion: "1"}
	got := []bool{NamesImage(user), NamesImage(controllers), NamesImage(builders.MachineConfig("50-y", "worker"))}
	if !slices.Equal(got, []bool{true, false, false}) {
		t.Errorf("%v, want that of the user alone", got)
	}
}
