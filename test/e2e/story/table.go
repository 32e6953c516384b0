package story

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// columnsOf is how wide the terminal is that a log is written to; 0 where it is
// no terminal.
func columnsOf(out io.Writer) int {
	file, isFile := out.(*os.File)
	if !isFile {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Table shows lines below all others, in place of those that it showed before; of
// nil it shows none. It reports false, and does nothing, where the log is not
// written to a terminal.
func (l *Log) Table(lines []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.columns == 0 {
		return false
	}
	draw := l.clear()
	l.table = lines
	draw()
	return true
}

// clear takes the table away and returns what draws it again.
func (l *Log) clear() (draw func()) {
	if len(l.table) > 0 {
		fmt.Fprintf(l.out, "\x1b[%dA\x1b[J", len(l.table))
	}
	return func() {
		for _, line := range l.table {
			fmt.Fprintln(l.out, clipped(line, l.columns))
		}
	}
}

// clipped is a line that does not wrap.
func clipped(line string, columns int) string {
	runes := []rune(strings.ReplaceAll(line, "\t", " "))
	if len(runes) < columns {
		return line
	}
	return string(runes[:max(columns-2, 0)]) + "…"
}
