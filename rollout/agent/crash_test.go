package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

var errCrash = errors.New("the agent is gone")

// crasher ends the agent at one of the things that it does to the outside: before
// it has an effect or, when late, after.
type crasher struct {
	acts, crashAt int
	late          bool
}

func (c *crasher) act(do func() error) error {
	c.acts++
	isLast := c.acts == c.crashAt
	if isLast && !c.late {
		panic(errCrash)
	}
	err := do()
	if isLast {
		panic(errCrash)
	}
	return err
}

// crashingHost is a machine whose agent is ended at what it changes there.
type crashingHost struct {
	*machine
	*crasher
}

func (h crashingHost) Start(ctx context.Context, unit string, arguments []string, timeout time.Duration) error {
	return h.act(func() error { return h.machine.Start(ctx, unit, arguments, timeout) })
}

func (h crashingHost) Forget(ctx context.Context, unit string) error {
	return h.act(func() error { return h.machine.Forget(ctx, unit) })
}

func (h crashingHost) Reboot(ctx context.Context, soft bool) error {
	return h.act(func() error { return h.machine.Reboot(ctx, soft) })
}

func (h crashingHost) WriteFile(path string, content []byte, mode fs.FileMode) error {
	return h.act(func() error { return h.machine.WriteFile(path, content, mode) })
}

func (h crashingHost) RemoveFile(path string) error {
	return h.act(func() error { return h.machine.RemoveFile(path) })
}

func (h crashingHost) PutBack(path string, content []byte, state FileState) error {
	return h.act(func() error { return h.machine.PutBack(path, content, state) })
}

func (h crashingHost) SetAuthorizedKeys(user string, keys []string) error {
	return h.act(func() error { return h.machine.SetAuthorizedKeys(user, keys) })
}

func (h crashingHost) InstallProgram(path string) error {
	return h.act(func() error { return h.machine.InstallProgram(path) })
}

// crashing makes the bench's agent one that is ended at its nth act.
func (b *bench) crashing(at int, late bool) *crasher {
	c := &crasher{crashAt: at, late: late}
	b.wrap = func(agent *Agent) {
		agent.host = crashingHost{b.machine, c}
		faulty, isWatching := b.client.(client.WithWatch)
		if !isWatching {
			b.t.Fatal("the client in memory cannot watch")
		}
		agent.client = interceptor.NewClient(faulty, interceptor.Funcs{
			SubResourceApply: func(ctx context.Context, inner client.Client, name string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
				return c.act(func() error { return inner.SubResource(name).Apply(ctx, object, options...) })
			},
		})
	}
	b.startAgent(b.agent.options.PullSecretDir)
	return c
}

// live makes passes with the commands and reboots that come of them, and starts
// the agent anew whenever it is gone.
func (b *bench) live(passes int) {
	b.t.Helper()
	for range passes {
		b.tryPass()
		b.machine.finish()
		if b.machine.rebootAsked {
			b.machine.reboot()
			b.startAgent(b.agent.options.PullSecretDir)
		}
	}
}

func (b *bench) tryPass() {
	b.t.Helper()
	defer func() {
		if cause := recover(); cause == errCrash { //nolint:errorlint // thrown above
			b.startAgent(b.agent.options.PullSecretDir)
		} else if cause != nil {
			panic(cause)
		}
	}()
	result, err := b.agent.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "worker-1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.pause(max(result.RequeueAfter, time.Second))
}

// updateWithCrash takes a node to B, and back to A when back, with one crash. It
// returns how many acts there were.
func updateWithCrash(t *testing.T, at int, late, back bool) int {
	t.Helper()
	b := newBench(t)
	c := b.crashing(at, late)
	b.takes(site("one"))
	b.live(3)
	if b.machine.keys["core"] == nil || string(b.machine.files[anchor]) != "one" {
		t.Errorf("live content was not applied: %v", b.machine.keys)
	}
	b.order(imageB, v1alpha1.PhaseStaged) // and no live content any more
	b.live(12)
	if len(b.machine.keys) != 0 || b.machine.files[anchor] != nil {
		t.Errorf("live content is left: %v", b.machine.keys)
	}
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
		s.DesiredImage, s.Phase, s.RollbackAfterSeconds = imageB.String(), v1alpha1.PhaseBooted, 600
	})
	b.live(12)
	want, rollbacks := imageB, 0
	if back {
		b.order(imageB, v1alpha1.PhaseRolledBack)
		want, rollbacks = imageA, 1
	} else {
		b.order(imageB, v1alpha1.PhaseStaged) // confirmed
	}
	b.live(12)
	if b.machine.booted != want || b.machine.rollbacks[imageB] != rollbacks || b.machine.rollbacks[imageA] != 0 {
		t.Errorf("the node runs %s, went back %v: %v", b.machine.booted, b.machine.rollbacks, b.machine.calls)
	}
	if want := 2 + rollbacks; b.machine.boots != want {
		t.Errorf("%d boots, want %d: %v", b.machine.boots, want, b.machine.calls)
	}
	if !back && b.machine.files[intentPath] != nil {
		t.Errorf("%s is left", intentPath)
	}
	return c.acts
}

// TestCrashSweep ends the agent at every file it writes, every command it starts
// and every report it makes, before and after the effect.
func TestCrashSweep(t *testing.T) {
	for name, back := range map[string]bool{"to the image": false, "to the image and back": true} {
		t.Run(name, func(t *testing.T) {
			acts := updateWithCrash(t, 0, false, back)
			t.Logf("%d acts", acts)
			for at := 1; at <= acts; at++ {
				for _, late := range []bool{false, true} {
					t.Run(fmt.Sprintf("at act %d, late %t", at, late), func(t *testing.T) { updateWithCrash(t, at, late, back) })
				}
			}
		})
	}
}
