package story

import (
	"bytes"
	"strings"
	"testing"
)

func TestTheTableStaysBelowTheLines(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out)
	if log.Table([]string{"a"}) {
		t.Fatal("a buffer is no terminal")
	}
	log.columns = 20
	log.Table([]string{"one", "two which is longer than the terminal"})
	log.Line("something happened")
	log.Table(nil)
	log.Line("the end")
	screen := render(out.String())
	for i, want := range []string{"something happened", "the end"} {
		if i >= len(screen) || !strings.HasSuffix(screen[i], want) {
			t.Fatalf("line %d of %q, want %q", i, screen, want)
		}
	}
	if len(screen) != 2 {
		t.Errorf("more is left: %q", screen)
	}
	if strings.Contains(out.String(), "terminal") {
		t.Error("a line was not cut to the terminal's width")
	}
}

// render is what a terminal shows that knows the two sequences in use.
func render(text string) []string {
	var screen []string
	for _, part := range strings.SplitAfter(text, "\n") {
		for strings.HasPrefix(part, "\x1b[") {
			up := int(part[2] - '0')
			screen = screen[:len(screen)-up]
			part = strings.TrimPrefix(part, "\x1b["+string(part[2])+"A\x1b[J")
		}
		if part != "" {
			screen = append(screen, strings.TrimSuffix(part, "\n"))
		}
	}
	return screen
}
