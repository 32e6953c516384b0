package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Lines between which the keys are ours.
const (
	keysBegin = "# BEGIN imagemode: changes between these lines are undone"
	keysEnd   = "# END imagemode"
)

// account is what the host's /etc/passwd says about a user.
type account struct {
	uid, gid int
	home     string
}

// SetAuthorizedKeys writes as root into a folder that belongs to the user, who
// may put links there: nothing outside of the home is opened.
func (h *SystemdHost) SetAuthorizedKeys(user string, keys []string) error {
	found, err := h.account(user)
	if errors.Is(err, fs.ErrNotExist) && len(keys) == 0 {
		return nil // the user went, and the keys with it
	}
	if err != nil {
		return err
	}
	home, err := securejoin.SecureJoin(h.root, found.home)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return fmt.Errorf("user %s has no home directory on the node for its SSH keys (%s): make one, as with tmpfiles.d in a MachineConfig", user, found.home)
	}
	defer root.Close()
	return writeKeys(root, found, keys)
}

// account reads /etc/passwd, or, where an image keeps its own users apart,
// /usr/lib/passwd.
func (h *SystemdHost) account(user string) (account, error) {
	for _, name := range []string{"/etc/passwd", "/usr/lib/passwd"} {
		content, err := h.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return account{}, err
		}
		if found, isThere := findAccount(content, user); isThere {
			return found, nil
		}
	}
	return account{}, noUserError(user)
}

// noUserError is the error of a user that a node does not have, by name.
type noUserError string

func (e noUserError) Error() string {
	return fmt.Sprintf("user %s has SSH keys and does not exist on the node: add the user to a MachineConfig or the image, or remove the keys", string(e))
}

func (e noUserError) Is(target error) bool { return target == fs.ErrNotExist }

// findAccount reads lines of the form name:password:uid:gid:comment:home:shell.
func findAccount(content []byte, user string) (account, bool) {
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 7 || fields[0] != user || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		uid, uidErr := strconv.Atoi(fields[2])
		gid, gidErr := strconv.Atoi(fields[3])
		if uidErr == nil && gidErr == nil {
			return account{uid, gid, fields[5]}, true
		}
	}
	return account{}, false
}

func writeKeys(root *os.Root, owner account, keys []string) error {
	const directory, name, temporary = ".ssh", ".ssh/authorized_keys", ".ssh/.authorized_keys.imagemode"
	present, err := readKeys(root, name)
	if err != nil {
		return err
	}
	wanted := withKeys(present, keys)
	if wanted == present {
		return nil
	}
	if err := root.Mkdir(directory, 0o700); err == nil {
		err = root.Chown(directory, owner.uid, owner.gid)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = file.Chown(owner.uid, owner.gid)
	if err := errors.Join(err, fill(file, []byte(wanted), 0o600)); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return root.Rename(temporary, name)
}

func readKeys(root *os.Root, name string) (string, error) {
	file, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxTailBytes))
	return string(content), err
}

// withKeys replaces what is between our lines, which stand at the end; without
// keys they go. It is pure.
func withKeys(present string, keys []string) string {
	var kept []string
	isOurs := false
	for _, line := range strings.Split(strings.TrimSuffix(present, "\n"), "\n") {
		switch {
		case line == keysBegin:
			isOurs = true
		case line == keysEnd:
			isOurs = false
		case !isOurs && (line != "" || len(kept) > 0):
			kept = append(kept, line)
		}
	}
	if len(keys) > 0 {
		kept = append(kept, keysBegin)
		for _, key := range keys {
			kept = append(kept, strings.Join(strings.Fields(key), " ")) // one line, whatever it holds
		}
		kept = append(kept, keysEnd)
	}
	if len(kept) == 0 {
		return ""
	}
	return strings.Join(kept, "\n") + "\n"
}
