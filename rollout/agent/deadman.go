package agent

import (
	"bytes"
	"context"
	"fmt"
	"time"

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
	// wantsPath has the timer started at boot: a file in place of a link.
	wantsPath = "/etc/systemd/system/timers.target.d/50-imagemode-rollback.conf"
)

const timerUnit = `[Unit]
Description=Deadline for the OS image that was booted last
ConditionPathExists=` + intentPath + `

[Timer]
OnActiveSec=%ds
# The agent may have been well until a short while ago: look again.
OnUnitInactiveSec=120s
AccuracySec=5s
`

const serviceUnit = `[Unit]
Description=Go back to the OS image before, if the present one is not confirmed
ConditionPathExists=` + intentPath + `

[Service]
Type=oneshot
ExecStart=` + programPath + ` go-back
UnsetEnvironment=container
TimeoutStartSec=30min
`

const wantsUnit = `[Unit]
Wants=imagemode-rollback.timer
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
func (a *Agent) noteContact(ctx context.Context, object *v1alpha1.NodeImage) {
	err := a.live.Get(ctx, client.ObjectKeyFromObject(object), &v1alpha1.NodeImage{})
	if err == nil {
		err = writeContact(a.host)
	}
	if err != nil {
		log.FromContext(ctx).Info("the image is not confirmed and the API server could not be reached; without it the node goes back", "error", err.Error())
	}
}

// goBackInterval is how often the steps of going back are looked at.
const goBackInterval = time.Second

// Deadman is what the dead-man timer runs: it has the node go back to the image
// before if the present one was not confirmed and its agent does not reach the
// API server. It returns why it does nothing, or an error, or when the reboot
// was asked for.
func Deadman(ctx context.Context, host Host) (why string, err error) {
	intent, bootID, why, err := lookForDeadman(ctx, host)
	if why != "" || err != nil {
		return why, err
	}
	for {
		isAsked, err := goBack(ctx, host, *intent, bootID, time.Now())
		if isAsked && err == nil {
			return "going back to " + intent.Previous, nil
		}
		if err != nil {
			return "", err // systemd starts it again
		}
		if intent, err = readIntent(host); err != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(goBackInterval):
		}
	}
}

// lookForDeadman looks at the host; why says what keeps the node where it is.
func lookForDeadman(ctx context.Context, host Host) (intent *Intent, bootID, why string, err error) {
	if intent, err = readIntent(host); err != nil {
		return nil, "", "", err
	}
	if intent == nil || intent.RollbackAfterSeconds == 0 {
		return nil, "", "no update waits for confirmation", nil
	}
	if bootID, err = host.BootID(ctx); err != nil {
		return nil, "", "", err
	}
	if hasContact(host) {
		return nil, "", "the agent reaches the API server: the node is left to the controller", nil
	}
	output, err := host.Run(ctx, unitDeadmanQuery, bootc.StatusArguments(), shortTimeout)
	if err != nil {
		return nil, "", "", err
	}
	status, err := bootc.ParseStatus([]byte(output.Stdout))
	if err != nil {
		return nil, "", "", err
	}
	return intent, bootID, whyStay(wayBack{intent: intent, bootID: bootID, host: &status}), nil
}
