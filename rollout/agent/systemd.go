package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

const (
	// dialTimeout and callTimeout bound D-Bus: on a healthy host an answer
	// takes milliseconds; while a host goes down none may ever come.
	dialTimeout = 10 * time.Second
	callTimeout = 30 * time.Second
	// pollInterval is how often Run and Forget look at their unit. A query of
	// bootc takes about as long.
	pollInterval = 50 * time.Millisecond
	// outputDirectory is where units write what they print, on the host.
	outputDirectory = "/run/imagemode"
)

// SystemdHost is a host whose system manager is systemd, reached over D-Bus.
type SystemdHost struct {
	root string

	mutex      sync.Mutex
	connection *systemd.Conn
}

var _ Host = &SystemdHost{}

// NewSystemdHost is the host whose root directory is seen at root: "/" for a
// service of the host, /proc/1/root for a pod in the host's process namespace.
// It connects when it is first used, and again after the connection was lost.
func NewSystemdHost(root string) *SystemdHost {
	return &SystemdHost{root: root}
}

// Close closes the connection to systemd.
func (h *SystemdHost) Close() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.connection != nil {
		h.connection.Close()
		h.connection = nil
	}
}

// connect returns the connection, made anew when there is none that works.
func (h *SystemdHost) connect() (*systemd.Conn, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.connection != nil && h.connection.Connected() {
		return h.connection, nil
	}
	if h.connection != nil {
		h.connection.Close()
		h.connection = nil
	}
	connection, err := h.dialSystemd()
	if err != nil {
		return nil, err
	}
	h.connection = connection
	return connection, nil
}

// dialSystemd takes the system bus, or systemd's own socket where the bus does
// not answer (early in a boot, or after a crash of its daemon).
func (h *SystemdHost) dialSystemd() (*systemd.Conn, error) {
	connection, busError := systemd.NewConnection(h.dialBus)
	if busError == nil {
		return connection, nil
	}
	connection, err := systemd.NewConnection(func() (*dbus.Conn, error) {
		return dialSocket(h.hostPath("/run/systemd/private"), false)
	})
	if err != nil {
		return nil, fmt.Errorf("no connection to the host's systemd: %w; %w", busError, err)
	}
	return connection, nil
}

// dialBus connects to the host's system bus.
func (h *SystemdHost) dialBus() (*dbus.Conn, error) {
	return dialSocket(h.hostPath("/run/dbus/system_bus_socket"), true)
}

// dialSocket connects and authenticates as this process's user, by number: a
// name would have to be looked up in the pod, not on the host. Only a bus, not
// systemd itself, wants to be greeted. The context of godbus ends the
// connection, not the dialling, so that the timeout is set around it here.
func dialSocket(path string, isBus bool) (*dbus.Conn, error) {
	type answer struct {
		connection *dbus.Conn
		err        error
	}
	answers := make(chan answer, 1)
	go func() {
		connection, err := dialSocketBlocking(path, isBus)
		answers <- answer{connection, err}
	}()
	select {
	case a := <-answers:
		return a.connection, a.err
	case <-time.After(dialTimeout):
		go func() {
			if a := <-answers; a.err == nil {
				a.connection.Close()
			}
		}()
		return nil, fmt.Errorf("%s: no answer within %s", path, dialTimeout)
	}
}

func dialSocketBlocking(path string, isBus bool) (*dbus.Conn, error) {
	connection, err := dbus.Dial("unix:path=" + dbus.EscapeBusAddressValue(path))
	if err != nil {
		return nil, err
	}
	err = connection.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil && isBus {
		err = connection.Hello()
	}
	if err != nil {
		connection.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return connection, nil
}

// softRebootIfPrepared is logind's flag for RebootWithFlags: restart only the
// userspace if the next root is set up. systemd before 254 refuses it.
const softRebootIfPrepared = uint64(1) << 3

// Reboot asks logind, which lets the kubelet end its pods first (it holds a
// delaying inhibitor), and systemd itself where there is no logind. A soft
// reboot that is refused becomes a full one.
func (h *SystemdHost) Reboot(ctx context.Context, soft bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if soft && h.rebootByLogind(ctx, "RebootWithFlags", softRebootIfPrepared) == nil {
		return nil
	}
	loginError := h.rebootByLogind(ctx, "Reboot", false)
	if loginError == nil {
		return nil
	}
	connection, err := h.connect()
	if err == nil {
		_, err = connection.StartUnitContext(ctx, "reboot.target", "replace-irreversibly", nil)
	}
	if err != nil {
		return fmt.Errorf("the host's reboot could not be asked for: %w; %w", loginError, err)
	}
	return nil
}

// rebootMessage is what users that are logged in are told.
const rebootMessage = "imagemode: the node reboots into another OS image"

func (h *SystemdHost) rebootByLogind(ctx context.Context, method string, argument any) error {
	connection, err := h.dialBus()
	if err != nil {
		return err
	}
	defer connection.Close()
	manager := connection.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	// That nobody could be told is no reason to stay.
	_ = manager.CallWithContext(ctx, "org.freedesktop.login1.Manager.SetWallMessage", 0, rebootMessage, true).Err
	return manager.CallWithContext(ctx, "org.freedesktop.login1.Manager."+method, 0, argument).Err
}

// inhibitor is an entry of logind's ListInhibitors.
type inhibitor struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// RebootInhibitor asks logind for locks that block a shutdown. Those that only
// delay it, the kubelet's say, are what an orderly shutdown is about.
func (h *SystemdHost) RebootInhibitor(ctx context.Context) (string, error) {
	connection, err := h.dialBus()
	if err != nil {
		return "", err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var inhibitors []inhibitor
	manager := connection.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	if err := manager.CallWithContext(ctx, "org.freedesktop.login1.Manager.ListInhibitors", 0).Store(&inhibitors); err != nil {
		return "", fmt.Errorf("inhibitors of a shutdown: %w", err)
	}
	return blocking(inhibitors), nil
}

// blocking names the first that blocks.
func blocking(inhibitors []inhibitor) string {
	for _, i := range inhibitors {
		if i.Mode == "block" && slices.Contains(strings.Split(i.What, ":"), "shutdown") {
			return fmt.Sprintf("%s (process %d): %s", i.Who, i.PID, i.Why)
		}
	}
	return ""
}

// softReboots is how often systemd restarted the userspace in this boot; 0 where
// it does not know (before 254).
func (h *SystemdHost) softReboots(ctx context.Context) (int, error) {
	connection, err := h.connect()
	if err != nil {
		return 0, err
	}
	answer, err := managerProperty(ctx, connection, "SoftRebootsCount")
	var dbusError dbus.Error
	if errors.As(err, &dbusError) && dbusError.Name == "org.freedesktop.DBus.Error.UnknownProperty" {
		return 0, nil //nolint:nilerr // a systemd without the property says so
	}
	if err != nil {
		return 0, fmt.Errorf("number of soft reboots: %w", err)
	}
	fields := strings.Fields(answer) // printed with its type: "@u 1"
	if len(fields) == 0 {
		return 0, nil
	}
	return strconv.Atoi(fields[len(fields)-1])
}

// managerProperty bounds a call that go-systemd makes without a context.
func managerProperty(ctx context.Context, connection *systemd.Conn, name string) (string, error) {
	type answer struct {
		value string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := connection.GetManagerProperty(name)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(callTimeout):
		return "", fmt.Errorf("systemd does not answer within %s", callTimeout)
	}
}

// makeOutputDirectory makes the directory that units write to. What bootc
// prints can name repositories, so that only root may read it.
func (h *SystemdHost) makeOutputDirectory() error {
	return os.MkdirAll(h.hostPath(outputDirectory), 0o700)
}

func outputPaths(unit string) (stdout, stderr string) {
	base := filepath.Join(outputDirectory, unit)
	return base + ".stdout", base + ".stderr"
}
