package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// The dead-man timer is the host's own: a timer of systemd starts this program
// when the image that was booted last had its time, whether or not kubelet and
// agent run. Units in /etc are carried into the new image at shutdown and are in
// the old one, too; /var is common to both.
const (
	programPath = "/var/lib/imagemode/bin/imagemode-agent"
	timerPath   = "/etc/systemd/system/imagemode-rollback.timer"
	servicePath = "/etc/systemd/system/imagemode-rollback.service"
	bootsPath   = "/etc/systemd/system/imagemode-boots.service"
	// wantsPath has the timer started at boot: a file in place of a link.
	wantsPath = "/etc/systemd/system/timers.target.d/50-imagemode-rollback.conf"
)

const timerUnit = `[Unit]
Description=Deadline for the OS image that was booted last
ConditionPathExists=` + intentPath + `

[Timer]
OnActiveSec=%ds
AccuracySec=5s
`

const serviceUnit = `[Unit]
Description=Go back to the OS image before, if the present one is not confirmed
ConditionPathExists=` + intentPath + `

[Service]
Type=exec
ExecStart=` + programPath + ` go-back
UnsetEnvironment=container
Restart=on-failure
RestartSec=30
`

// bootsUnit runs once in each boot: one that does not last until the deadline
// would begin it anew for ever.
const bootsUnit = `[Unit]
Description=Count the boots of an OS image that is not confirmed
ConditionPathExists=` + intentPath + `

[Service]
Type=exec
ExecStart=` + programPath + ` go-back --boot
UnsetEnvironment=container
`

const wantsUnit = `[Unit]
Wants=imagemode-rollback.timer imagemode-boots.service
`

// arm puts the dead-man timer in place for the next boot. What is there already
// is left alone; without a deadline nothing is done, as the record says so.
func arm(host Host, afterSeconds int64) error {
	if afterSeconds <= 0 {
		return nil
	}
	if err := host.InstallProgram(programPath); err != nil {
		return err
	}
	for _, file := range []struct{ path, content string }{
		{servicePath, serviceUnit},
		{bootsPath, bootsUnit},
		{timerPath, fmt.Sprintf(timerUnit, afterSeconds)},
		{wantsPath, wantsUnit},
	} {
		present, err := host.ReadFile(file.path)
		if err == nil && bytes.Equal(present, []byte(file.content)) {
			continue
		}
		if err := host.WriteFile(file.path, []byte(file.content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// noteContact asks the API server, past the cache, and records that it answered.
func (a *Agent) noteContact(ctx context.Context, object *v1alpha1.NodeImage) bool {
	err := a.live.Get(ctx, client.ObjectKeyFromObject(object), &v1alpha1.NodeImage{})
	if err == nil && a.options.ActsAsNode {
		err = a.checkKubelet(ctx, object)
	}
	if err == nil {
		err = writeContact(a.host)
	}
	if err != nil {
		log.FromContext(ctx).Info("the image is not confirmed, and the node is not seen to do well; if that lasts, it goes back", "error", err.Error())
	}
	return err == nil
}

// checkKubelet: an agent that is a pod runs because the kubelet does. One that is a
// service of the host reaches the API server without it.
func (a *Agent) checkKubelet(ctx context.Context, object *v1alpha1.NodeImage) error {
	node := &corev1.Node{}
	if err := a.live.Get(ctx, client.ObjectKeyFromObject(object), node); err != nil {
		return err
	}
	booted, _ := splitBootID(a.memory.bootID)
	if reported := node.Status.NodeInfo.BootID; reported != booted {
		return fmt.Errorf("the kubelet has reported boot %s, and not yet the present one, %s", reported, booted)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node is not Ready: %s", condition.Message)
		}
	}
	return nil
}

const (
	// goBackInterval is how often the steps of going back are looked at.
	goBackInterval = time.Second
	// contactInterval is how often an agent looks that has yet to see the node do
	// well on an image.
	contactInterval = 5 * time.Second
	// wellInterval is how often a node is looked at whose agent is well.
	wellInterval = 2 * time.Minute
)

// Deadman is what the dead-man timer starts: it has the node go back to the image
// before if the present one was not confirmed and its agent does not reach the
// API server. As long as that does, it waits. It returns why there is nothing to
// do any more, or when the reboot was asked for; after an error it can be started
// again.
func Deadman(ctx context.Context, host Host) (why string, err error) {
	for {
		found, err := lookForDeadman(ctx, host)
		if err != nil {
			return "", err
		}
		interval := wellInterval
		if !found.isWell {
			if found.why != "" {
				return found.why, nil
			}
			isAsked, err := goBack(ctx, host, *found.intent, found.bootID, time.Now())
			if err != nil {
				return "", err
			}
			if isAsked {
				return "going back to " + found.intent.Previous, nil
			}
			interval = goBackInterval
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(interval):
		}
	}
}

// maxBoots is how often an image may be booted without being confirmed: somebody
// may reboot the node for reasons of their own, and an image may do so again and
// again.
const maxBoots = 3

// CountBoot is called once in each boot. It records the boot where an image is not
// confirmed, and has the node go back, as Deadman does, when there were too many.
// It returns what came of it.
func CountBoot(ctx context.Context, host Host) (what string, err error) {
	isTooOften, what, err := countBoot(ctx, host)
	if err != nil || !isTooOften {
		return what, err
	}
	return Deadman(ctx, host)
}

func countBoot(ctx context.Context, host Host) (isTooOften bool, what string, err error) {
	intent, err := readIntent(host)
	if err != nil {
		return false, "", err
	}
	if intent == nil || !intent.Rebooting || intent.RollbackAfterSeconds == 0 {
		return false, "no update waits for confirmation", nil
	}
	bootID, err := host.BootID(ctx)
	switch {
	case err != nil:
		return false, "", err
	case intent.BootID == bootID:
		return false, "the node has not rebooted since it was told to", nil
	case !slices.Contains(intent.Boots, bootID) && len(intent.Boots) <= maxBoots:
		intent.Boots = append(intent.Boots, bootID)
		if err := writeIntent(host, *intent); err != nil {
			return false, "", err
		}
	}
	return len(intent.Boots) > maxBoots, fmt.Sprintf("boot %d of an image that is not confirmed", len(intent.Boots)), nil
}

// deadmanLook is what the dead-man sees.
type deadmanLook struct {
	intent *Intent
	bootID string
	// why the node stays where it is, for good; empty: it goes back.
	why string
	// isWell: the agent reaches the API server, and the controller decides.
	isWell bool
}

func lookForDeadman(ctx context.Context, host Host) (look deadmanLook, err error) {
	if look.intent, err = readIntent(host); err != nil {
		return look, err
	}
	if look.intent == nil || look.intent.RollbackAfterSeconds == 0 {
		look.why = "no update waits for confirmation"
		return look, nil
	}
	if look.bootID, err = host.BootID(ctx); err != nil {
		return look, err
	}
	if look.isWell = look.intent.WentBack == "" && hasContact(host); look.isWell {
		return look, nil
	}
	output, err := host.Run(ctx, unitDeadmanQuery, bootc.StatusArguments(), shortTimeout)
	if err != nil {
		return look, err
	}
	status, err := bootc.ParseStatus([]byte(output.Stdout))
	if err != nil {
		return look, err
	}
	look.why = whyStay(wayBack{intent: look.intent, bootID: look.bootID, host: &status})
	return look, nil
}
