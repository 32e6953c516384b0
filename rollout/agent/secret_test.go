package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const otherSecret = `{"auths":{"registry.example:5000":{"auth":"cmlnaHQ="}}}`

// mount changes the pull secret of the rollout as the kubelet brings it.
func (b *bench) mount(content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.agent.options.PullSecretDir, "worker"), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// refuseUntilTheWaitIsLong orders the image, which the registry refuses to give.
func (b *bench) refuseUntilTheWaitIsLong(hash string) {
	b.t.Helper()
	b.machine.fails["stage"] = slices.Repeat([]string{"unauthorized: authentication required"}, 100)
	b.orderSecret(hash)
	for range 200 {
		b.look()
		if last := b.object().Status.LastAttempt; last != nil && last.Class == v1alpha1.FailureAuthentication && last.Failures > 7 {
			b.machine.fails["stage"] = nil
			return
		}
		b.machine.finish()
		b.pause(recheckInterval)
	}
	b.t.Fatalf("no long row of refused attempts: %+v", b.object().Status)
}

func (b *bench) orderSecret(hash string) {
	b.t.Helper()
	b.orderSpec(func(s *v1alpha1.NodeImageSpec) {
		s.DesiredImage, s.Phase, s.PullSecretHash = imageB.String(), v1alpha1.PhaseStaged, hash
	})
}

// TestAnotherPullSecretEndsTheWaitAfterARefusedOne: at once when it is there, and
// not before; also where the agent, which had it all in memory, was ended meanwhile.
func TestAnotherPullSecretEndsTheWaitAfterARefusedOne(t *testing.T) {
	for sentence, test := range map[string]struct {
		before    string
		isRestart bool
	}{
		"a secret that is corrected":                       {before: Secret(pullSecret).hash()},
		"a first secret":                                   {},
		"a secret that is corrected, and the agent starts": {before: Secret(pullSecret).hash(), isRestart: true},
		"a first secret, and the agent starts":             {isRestart: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBench(t)
			b.refuseUntilTheWaitIsLong(test.before)
			tried := len(b.machine.calls)
			if test.isRestart {
				b.startAgent(b.agent.options.PullSecretDir)
			}
			b.look()
			b.orderSecret(Secret(otherSecret).hash())
			b.look()
			b.expectCondition(v1alpha1.ConditionStaged, "False", ReasonWaitingForSecret)
			if len(b.machine.calls) != tried {
				t.Fatalf("tried before the secret was there: %v", b.machine.calls[tried:])
			}
			b.mount(otherSecret)
			b.look()
			if len(b.machine.calls) != tried+1 || string(b.machine.files[authFilePath]) != otherSecret {
				t.Errorf("%d tries at once, with %s", len(b.machine.calls)-tried, b.machine.files[authFilePath])
			}
			b.settleDown()
			b.expectCondition(v1alpha1.ConditionStaged, "True", ReasonStaged)
		})
	}
}

// TestARefusedPullSecretIsNotTriedAtOnce: the wait goes on where the secret is the
// same, also when the agent is started anew, and when another program writes into
// the file that bootc reads.
func TestARefusedPullSecretIsNotTriedAtOnce(t *testing.T) {
	b := newBench(t)
	b.refuseUntilTheWaitIsLong(Secret(pullSecret).hash())
	tried, writes := len(b.machine.calls), b.writes
	b.startAgent(b.agent.options.PullSecretDir)
	b.look()
	if len(b.machine.calls) != tried || b.writes != writes {
		t.Fatalf("the start of the agent: tried %v, %d writes", b.machine.calls[tried:], b.writes-writes)
	}
	b.machine.fails["stage"] = slices.Repeat([]string{"unauthorized: authentication required"}, 100)
	for end := b.now.Add(time.Hour); b.now.Before(end); b.pass() {
		if len(b.machine.calls) > tried {
			b.machine.files[authFilePath] = []byte("{}")
		}
	}
	if count := len(b.machine.calls) - tried; count < 10 || count > 24 {
		t.Errorf("%d tries in an hour, want one each 2.5 to 5 minutes", count)
	}
}
