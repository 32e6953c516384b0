package process

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 9 0 77712 1000 200"
	for sentence, test := range map[string]struct {
		line string
		want stat
		bad  bool
	}{
		"a plain name":                          {line: "42 (etcd)" + tail, want: stat{pid: 42, state: 'S', startTime: 77712}},
		"a name with spaces and parentheses":    {line: "42 (a) S (b c))" + tail, want: stat{pid: 42, state: 'S', startTime: 77712}},
		"an empty file of a process just ended": {line: "", bad: true},
		"a line that is cut off":                {line: "42 (etcd) S 1 42", bad: true},
		"a start time that is no number":        {line: "42 (x) S 1 1 1 0 1 1 1 0 0 0 1 2 0 0 20 0 9 0 soon 1", bad: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := parseStat(test.line)
			if (err != nil) != test.bad {
				t.Fatalf("error: %v", err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	record := Record{PID: 42, StartTime: 1000}
	for sentence, test := range map[string]struct {
		stat stat
		want bool
	}{
		"the same process":                          {stat: stat{pid: 42, state: 'S', startTime: 1000}, want: true},
		"another process that got the id":           {stat: stat{pid: 42, state: 'S', startTime: 2000}},
		"the same process, ended but not collected": {stat: stat{pid: 42, state: 'Z', startTime: 1000}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := test.stat.matches(record); got != test.want {
				t.Errorf("matches: %v", got)
			}
		})
	}
}

func newStore(t *testing.T) Store {
	dir := t.TempDir()
	return Store{RecordDir: filepath.Join(dir, "records"), LogDir: filepath.Join(dir, "logs")}
}

func TestEnsureStartsOnceAndAgainAfterAChange(t *testing.T) {
	ctx, store := context.Background(), newStore(t)
	input := filepath.Join(t.TempDir(), "config")
	write(t, input, "one")
	spec := Spec{Name: "sleeper", Args: []string{"/bin/sleep", "1000"}, Inputs: []string{input}}
	t.Cleanup(func() { _ = store.Stop(ctx, spec.Name, time.Second) })

	var pids []int
	for _, step := range []struct {
		content string
		started bool
	}{{"one", true}, {"one", false}, {"two", true}} {
		write(t, input, step.content)
		started, err := store.Ensure(ctx, spec)
		if err != nil || started != step.started {
			t.Fatalf("content %s: started %v, error %v", step.content, started, err)
		}
		record, running := store.Running(spec.Name)
		if !running {
			t.Fatalf("content %s: not running", step.content)
		}
		pids = append(pids, record.PID)
	}
	if pids[0] != pids[1] || pids[1] == pids[2] {
		t.Errorf("process ids %v: only the changed input starts a new process", pids)
	}
}

func TestStopLeavesAnotherProcessWithTheIDAlone(t *testing.T) {
	ctx, store := context.Background(), newStore(t)
	if _, err := store.Ensure(ctx, Spec{Name: "first", Args: []string{"/bin/sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	first, _ := store.Running("first")
	t.Cleanup(func() { _ = store.Stop(ctx, "first", time.Second) })

	write(t, store.recordFile("second"), `{"name":"second","pid":`+strconv.Itoa(first.PID)+`,"startTime":1,"bootID":"`+first.BootID+`"}`)
	if err := store.Stop(ctx, "second", time.Second); err != nil {
		t.Fatal(err)
	}
	if _, running := store.Running("first"); !running {
		t.Error("the process with the recorded id but another start time was ended")
	}
}

func TestStopEndsAProcessThatIgnoresSIGTERM(t *testing.T) {
	ctx, store := context.Background(), newStore(t)
	spec := Spec{Name: "stubborn", Args: []string{"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"}}
	if _, err := store.Ensure(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if err := store.Stop(ctx, spec.Name, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, running := store.Running(spec.Name); running {
		t.Error("still running")
	}
	if names, err := store.Recorded(); err != nil || len(names) > 0 {
		t.Errorf("records left: %v, %v", names, err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
