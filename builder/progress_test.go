package builder

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgressLines(t *testing.T) {
	tests := map[string]struct {
		written []string
		want    []string
	}{
		"a line in pieces":               {[]string{"on", "e\ntw", "o"}, []string{"one", "two"}},
		"a progress bar shows its end":   {[]string{"0%\r50%\r100%\nnext\r\n"}, []string{"100%", "next"}},
		"control characters are dropped": {[]string{"\x1b[31mred\x07\n"}, []string{"[31mred"}},
		"bytes that are not UTF-8":       {[]string{"a\xffb\n"}, []string{"a�b"}},
		"the end of a program is told once": {
			[]string{"no\nno\nsubprocess exited on killed\nthe last\nsubprocess exited with status 1\n"},
			[]string{"no", "no", "subprocess exited on killed", "the last"},
		},
		"an endless line is cut": {[]string{strings.Repeat("x", 10*maxLine) + "\n"}, []string{strings.Repeat("x", keptLineSize) + "…"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := newProgress(&out)
			writer := p.lines()
			for _, text := range test.written {
				fmt.Fprint(writer, text)
			}
			writer.flush()
			if diff := cmp.Diff(test.want, p.lastLines()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyTheLastLinesOfAStepAreKept(t *testing.T) {
	p := newProgress(nil)
	p.line("of the step before")
	p.startStep("user", 3, 5)
	for i := range 3 * keptLines {
		p.line(fmt.Sprint(i))
	}
	kept := p.lastLines()
	if len(kept) != keptLines || kept[0] != fmt.Sprint(2*keptLines) || kept[keptLines-1] != fmt.Sprint(3*keptLines-1) {
		t.Errorf("%v", kept)
	}
}
