package builder

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on what is kept of a step's output for the failure message.
const (
	keptLines    = 60
	keptLineSize = 400
)

// progress writes plain lines and keeps the last ones of the running step.
type progress struct {
	mutex sync.Mutex
	out   io.Writer
	kept  []string
	// unended is true while a line that is written over stands on a terminal.
	unended bool
}

// bars is where the library shows how many bytes of what it has pulled or
// pushed. It moves the cursor for that, so it is shown on a terminal only.
func (p *progress) bars() io.Writer {
	if file, isFile := p.out.(*os.File); isFile {
		if _, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err == nil {
			return file
		}
	}
	return io.Discard
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out}
}

// printf writes one line of the builder's own.
func (p *progress) printf(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.unended {
		fmt.Fprint(p.out, clearLine)
		p.unended = false
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// clearLine goes back to the start of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// copied gives a function that shows how many bytes of layers have been streamed:
// on a terminal on one line, elsewhere with a line now and then.
func (p *progress) copied() func(int64) {
	terminal := p.bars() != io.Discard
	every := copiedLines
	if terminal {
		every = copiedMoves
	}
	last := time.Now()
	return func(bytes int64) {
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if terminal {
			fmt.Fprintf(p.out, clearLine+"  %.1f MB copied", float64(bytes)/1e6)
			p.unended = true
			return
		}
		fmt.Fprintf(p.out, "  %.1f MB copied\n", float64(bytes)/1e6)
	}
}

// How often the bytes that were streamed are shown: often enough to see that it
// goes on, seldom enough for a log.
const (
	copiedMoves = 200 * time.Millisecond
	copiedLines = 10 * time.Second
)

// startStep says that a step begins and forgets the lines of the one before.
func (p *progress) startStep(name string, number, count int) {
	p.mutex.Lock()
	p.kept = nil
	p.mutex.Unlock()
	p.printf("step %s (%d of %d)", name, number, count)
}

// line writes one line of a program's output and keeps it.
func (p *progress) line(text string) {
	text = clean(text)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintf(p.out, "  | %s\n", text)
	if strings.TrimSpace(text) == "" {
		return
	}
	if len(p.kept) == keptLines {
		p.kept = append(p.kept[:0], p.kept[1:]...)
	}
	p.kept = append(p.kept, text)
}

// lastLines gives the kept lines, the oldest first.
func (p *progress) lastLines() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]string(nil), p.kept...)
}

// clean makes text safe for a terminal and a condition, and bounds it.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	if len(text) > keptLineSize {
		text = strings.ToValidUTF8(text[:keptLineSize], "") + "…"
	}
	return text
}

// lines gives a writer that passes whole lines on, but for those in which
// buildah names what it has in its store. The program that ends a build is told
// of by each of buildah's processes around it, the innermost first; that one is
// passed on, and what the others say in turn, perhaps among the last output, is not.
func (p *progress) lines() *lineWriter {
	hasEnded := false
	return &lineWriter{pass: func(text string) {
		isEnd := programEnds.MatchString(text)
		isRepeated := isEnd && hasEnded
		hasEnded = hasEnded || isEnd
		if !isRepeated && !storeNames.MatchString(text) {
			p.line(text)
		}
	}}
}

var programEnds = regexp.MustCompile(`^subprocess exited (with status \d+|on .+)$`)

var storeNames = regexp.MustCompile(`^(--> ([0-9a-f]{12}|Pushing cache .*)|[0-9a-f]{64})$`)

// maxLine bounds what is held of a line, in bytes: one without an end must not
// fill the memory.
const maxLine = 64 << 10

type lineWriter struct {
	mutex  sync.Mutex
	pass   func(string)
	buffer []byte
}

func (w *lineWriter) Write(data []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.buffer = append(w.buffer, data...)
	for {
		end := bytes.IndexByte(w.buffer, '\n')
		if end < 0 {
			break
		}
		w.pass(shown(w.buffer[:end]))
		w.buffer = w.buffer[end+1:]
	}
	if len(w.buffer) > maxLine {
		w.buffer = []byte(shown(w.buffer[len(w.buffer)-maxLine:]))
	}
	return len(data), nil
}

// shown is what a terminal shows of a line in the end: a progress bar goes back
// to its start by carriage returns and writes over it.
func shown(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	return string(line[bytes.LastIndexByte(line, '\r')+1:])
}

// flush passes on a last line without an end.
func (w *lineWriter) flush() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.buffer) > 0 {
		w.pass(shown(w.buffer))
		w.buffer = nil
	}
}
