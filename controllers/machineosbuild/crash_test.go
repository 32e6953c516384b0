package machineosbuild

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

// scenarios are lives of a MachineOSConfig that have to end the same whatever
// breaks in between.
var scenarios = map[string]func(*world){
	"first build": func(w *world) {
		w.settle()
		w.podRuns()
		w.settle()
		w.deletePods()
		w.builderEnds(success)
		w.settle()
	},
	"edit while building": func(w *world) {
		w.settle()
		w.podRuns()
		w.settle()
		w.edit(builders.Containerfile(withoutRun))
		w.settle()
		w.builderEnds(success)
		w.settle()
	},
	"edit taken back": func(w *world) {
		w.settle()
		w.builderEnds(success)
		w.settle()
		w.edit(builders.Containerfile(withoutRun))
		w.settle()
		w.edit(builders.Containerfile(withRun))
		w.settle()
	},
	"rebuild": func(w *world) {
		w.settle()
		w.builderEnds(success)
		w.settle()
		w.edit(askRebuild("x"))
		w.settle()
		w.builderEnds(success)
		w.settle()
	},
	"failure that stands": func(w *world) {
		w.settle()
		w.builderEnds(runFail)
		w.settle()
	},
	"failure that passes": func(w *world) {
		w.settle()
		w.builderEnds(failsWith(request.Network))
		w.settle()
		w.now = w.now.Add(firstRetry)
		w.settle()
		w.builderEnds(success)
		w.settle()
	},
	"secret corrected between two attempts": func(w *world) {
		w.settle()
		w.attemptFails(request.Registry)
		w.settle()
		w.replaceSecret("push")
		w.settle()
		w.builderEnds(success)
		w.settle()
	},
	"failure that no pod mends": func(w *world) {
		w.settle()
		w.attemptFails(request.Authentication)
		w.settle()
		w.jobEndsFor(w.current(), batchv1.JobFailed)
		w.settle()
	},
	"same image from another config while it is built": func(w *world) {
		w.settle()
		first := w.current()
		w.renderAgain(renderedName + "b")
		w.settle()
		w.builderEndsFor(first, success)
		w.onShelf(first)
		w.settle()
	},
	"job deleted": func(w *world) {
		w.settle()
		w.delete(w.job(w.current()))
		w.settle()
		w.builderEnds(success)
		w.settle()
	},
	"image lost": func(w *world) {
		w.settle()
		w.builderEnds(success)
		w.settle()
		w.gone[imageDigest] = true
		for range 3 {
			w.now = w.now.Add(watchInterval)
			w.settle()
		}
		w.gone[imageDigest] = false
		w.builderEnds(success)
		w.settle()
	},
	"image reused": func(w *world) {
		w.settle()
		w.builderEnds(success)
		w.settle()
		w.onShelf(w.current())
		w.renderAgain(renderedName + "b")
		w.settle()
	},
	"deleted in use": func(w *world) {
		w.settle()
		w.builderEnds(success)
		w.settle()
		w.rolledOut()
		w.delete(w.config())
		w.settle()
		w.builderEnds(request.Result{Digest: plainDigest})
		w.settle()
		w.rolledOut()
		w.settle()
		w.collect()
	},
}

func (w *world) deletePods() {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.client.List(w.t.Context(), &pods); err != nil {
		w.t.Fatal(err)
	}
	for i := range pods.Items {
		w.delete(&pods.Items[i])
	}
}

// TestCrashes breaks the connection, and the program with it, before and after
// each write in turn, starts it again, and wants the same end as without. It
// takes a sample of the points, another one for each scenario, or all of them
// with -crashes.all.
func TestCrashes(t *testing.T) {
	var points atomic.Int32
	t.Cleanup(func() { t.Logf("%d crashes", points.Load()) })
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clean := newWorld(t)
			scenario(clean)
			want := clean.outcome()
			for _, isDone := range []bool{false, true} {
				for at := 1; at <= clean.writes; at++ {
					if !*everyCrash && (at+len(name))%5 != 0 {
						continue
					}
					points.Add(1)
					w := newWorld(t)
					w.fault = func(write int, done bool) error {
						if write == at && done == isDone {
							return errCrash
						}
						return nil
					}
					scenario(w)
					if diff := cmp.Diff(want, w.outcome()); diff != "" {
						t.Errorf("after a crash at write %d, done: %t (-want +got):\n%s", at, isDone, diff)
					}
				}
			}
		})
	}
}

// TestConflicts lets some of the writes, one in so many, meet another writer.
func TestConflicts(t *testing.T) {
	points := 0
	for name, scenario := range scenarios {
		clean := newWorld(t)
		scenario(clean)
		want := clean.outcome()
		for _, every := range []int{2, 3, 5, 7} {
			t.Run(fmt.Sprintf("%s, one in %d", name, every), func(t *testing.T) {
				points++
				w := newWorld(t)
				chance := rand.New(rand.NewPCG(1, uint64(every)))
				w.fault = func(_ int, isDone bool) error {
					if !isDone && chance.IntN(every) == 0 {
						return apierrors.NewConflict(mcfgv1.Resource("machineosconfigs"), "worker", errCrash)
					}
					return nil
				}
				scenario(w)
				if diff := cmp.Diff(want, w.outcome()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
	t.Logf("%d runs", points)
}

// TestALateCache lets the reconcilers read what was there some rounds ago.
func TestALateCache(t *testing.T) {
	for name, scenario := range scenarios {
		clean := newWorld(t)
		scenario(clean)
		want := clean.outcome()
		for lag := 1; lag <= 3; lag++ {
			t.Run(fmt.Sprintf("%s, %d behind", name, lag), func(t *testing.T) {
				w := newWorld(t)
				w.lag = lag
				scenario(w)
				if diff := cmp.Diff(want, w.outcome()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// outcome is what has to be the same with and without faults.
func (w *world) outcome() map[string]string {
	w.t.Helper()
	outcome := map[string]string{
		"secrets":      fmt.Sprint(w.count(&corev1.SecretList{})),
		"jobs":         fmt.Sprint(w.count(&batchv1.JobList{})),
		"builds made":  fmt.Sprint(w.made["*v1.MachineOSBuild"]),
		"jobs made":    fmt.Sprint(w.made["*v1.Job"]),
		"jobs deleted": fmt.Sprint(w.deleted["*v1.Job"]),
	}
	if !w.isGone() {
		config := w.config()
		outcome["current"] = config.Annotations[keys.AnnotationCurrentMachineOSBuild]
		recorded, _ := decodeCounters(config.Annotations)
		recorded.NotBefore = nil
		outcome["counters"] = recorded.encode()
		outcome["image"] = string(config.Status.CurrentImagePullSpec)
		for _, condition := range config.Status.Conditions {
			outcome[condition.Type] = string(condition.Status) + " " + condition.Reason
		}
	}
	var builds mcfgv1.MachineOSBuildList
	if err := w.client.List(context.Background(), &builds); err != nil {
		w.t.Fatal(err)
	}
	for i := range builds.Items {
		outcome[builds.Items[i].Name] = string(phaseOf(&builds.Items[i]))
	}
	return outcome
}
