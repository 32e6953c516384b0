package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// statusTimeout: `bootc status` waits for the lock of any other bootc command,
// one that an administrator runs, say, without a limit of its own.
const statusTimeout = 30 * time.Second

// Inputs is everything that a decision depends on.
type Inputs struct {
	// Node is the node's name; it spreads retries over time.
	Node string
	Now  time.Time
	Spec v1alpha1.NodeImageSpec
	// Desired is spec.desiredImage, validated; zero when empty or invalid.
	Desired bootc.Reference
	// Attempt is the last one, settled; nil when there was none.
	Attempt *v1alpha1.Attempt
	// Failed are the images that failed on this node for good.
	Failed []v1alpha1.Attempt

	BootID string
	// Host is bootc's status; nil as long as it was never read in this boot.
	Host *bootc.Host
	// Busy says why Host is not from now, or is empty.
	Busy string
	// IsBroken says that bootc answers with an error: Busy is that error then.
	IsBroken bool
	Features bootc.Features
	// Command is what runs or ran in unitBootc.
	Command Command
	// Problem is why what was decided before could not be begun; empty: it was.
	Problem string
	// Inhibitor is who keeps the host from going down now; read while an order to
	// reboot stands.
	Inhibitor string
	// Intent is the record of pending.json, nil when there is none.
	Intent *Intent
	// Survey is what was seen of the host beside bootc.
	Survey survey
	// LiveHash is that of the live content that the node has; LiveProblem is why it
	// does not have what it should.
	LiveHash, LiveProblem string
	// Secret is the pull secret as it is mounted; nil when it is not there.
	// IsSecretOwn: it is the node's own, of whatever content.
	Secret      Secret
	IsSecretOwn bool
	// TriedSecret is the hash of the pull secret that the last command was started
	// with; empty: with none that is known. Read while Secret may be used.
	TriedSecret string
}

// memory is what is kept between passes. Nothing in it is the only copy, but
// for the last known status while bootc does not answer.
type memory struct {
	bootID   string
	host     *bootc.Host
	features *bootc.Features
	attempt  *v1alpha1.Attempt
	failed   []v1alpha1.Attempt
	// problem is why the last act on the host failed; empty: it did not.
	problem string
	// triedSecret is the hash of the pull secret that a command of this process was
	// started with last; empty: of none.
	triedSecret string
	// liveHash is that of the live content that was applied in this process.
	liveHash string
	// survey is from surveyed on; hasCorrected: files were put right in it.
	survey       survey
	surveyed     time.Time
	hasCorrected bool
	// seeded is set once attempt and failed were taken over from the API.
	seeded bool
}

// observe gathers the inputs. A part of the host that does not answer is an
// error of the whole pass, but for bootc's status: that is kept and said.
func (a *Agent) observe(ctx context.Context, object *v1alpha1.NodeImage) (Inputs, error) {
	in := Inputs{Node: a.options.NodeName, Now: a.clock(), Spec: object.Spec}
	if desired, err := bootc.ParseReference(object.Spec.DesiredImage); err == nil {
		in.Desired = desired
	}
	var err error
	if in.BootID, err = a.host.BootID(ctx); err != nil {
		return in, err
	}
	a.recall(in.BootID, object.Status)
	in.Attempt, in.Failed, in.Problem = a.memory.attempt, a.memory.failed, a.memory.problem
	if failure := recollect(in.Failed, in.Spec.DesiredImage, in.Spec.RetryToken); failure != nil {
		in.Attempt = failure // it was another image's turn meanwhile
	}
	if in.Intent, err = readIntent(a.host); err != nil {
		log.FromContext(ctx).Error(err, "the record of a pending boot is unreadable and is ignored")
	}
	if err = a.readSecret(&in); err != nil {
		return in, err
	}
	if in.Command, err = a.host.Command(ctx, unitBootc); err != nil {
		return in, err
	}
	a.observeBootc(ctx, &in)
	if in.Spec.Phase == v1alpha1.PhaseBooted && !isRebooting(in) {
		if in.Inhibitor, err = a.host.RebootInhibitor(ctx); err != nil {
			log.FromContext(ctx).Info("it is not known whether something inhibits a reboot", "error", err.Error())
		}
	}
	if in.Command.State != CommandRunning && !isRebooting(in) {
		isDue := a.isSurveyDue(in)
		a.takeLive(ctx, &in, object.Status.LiveHash, isDue)
		if isDue {
			a.look(ctx, in)
		}
	} else {
		in.LiveHash = object.Status.LiveHash
	}
	in.Survey = a.memory.survey
	return in, nil
}

// readSecret reads the node's own pull secret where there is one, and else the
// rollout's, if it has one.
func (a *Agent) readSecret(in *Inputs) (err error) {
	switch {
	case a.options.PullSecretFile != "":
		in.IsSecretOwn = true
		in.Secret, err = readSecretFile(a.options.PullSecretFile)
	case in.Spec.PullSecretHash != "":
		in.Secret, err = readPullSecret(a.options.PullSecretDir, in.Spec.Rollout)
	}
	if err == nil && hasSecret(*in) {
		in.TriedSecret = a.readTriedSecret()
	}
	return err
}

// readTriedSecret: an agent that was started anew finds on the host what the one
// before it had brought there. From its own first command on it does not look any
// more: were another program to write that file again and again, each pass would
// hold the pull secret to be a new one, and the registry would get no rest.
// A file that cannot be read is none: the next command writes it anew.
func (a *Agent) readTriedSecret() string {
	if a.memory.triedSecret != "" {
		return a.memory.triedSecret
	}
	present, err := a.host.ReadFile(authFilePath)
	if err != nil {
		return ""
	}
	return Secret(present).hash()
}

// recall forgets what does not outlive a boot, and takes the attempts from the
// API once: from then on memory is newer than the cache.
func (a *Agent) recall(bootID string, status v1alpha1.NodeImageStatus) {
	if a.memory.bootID != bootID {
		a.memory = memory{bootID: bootID, attempt: a.memory.attempt, failed: a.memory.failed, seeded: a.memory.seeded}
	}
	if !a.memory.seeded {
		a.memory.attempt, a.memory.failed, a.memory.seeded = status.LastAttempt.DeepCopy(), status.DeepCopy().FailedImages, true
	}
}

// observeBootc asks bootc for its status, unless a command of ours runs: it
// holds the lock that a status waits for. Nor is it asked while the host goes
// down, when starting a unit may hang.
func (a *Agent) observeBootc(ctx context.Context, in *Inputs) {
	in.Host = a.memory.host
	if in.Command.State == CommandRunning || isRebooting(*in) {
		in.Busy = "a command of the agent is running"
		return
	}
	features, err := a.readFeatures(ctx)
	if err == nil {
		in.Features = features
		in.Host, err = a.readStatus(ctx)
	}
	if err != nil {
		in.Busy, in.IsBroken = bootc.OneLine(err.Error()), errors.Is(err, errBroken)
		in.Host = a.memory.host
		return
	}
	a.memory.host = in.Host
}

// errBroken is that bootc has answered, and with nothing of use: a damaged repository
// shows that way. No answer at all may be a matter of patience.
var errBroken = errors.New("bootc does not work on the node")

func (a *Agent) readStatus(ctx context.Context) (*bootc.Host, error) {
	output, err := a.query(ctx, bootc.StatusArguments())
	if err != nil {
		return nil, err
	}
	host, err := bootc.ParseStatus([]byte(output.Stdout))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return &host, nil
}

// readFeatures reads the help of bootc, once per boot: bootc is part of the image.
func (a *Agent) readFeatures(ctx context.Context) (bootc.Features, error) {
	if a.memory.features != nil {
		return *a.memory.features, nil
	}
	switchHelp, switchError := a.query(ctx, bootc.SwitchHelpArguments())
	upgradeHelp, upgradeError := a.query(ctx, bootc.UpgradeHelpArguments())
	if err := errors.Join(switchError, upgradeError); err != nil {
		return bootc.Features{}, err
	}
	features := bootc.ParseFeatures(switchHelp.Stdout, upgradeHelp.Stdout)
	a.memory.features = &features
	return features, nil
}

// query runs a command that changes nothing.
func (a *Agent) query(ctx context.Context, arguments []string) (Output, error) {
	output, err := a.host.Run(ctx, unitQuery, arguments, statusTimeout)
	if err != nil {
		return output, err
	}
	if !output.Succeeded() {
		failure := bootc.Classify(output.Stderr)
		return output, fmt.Errorf("%w: bootc %s failed (%s, exit code %d): %s", errBroken, arguments[1], output.Result, output.ExitCode, failure.Message)
	}
	return output, nil
}
