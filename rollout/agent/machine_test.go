package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/imagemode/imagemode/rollout/bootc"
)

// machine is a host in memory with bootc's documented behaviour: staged images
// are lost in a power cut, locked ones at any reboot, unlocked ones are applied.
type machine struct {
	lock sync.Mutex // for tests with a goroutine of their own

	boots    int
	booted   bootc.Reference
	rollback bootc.Reference
	staged   bootc.Reference
	locked   bool
	features bootc.Features

	files map[string][]byte
	units map[string]*Command
	// calls are the commands that changed something, and the reboots.
	calls []string
	// fails makes a verb fail with a text, as often as it says.
	fails map[string][]string
	// finalizeFails makes the next reboot come back on the old image.
	finalizeFails bool
	rebootAsked   bool
	now           func() time.Time
	// softCapable lets the next staged image be soft-rebooted into; softPrepared
	// is what bootc made of it. softs counts soft reboots in this boot.
	softCapable, softPrepared, softFails bool
	softs                                int
	// queued: the next boot goes to rollback. rollbacks counts the boots that went
	// there, by the image that was left.
	queued    bool
	rollbacks map[bootc.Reference]int
	// takenBack counts the rollbacks that took back the one before.
	takenBack int
	up        time.Duration
	// states are those of files that are not like most; active are units.
	states    map[string]FileState
	active    map[string]bool
	inhibitor string
	// refuses is what systemd answers to every order; nil: it does what it is told.
	refuses error
	// keys are by user.
	keys map[string][]string
	// free is by path; nil: plenty.
	free map[string]int64
}

var _ Host = &machine{}

func newMachine(image bootc.Reference, now func() time.Time) *machine {
	return &machine{
		boots: 1, booted: image, features: bootc.Features{UpgradeLocks: true}, now: now,
		files: map[string][]byte{}, units: map[string]*Command{}, fails: map[string][]string{}, rollbacks: map[bootc.Reference]int{},
	}
}

func (m *machine) Run(_ context.Context, _ string, arguments []string, _ time.Duration) (Output, error) {
	if arguments[0] != bootc.Path {
		m.calls = append(m.calls, arguments[0])
		return Output{Result: "success"}, nil
	}
	switch strings.Join(arguments[1:], " ") {
	case "status --json --format-version=1":
		if texts := m.fails["status"]; len(texts) > 0 {
			m.fails["status"] = texts[1:]
			return Output{ExitCode: 1, Result: "exit-code", Stderr: "error: " + texts[0]}, nil
		}
		return Output{Result: "success", Stdout: m.status()}, nil
	case "switch --help":
		return Output{Result: "success", Stdout: option("--download-only", m.features.SwitchLocks)}, nil
	case "upgrade --help":
		return Output{Result: "success", Stdout: option("--download-only --from-downloaded", m.features.UpgradeLocks) + option(" --soft-reboot", m.features.SoftReboots)}, nil
	}
	return Output{ExitCode: 2, Result: "exit-code", Stderr: "error: unexpected argument"}, nil
}

func option(text string, isThere bool) string {
	if isThere {
		return text
	}
	return ""
}

func (m *machine) status() string {
	entry := func(image bootc.Reference, locked bool) any {
		if image.IsZero() {
			return nil
		}
		return map[string]any{"incompatible": false, "pinned": false, "downloadOnly": locked, "softRebootCapable": image == m.staged && m.softCapable, "image": map[string]any{
			"image": map[string]any{"image": image.String(), "transport": "registry"}, "imageDigest": image.Digest(), "architecture": "amd64",
		}}
	}
	content, err := json.Marshal(map[string]any{"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "status": map[string]any{
		"booted": entry(m.booted, false), "staged": entry(m.staged, m.locked), "rollback": entry(m.rollback, false), "type": "bootcHost", "rollbackQueued": m.queued,
	}})
	if err != nil {
		panic(err)
	}
	return string(content)
}

func (m *machine) Start(_ context.Context, unit string, arguments []string, _ time.Duration) error {
	if m.refuses != nil {
		return m.refuses
	}
	if m.units[unit] != nil {
		return fmt.Errorf("unit %s exists", unit)
	}
	m.calls = append(m.calls, strings.Join(arguments[1:], " "))
	m.units[unit] = &Command{State: CommandRunning, Arguments: arguments, Started: m.now()}
	return nil
}

// finish lets the running commands come to their end.
func (m *machine) finish() {
	m.finishUnit(unitRollback)
	m.finishUnit(unitBootc)
}

func (m *machine) finishUnit(unit string) {
	command := m.units[unit]
	if command == nil || command.State != CommandRunning {
		return
	}
	command.State = CommandFinished
	verb, image := bootc.Describe(command.Arguments)
	if texts := m.fails[string(verb)]; len(texts) > 0 {
		m.fails[string(verb)] = texts[1:]
		command.Output = Output{ExitCode: 1, Result: "exit-code", Stderr: "error: " + texts[0]}
		return
	}
	command.Output = Output{Result: "success"}
	switch {
	case verb == bootc.Rollback && m.rollback.IsZero():
		command.Output = Output{ExitCode: 1, Result: "exit-code", Stderr: "error: No rollback available"}
	case verb == bootc.Rollback:
		if m.queued {
			m.takenBack++
		}
		m.queued, m.staged, m.locked = !m.queued, bootc.Reference{}, false
	case verb == bootc.Stage && image == m.booted:
	case verb == bootc.Stage:
		m.staged, m.locked = image, slices.Contains(command.Arguments, "--download-only")
		m.softPrepared = false
	case m.staged.IsZero():
		command.Output = Output{ExitCode: 1, Result: "exit-code", Stderr: "error: No staged deployment found"}
	case verb == bootc.Lock:
		m.locked = true
	case verb == bootc.Unlock, verb == bootc.UnlockSoft:
		m.locked, m.softPrepared = false, verb == bootc.UnlockSoft && m.softCapable
	}
}

func (m *machine) Command(_ context.Context, unit string) (Command, error) {
	if command := m.units[unit]; command != nil {
		return *command, nil
	}
	return Command{}, nil
}

func (m *machine) Forget(_ context.Context, unit string) error {
	delete(m.units, unit)
	return nil
}

func (m *machine) Reboot(_ context.Context, soft bool) error {
	if m.refuses != nil {
		return m.refuses
	}
	if !m.rebootAsked {
		m.calls = append(m.calls, "reboot")
		m.softPrepared = m.softPrepared && soft
	}
	m.rebootAsked = true
	return nil
}

// reboot is what happens at a reboot: asked for, or not.
func (m *machine) reboot() {
	isSoft := m.softPrepared && m.rebootAsked
	switch {
	case m.queued: // by then nothing is staged any more
	case isSoft && m.softFails: // the userspace comes back as it was
	case !m.staged.IsZero() && !m.locked && !m.finalizeFails:
		m.booted, m.rollback = m.staged, m.booted
	}
	softs := m.softs + 1
	m.restart()
	if isSoft {
		m.boots--
		m.softs = softs
	}
}

// restart is what every start of the machine does, a power cut included.
func (m *machine) restart() {
	if m.queued { // the order of boot entries is on disk
		m.rollbacks[m.booted]++
		m.booted, m.rollback = m.rollback, m.booted
	}
	m.boots++
	m.softs, m.up, m.queued, m.softPrepared = 0, 0, false, false
	m.staged, m.locked, m.rebootAsked, m.finalizeFails = bootc.Reference{}, false, false, false
	m.units = map[string]*Command{}
	for path := range m.files {
		if strings.HasPrefix(path, "/run/") {
			delete(m.files, path)
		}
	}
}

func (m *machine) BootID(context.Context) (string, error) {
	return joinBootID(fmt.Sprintf("boot-%d", m.boots), m.softs), nil
}

func (m *machine) InstallProgram(path string) error {
	m.files[path] = []byte("program")
	return nil
}

// Inspect knows files only, all of root and with mode 0644, but for those that a
// test describes.
func (m *machine) Inspect(path string, _ bool) (FileState, error) {
	if state, isThere := m.states[path]; isThere {
		return state, nil
	}
	content, err := m.ReadFile(path)
	if err != nil {
		return FileState{}, err
	}
	sum := sha256.Sum256(content)
	return FileState{Mode: 0o644, SHA256: hex.EncodeToString(sum[:])}, nil
}

func (m *machine) PutBack(path string, content []byte, _ FileState) error {
	m.files[path] = content
	delete(m.states, path)
	return nil
}

func (m *machine) SetAuthorizedKeys(user string, keys []string) error {
	if user == "nobody-knows" {
		return fmt.Errorf("user %s does not exist on the node", user)
	}
	if m.keys == nil {
		m.keys = map[string][]string{}
	}
	if m.keys[user] = keys; len(keys) == 0 {
		delete(m.keys, user)
	}
	return nil
}

func (m *machine) RebootInhibitor(context.Context) (string, error) { return m.inhibitor, nil }

func (m *machine) FreeBytes(path string) (int64, error) {
	if m.free == nil {
		return 100 << 30, nil
	}
	return m.free[path], nil
}

func (m *machine) IsActive(_ context.Context, unit string) (bool, error) { return m.active[unit], nil }

func (m *machine) ReadFile(path string) ([]byte, error) {
	if path == "/proc/uptime" {
		return []byte(fmt.Sprintf("%.2f 0.00\n", m.up.Seconds())), nil
	}
	content, isThere := m.files[path]
	if !isThere {
		return nil, fs.ErrNotExist
	}
	return content, nil
}

func (m *machine) WriteFile(path string, content []byte, mode fs.FileMode) error {
	if isUnit := strings.HasPrefix(path, "/etc/systemd/system/"); mode != 0o600 && !isUnit {
		return fmt.Errorf("%s would be written with mode %o", path, mode)
	}
	m.files[path] = content
	return nil
}

func (m *machine) RemoveFile(path string) error {
	delete(m.files, path)
	return nil
}
