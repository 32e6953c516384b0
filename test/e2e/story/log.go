package story

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// Log prints the story as it goes: a line per event with the seconds since the
// start, under headings, one per phase. It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	out    io.Writer
	start  time.Time
	phases []phaseTime
	// columns of the terminal; 0: it is none.
	columns int
	// table is what stands below the last line.
	table []string
}

type phaseTime struct {
	name string
	took time.Duration
}

// NewLog returns a Log whose time begins now.
func NewLog(out io.Writer) *Log {
	return &Log{out: out, start: time.Now(), columns: columnsOf(out)}
}

// Line prints one event.
func (l *Log) Line(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.clear()()
	fmt.Fprintf(l.out, "%6.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, arguments...))
}

// Phase is one part of the story, with the time after which it has failed.
type Phase struct {
	Name    string
	Timeout time.Duration
	Do      func(context.Context) error
}

// Run runs the phases one after the other, under a heading each, until one fails.
func (l *Log) Run(ctx context.Context, phases ...Phase) error {
	for _, phase := range phases {
		if err := l.runPhase(ctx, phase); err != nil {
			return fmt.Errorf("%s: %w", phase.Name, err)
		}
	}
	return nil
}

func (l *Log) runPhase(ctx context.Context, phase Phase) error {
	l.heading(phase.Name)
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, phase.Timeout, fmt.Errorf("not done within %s", phase.Timeout))
	defer cancel()
	err := phase.Do(ctx)
	l.Table(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases = append(l.phases, phaseTime{name: phase.Name, took: time.Since(begun)})
	return err
}

// Times prints how long each phase took, and all of them.
func (l *Log) Times() {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.out, "\nTimes")
	for _, phase := range l.phases {
		fmt.Fprintf(l.out, "  %-64s %7.1fs\n", phase.name, phase.took.Seconds())
	}
	fmt.Fprintf(l.out, "  %-64s %7.1fs\n", "all", time.Since(l.start).Seconds())
}

func (l *Log) heading(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.clear()()
	fmt.Fprintf(l.out, "\n== %s\n", text)
}

// raw prints a text as it is.
func (l *Log) raw(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.clear()()
	fmt.Fprint(l.out, text)
}
