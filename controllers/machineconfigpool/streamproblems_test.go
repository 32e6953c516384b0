package machineconfigpool

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

func TestThePoolRepeatsTheProblemsOfItsStream(t *testing.T) {
	for name, tc := range map[string]struct{ stream, problems, status, message string }{
		"none":                            {"", "", "False", ""},
		"its own":                         {"", `[{"source":"next release","stream":"a","reason":"it goes"}]`, "True", "next release: it goes"},
		"another stream's":                {"", `[{"source":"payload","stream":"b","reason":"half there"}]`, "False", ""},
		"of a stream that is left out":    {"b", `[{"source":"payload","stream":"b","reason":"half there"}]`, "True", "payload: half there"},
		"a whole source's":                {"", `[{"source":"payload","reason":"cannot be read"}]`, "True", "payload: cannot be read"},
		"an annotation that nobody reads": {"", `{`, "False", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorld()
			w.pool.Spec.OSImageStream.Name = tc.stream
			w.streams = &mcfgv1.OSImageStream{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{machineconfiguration.AnnotationProblems: tc.problems}},
				Spec:       mcfgv1.OSImageStreamSpec{DefaultStream: "a"},
				Status:     mcfgv1.OSImageStreamStatus{DefaultStream: "a", AvailableStreams: []mcfgv1.OSImageStreamSet{{Name: "a", OSImage: image1, OSExtensionsImage: image1}}},
			}
			if status, message := condition(w.status(), conditionStreamProblems); status != tc.status || message != tc.message {
				t.Errorf("%s %q, want %s %q", status, message, tc.status, tc.message)
			}
		})
	}
}
