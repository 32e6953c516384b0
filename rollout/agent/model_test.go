package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// steppings are how far the host's clock jumps, backwards too.
var steppings = []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute, time.Hour, -time.Hour}

// TestModel makes random orders, failures, reboots, power cuts and restarts of
// the agent. A node reboots only on orders, an image is applied only if it was
// ordered to boot, and when the trouble ends the node arrives.
func TestModel(t *testing.T) {
	steps, back := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		b.machine.features.SwitchLocks = true // without it, a staged image is unlocked for a moment
		images := []bootc.Reference{imageA, imageB, imageC}
		ordered := map[bootc.Reference]bool{imageA: true}
		orders := map[bootc.Reference]int{}
		order := func(image bootc.Reference, phase v1alpha1.NodeImagePhase, token string) {
			b.order(image, phase)
			object := b.object()
			object.Spec.RetryToken = token
			if phase == v1alpha1.PhaseBooted {
				object.Spec.RollbackAfterSeconds = 600
			}
			if err := b.client.Update(context.Background(), object); err != nil {
				rt.Fatal(err)
			}
			if phase == v1alpha1.PhaseBooted {
				ordered[image] = true
				orders[image]++
			}
		}
		pass := func(rt *rapid.T) {
			wasAsked, calls, status := b.machine.rebootAsked, len(b.machine.calls), b.object().Status
			_, err := b.agent.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker-1"}})
			if err != nil {
				rt.Fatal(err)
			}
			if spec := b.object().Spec; b.machine.rebootAsked && !wasAsked && !b.machine.queued && (spec.Phase != v1alpha1.PhaseBooted || b.machine.staged.String() != spec.DesiredImage || b.machine.locked) {
				rt.Fatalf("reboot asked for with order %+v, staged %s, locked %t", spec, b.machine.staged, b.machine.locked)
			}
			if spec := b.object().Spec; recollect(status.FailedImages, spec.DesiredImage, spec.RetryToken) != nil && status.Booted.Image != spec.DesiredImage {
				for _, call := range b.machine.calls[calls:] {
					if strings.HasPrefix(call, "switch ") || strings.Contains(call, "--from-downloaded") {
						rt.Fatalf("%s, though %s has failed for good under token %q", call, spec.DesiredImage, spec.RetryToken)
					}
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				steps++
				if !ordered[b.machine.booted] {
					rt.Fatalf("the node runs %s, which nobody ordered", b.machine.booted)
				}
				if b.machine.takenBack > 0 {
					rt.Fatalf("a rollback was taken back by another: %v", b.machine.calls)
				}
				for image, count := range b.machine.rollbacks {
					if count > orders[image] {
						rt.Fatalf("the node went back from %s %d times, ordered to boot it %d times", image, count, orders[image])
					}
				}
			},
			"pass": pass, "pass 2": pass, "pass 3": pass, "pass 4": pass,
			"command ends":   func(*rapid.T) { b.machine.finish() },
			"command ends 2": func(*rapid.T) { b.machine.finish() },
			"time goes on": func(rt *rapid.T) {
				by := rapid.SampledFrom(steppings).Draw(rt, "by")
				b.now = b.now.Add(by)
				b.machine.up += max(by, 0) // nobody sets this one
			},
			"order": func(rt *rapid.T) {
				phase := rapid.SampledFrom([]v1alpha1.NodeImagePhase{v1alpha1.PhaseIdle, v1alpha1.PhaseStaged, v1alpha1.PhaseBooted, v1alpha1.PhaseBooted, v1alpha1.PhaseRolledBack}).Draw(rt, "phase")
				order(rapid.SampledFrom(images).Draw(rt, "image"), phase, rapid.SampledFrom([]string{"", "x"}).Draw(rt, "token"))
			},
			// By single steps hardly any case comes so far that there is a way back.
			"update": func(rt *rapid.T) {
				order(rapid.SampledFrom(images).Draw(rt, "image"), v1alpha1.PhaseBooted, "")
				b.settleDown()
			},
			"told to go back": func(*rapid.T) {
				spec := b.object().Spec
				if image, err := bootc.ParseReference(spec.DesiredImage); err == nil {
					order(image, v1alpha1.PhaseRolledBack, spec.RetryToken)
				}
			},
			"no contact for long": func(*rapid.T) {
				b.pause(contactLimit)
				b.deadman()
				if b.machine.rebootAsked {
					b.machine.reboot()
					b.startAgent(b.agent.options.PullSecretDir)
				}
			},
			"registry fails": func(rt *rapid.T) {
				b.machine.fails["stage"] = []string{rapid.SampledFrom([]string{"connection refused", "unauthorized: authentication required", "Target image does not have ostree.bootable label"}).Draw(rt, "text")}
			},
			"unlock fails":   func(*rapid.T) { b.machine.fails["unlock"] = []string{"i/o timeout"} },
			"finalize fails": func(*rapid.T) { b.machine.finalizeFails = true },
			"reboot": func(*rapid.T) {
				b.machine.reboot()
				b.startAgent(b.agent.options.PullSecretDir)
			},
			"power cut": func(*rapid.T) {
				b.machine.restart()
				b.startAgent(b.agent.options.PullSecretDir)
			},
			"rollback by hand": func(*rapid.T) {
				if b.machine.rollback.IsZero() {
					return
				}
				b.machine.booted, b.machine.rollback = b.machine.rollback, b.machine.booted
				b.machine.queued = false
				b.machine.restart()
				b.startAgent(b.agent.options.PullSecretDir)
			},
			"dead-man":       func(*rapid.T) { b.deadman() },
			"boot counted":   func(*rapid.T) { b.countBoot() },
			"agent restarts": func(*rapid.T) { b.startAgent(b.agent.options.PullSecretDir) },
		})
		for _, count := range b.machine.rollbacks {
			back += count
		}
		b.machine.fails, b.machine.finalizeFails = map[string][]string{}, false
		order(imageB, v1alpha1.PhaseBooted, "end")
		for range 3 {
			b.settleDown()
			b.pause(rebootPatience)
		}
		if b.machine.booted != imageB {
			rt.Fatalf("at the end the node runs %s: %+v", b.machine.booted, b.object().Status)
		}
		order(imageB, v1alpha1.PhaseStaged, "end") // confirmed
		b.settleDown()
		writes := b.writes
		b.settleDown()
		if b.writes != writes {
			rt.Fatalf("%d writes though nothing changed", b.writes-writes)
		}
	})
	t.Logf("%d steps, %d times back", steps, back)
	if steps > 5000 && back == 0 {
		t.Error("no node ever went back: nothing is shown about that")
	}
}
