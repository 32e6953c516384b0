package nodepool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWanted(t *testing.T) {
	earlier, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	valid := condition{Type: conditionValid, Status: "True", Reason: reasonValid, LastTransitionTime: earlier, ObservedGeneration: 1}
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "x", errors.New("no"))
	for name, tc := range map[string]struct {
		before         []condition
		decided        answer
		waiting        error
		status, reason string
		message        string
		since          metav1.Time
	}{
		"everything goes together":            {decided: answer{reason: reasonValid}, status: "True", reason: reasonValid, since: now},
		"still so: the time stays":            {before: []condition{valid}, decided: answer{reason: reasonValid}, status: "True", reason: reasonValid, since: earlier},
		"it does not":                         {before: []condition{valid}, decided: answer{problem: "why"}, status: "False", reason: reasonFailed, message: "why", since: now},
		"not read yet":                        {waiting: errors.New("away"), status: "Unknown", reason: "ReleaseNotRead", message: "tried again", since: now},
		"not read now: what was said stays":   {before: []condition{valid}, waiting: errors.New("away"), status: "True", reason: reasonValid, since: earlier},
		"what takes somebody to mend is said": {before: []condition{valid}, waiting: fmt.Errorf("read: %w", &takenError{"s", "p"}), status: "Unknown", reason: "CannotProceed", message: "Secret s belongs to somebody else", since: now},
		"no rights":                           {before: []condition{valid}, waiting: forbidden, status: "Unknown", reason: "NoRights", message: "ClusterRole imagemode-nodepool", since: now},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &nodePool{}
			pool.Status.Conditions = tc.before
			got := wanted(pool, tc.decided, tc.waiting, now)
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || !got.LastTransitionTime.Equal(&tc.since) {
				t.Errorf("%+v", got)
			}
		})
	}
}
