package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// stat is what of /proc/PID/stat identifies a process.
type stat struct {
	pid       int
	state     byte // R, S, D, Z for a zombie, ...
	startTime uint64
}

// matches reports whether the process is the recorded one and not a zombie,
// which has ended and only waits for its parent.
func (s stat) matches(record Record) bool {
	return s.pid == record.PID && s.startTime == record.StartTime && s.state != 'Z' && s.state != 'X'
}

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(content))
}

// parseStat reads one line of /proc/PID/stat. The program's name, field 2, is in
// parentheses and may itself hold spaces and parentheses.
func parseStat(line string) (stat, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return stat{}, errors.New("no program name in parentheses")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line[:open]))
	if err != nil {
		return stat{}, fmt.Errorf("process id: %w", err)
	}
	fields := strings.Fields(line[end+1:])
	const stateField, startTimeField = 3 - 3, 22 - 3 // proc(5) counts from 1, and two are before the name's end
	if len(fields) <= startTimeField {
		return stat{}, fmt.Errorf("only %d fields", len(fields)+2)
	}
	started, err := strconv.ParseUint(fields[startTimeField], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time: %w", err)
	}
	return stat{pid: pid, state: fields[stateField][0], startTime: started}, nil
}
