package main

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/imagemode/imagemode/test/bench/bases"
)

// bench is the state of a run.
type bench struct {
	settings
	server *exec.Cmd
	// host of the registry itself, and of the way to it that counts bytes.
	host, counted string
	counter       *counter
	// large and small are the bases, host/repository@digest.
	large, small string
	// repository is the number of the repository that is pushed to.
	repository int
	count      int
}

// compare runs both sides in turn, so that both meet the same machine.
func (b *bench) compare(ours, theirs func() (measurement, error)) (result, error) {
	var r result
	for range b.runs {
		m, err := ours()
		if err != nil {
			return r, err
		}
		r.ours = append(r.ours, m)
		m, err = theirs()
		if errors.Is(err, exec.ErrNotFound) {
			r.missing = "nothing, " + err.Error()
			continue
		}
		if err != nil {
			return r, err
		}
		r.theirs = append(r.theirs, m)
	}
	return r, nil
}

// timed runs commands one after the other and gives the time of all.
func timed(commands ...*exec.Cmd) (measurement, error) {
	var m measurement
	for _, command := range commands {
		if command.Err != nil {
			return m, command.Err
		}
		var output strings.Builder
		command.Stdout, command.Stderr = &output, &output
		started := time.Now()
		err := command.Run()
		m.took += time.Since(started)
		if err != nil {
			return m, fmt.Errorf("%s: %w\n%s", command, err, output.String())
		}
		if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
			m.memory = max(m.memory, usage.Maxrss<<10)
		}
	}
	return m, nil
}

// middle is the median of a property of runs.
func middle[T cmp.Ordered](runs []measurement, of func(measurement) T) T {
	var values []T
	for _, run := range runs {
		values = append(values, of(run))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func seconds(runs []measurement) float64 {
	return middle(runs, func(m measurement) time.Duration { return m.took }).Seconds()
}

// each lists the times of all runs: a median hides how far apart they are.
func each(runs []measurement) string {
	var times []string
	for _, run := range runs {
		times = append(times, fmt.Sprintf("%.2f", run.took.Seconds()))
	}
	return strings.Join(times, " ")
}

// makeBases makes the bases and pushes them.
func (b *bench) makeBases() (err error) {
	if b.large, err = b.makeBase("large", b.layers, b.megabytes); err != nil {
		return err
	}
	b.small, err = b.makeBase("small", 1, 1)
	return err
}

func (b *bench) makeBase(name string, layers, megabytes int) (string, error) {
	base := bases.Base{Repository: b.host + "/os/" + name, Layers: layers, Megabytes: megabytes, Program: b.tool}
	return base.Push(b.path("layers"))
}
