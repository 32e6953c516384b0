package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// hostEnvironment is the whole environment of a command. `container` is taken
// away because bootc refuses to work where it is set, and PID 1 of a machine
// in a container has it.
var hostEnvironment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}

// unitProperties describes the transient unit. It stays loaded after its end
// (RemainAfterExit when it succeeded, as failed otherwise) until Forget, so
// that an agent that was away at the end still learns how the command ended.
// Type=exec is what RuntimeMaxSec has an effect on; oneshot ignores it.
func unitProperties(unit string, arguments []string, timeout time.Duration) []systemd.Property {
	stdout, stderr := outputPaths(unit)
	weight := backgroundIOWeight
	if unit == unitQuery {
		weight = normalIOWeight
	}
	return []systemd.Property{
		systemd.PropDescription("imagemode: bootc " + arguments[1]),
		systemd.PropExecStart(escape(arguments), false),
		property("Type", "exec"),
		systemd.PropRemainAfterExit(true),
		property("RuntimeMaxUSec", uint64(timeout.Microseconds())),
		property("Environment", hostEnvironment),
		property("UnsetEnvironment", []string{"container"}),
		property("StandardInput", "null"),
		property("StandardOutputFileToTruncate", stdout),
		property("StandardErrorFileToTruncate", stderr),
		property("IOWeight", weight),
	}
}

// What a unit gets of a disk that others use, too (systemd.resource-control(5), 1 to
// 10000): images are written while pods are at work, and what asks for a status has a
// deadline.
const (
	normalIOWeight     = uint64(100)
	backgroundIOWeight = uint64(20)
)

// escape keeps systemd from putting environment variables into arguments: it
// does that for a transient unit, too.
func escape(arguments []string) []string {
	escaped := make([]string, len(arguments))
	for i, argument := range arguments {
		escaped[i] = strings.ReplaceAll(argument, "$", "$$")
	}
	return escaped
}

func unescape(escaped []string) []string {
	arguments := make([]string, len(escaped))
	for i, argument := range escaped {
		arguments[i] = strings.ReplaceAll(argument, "$$", "$")
	}
	return arguments
}

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

// Start starts the command as a transient unit.
func (h *SystemdHost) Start(ctx context.Context, unit string, arguments []string, timeout time.Duration) error {
	if len(arguments) < 2 {
		return fmt.Errorf("unit %s: no command", unit)
	}
	connection, err := h.connect()
	if err != nil {
		return err
	}
	if err := h.makeOutputDirectory(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = connection.StartTransientUnitContext(ctx, unit, "fail", unitProperties(unit, arguments, timeout), nil)
	if err != nil {
		return fmt.Errorf("unit %s could not be started: %w", unit, err)
	}
	return nil
}

// Command asks systemd for the unit's state and reads what it printed.
func (h *SystemdHost) Command(ctx context.Context, unit string) (Command, error) {
	connection, err := h.connect()
	if err != nil {
		return Command{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	properties, err := connection.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return Command{}, fmt.Errorf("unit %s: state unknown: %w", unit, err)
	}
	command := Command{State: commandState(properties), Arguments: commandArguments(properties["ExecStart"])}
	if command.State == CommandNone {
		return Command{}, nil
	}
	if entered, ok := properties["InactiveExitTimestamp"].(uint64); ok {
		command.Started = time.UnixMicro(int64(entered))
	}
	if command.State == CommandFinished {
		command.Output, err = h.output(unit, properties)
	}
	return command, err
}

// commandState reads the unit's active state. A unit that is not loaded, or is
// loaded and has neither run nor failed, counts as absent: systemd drops it. But
// with a job it is about to run: that is how it looks right after its start.
func commandState(properties map[string]any) CommandState {
	load, _ := properties["LoadState"].(string)
	active, _ := properties["ActiveState"].(string)
	sub, _ := properties["SubState"].(string)
	switch {
	case load != "loaded":
		return CommandNone
	case active == "failed", active == "active" && sub == "exited":
		return CommandFinished
	case active == "inactive" && !hasJob(properties["Job"]):
		return CommandNone
	}
	return CommandRunning
}

// hasJob reads the property Job: its number, 0 for none, and its path.
func hasJob(property any) bool {
	job, _ := property.([]any)
	if len(job) == 0 {
		return false
	}
	id, _ := job[0].(uint32)
	return id != 0
}

// commandArguments reads the arguments out of the property ExecStart, a list
// of structures (path, arguments, …).
func commandArguments(execStart any) []string {
	list, _ := execStart.([][]any)
	if len(list) == 0 || len(list[0]) < 2 {
		return nil
	}
	arguments, _ := list[0][1].([]string)
	return unescape(arguments)
}

// exited is the code (waitid's CLD_EXITED) with which systemd marks a process
// that ended by itself; ExecMainStatus is then its exit status, and the number
// of a signal otherwise.
const exited = int32(1)

func (h *SystemdHost) output(unit string, properties map[string]any) (Output, error) {
	output := Output{ExitCode: -1}
	output.Result, _ = properties["Result"].(string)
	if code, _ := properties["ExecMainCode"].(int32); code == exited {
		status, _ := properties["ExecMainStatus"].(int32)
		output.ExitCode = int(status)
	}
	stdout, stderr := outputPaths(unit)
	var outError, errError error
	output.Stdout, outError = h.readTail(stdout)
	output.Stderr, errError = h.readTail(stderr)
	return output, errors.Join(outError, errError)
}

// Run runs a command in the unit and waits. A unit of that name left over by
// an agent that has gone is ended first: only queries run this way.
func (h *SystemdHost) Run(ctx context.Context, unit string, arguments []string, timeout time.Duration) (Output, error) {
	if err := h.Forget(ctx, unit); err != nil {
		return Output{}, err
	}
	if err := h.Start(ctx, unit, arguments, timeout); err != nil {
		return Output{}, err
	}
	command, err := h.await(ctx, unit)
	if err != nil {
		return Output{}, err
	}
	if err := h.Forget(ctx, unit); err != nil {
		return Output{}, err
	}
	if command.Output.Result == "timeout" {
		return command.Output, fmt.Errorf("bootc %s took longer than %s: %w", arguments[1], timeout, context.DeadlineExceeded)
	}
	return command.Output, nil
}

// await waits until the unit does not run any more.
func (h *SystemdHost) await(ctx context.Context, unit string) (Command, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		command, err := h.Command(ctx, unit)
		if err != nil || command.State != CommandRunning {
			return command, err
		}
		select {
		case <-ctx.Done():
			return Command{}, ctx.Err()
		case <-ticker.C:
		}
	}
}

// Forget stops the unit and has systemd drop it: a failed unit stays until its
// failure is reset.
func (h *SystemdHost) Forget(ctx context.Context, unit string) error {
	command, err := h.Command(ctx, unit)
	if err != nil || command.State == CommandNone {
		return err
	}
	connection, err := h.connect()
	if err != nil {
		return err
	}
	if err := stopUnit(ctx, connection, unit); err != nil {
		return err
	}
	if err := connection.ResetFailedUnitContext(ctx, unit); err != nil && !isNoSuchUnit(err) {
		return fmt.Errorf("unit %s could not be reset: %w", unit, err)
	}
	return nil
}

// stopUnit asks systemd to stop the unit and waits for it. systemd kills a
// process that does not end within 90 seconds.
func stopUnit(ctx context.Context, connection *systemd.Conn, unit string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	done := make(chan string, 1)
	if _, err := connection.StopUnitContext(ctx, unit, "replace", done); err != nil {
		if isNoSuchUnit(err) {
			return nil
		}
		return fmt.Errorf("unit %s could not be stopped: %w", unit, err)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unit %s does not stop: %w", unit, ctx.Err())
	}
}

func isNoSuchUnit(err error) bool {
	var dbusError dbus.Error
	return errors.As(err, &dbusError) && dbusError.Name == "org.freedesktop.systemd1.NoSuchUnit"
}
