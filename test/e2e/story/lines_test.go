package story

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/builder/request"
)

var (
	digest    = "sha256:" + strings.Repeat("a", 64)
	reference = "10.89.0.1:5000/os/worker@" + digest
)

func TestReportOfABuilderIsReadable(t *testing.T) {
	tests := map[string]struct {
		message string
		want    []string
	}{
		"an image was pushed": {
			message: string(request.Result{
				Digest: digest, Size: 12_300_000,
				Steps: []request.Step{
					{Name: "configs", Duration: metav1.Duration{Duration: 70 * time.Millisecond}},
					{Name: "containerfile", Duration: metav1.Duration{Duration: 4200 * time.Millisecond}, Reused: true},
				},
			}.Encode()),
			want: []string{
				"step configs             0.1s",
				"step containerfile       4.2s (reused)",
				"pushed " + digest + ", 12.3 MB",
			},
		},
		"the build failed": {
			message: string(request.Result{
				Failure: &request.Failure{Class: request.Containerfile, Message: "RUN failed", LastLines: []string{"E: no such package"}},
			}.Encode()),
			want: []string{"failed, class Containerfile: RUN failed", "E: no such package"},
		},
		"the message is not a report": {
			message: "panic: out of memory",
			want:    []string{"panic: out of memory"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: test.message}}},
			}}}
			if diff := cmp.Diff(test.want, reportLines(pod)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStateOfANodeInWords(t *testing.T) {
	slot := func(phase v1alpha1.SlotPhase, message string) *v1alpha1.Slot {
		return &v1alpha1.Slot{Image: reference, Phase: phase, Message: message}
	}
	booted := v1alpha1.NodeImage{Status: v1alpha1.NodeImageStatus{Booted: &v1alpha1.HostImage{Digest: digest}}}
	tests := map[string]struct {
		image v1alpha1.NodeImage
		want  string
		slot  *v1alpha1.Slot
	}{
		"drained":       {slot: slot(v1alpha1.SlotDraining, "waits for a/b"), want: "is drained for sha256:aaaaaaaaaaaa, waits for a/b"},
		"on its way":    {slot: slot(v1alpha1.SlotBooting, ""), want: "reboots into sha256:aaaaaaaaaaaa"},
		"arrived":       {image: booted, slot: slot(v1alpha1.SlotBooting, ""), want: "has booted sha256:aaaaaaaaaaaa, is looked at before it serves again"},
		"soaking":       {image: booted, slot: slot(v1alpha1.SlotSoaking, ""), want: "runs sha256:aaaaaaaaaaaa and serves again, is watched"},
		"going back":    {image: booted, slot: slot(v1alpha1.SlotRollingBack, ""), want: "goes back from sha256:aaaaaaaaaaaa"},
		"nothing asked": {want: "not asked to move yet"},
		"asked": {
			image: v1alpha1.NodeImage{Spec: v1alpha1.NodeImageSpec{DesiredImage: reference}},
			want:  "downloads sha256:aaaaaaaaaaaa",
		},
		"staged": {
			image: v1alpha1.NodeImage{
				Spec:   v1alpha1.NodeImageSpec{DesiredImage: reference},
				Status: v1alpha1.NodeImageStatus{Staged: &v1alpha1.HostImage{Digest: digest}},
			},
			want: "has staged sha256:aaaaaaaaaaaa",
		},
		"booted": {
			image: v1alpha1.NodeImage{
				Spec:   v1alpha1.NodeImageSpec{DesiredImage: reference},
				Status: v1alpha1.NodeImageStatus{Booted: &v1alpha1.HostImage{Digest: digest}},
			},
			want: "runs sha256:aaaaaaaaaaaa",
		},
		"failed": {
			image: v1alpha1.NodeImage{
				Spec: v1alpha1.NodeImageSpec{DesiredImage: reference},
				Status: v1alpha1.NodeImageStatus{LastAttempt: &v1alpha1.Attempt{
					Image: reference, Class: v1alpha1.FailureDiskFull, Message: "no space left on device",
				}},
			},
			want: "failed, class DiskFull: no space left on device",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if got := nodeState(&test.image, test.slot, reference); got != test.want {
				t.Errorf("state is %q, want %q", got, test.want)
			}
		})
	}
}

func TestLongOutputOfAStepIsCut(t *testing.T) {
	log := []string{"step configs", "step containerfile"}
	for range 3 * outputLines {
		log = append(log, outputPrefix+"Get:1 figlet")
	}
	log = append(log, "step verify", outputPrefix+"ok")
	var shown []string
	filter := &logFilter{}
	for _, line := range log {
		if line, ok := filter.next(line); ok {
			shown = append(shown, line)
		}
	}
	want := 2 + outputLines + 1 + 2
	if len(shown) != want || shown[len(shown)-1] != outputPrefix+"ok" {
		t.Errorf("%d lines are shown, want %d: %v", len(shown), want, shown)
	}
}
