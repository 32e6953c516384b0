package main

import (
	"fmt"
	"strings"
	"time"
)

// benchCase is one row of the table.
type benchCase struct {
	name    string
	measure func(*bench) (result, error)
}

var cases = []benchCase{
	{"config-only change on the large base", configOnly},
	{"a Containerfile with one RUN on the large base, cold", oneRun},
	{"the same, only the config changed, FROM base", configChangedFromBase},
	{"one more RUN at the end, the first takes its time, small base", oneLineMore},
}

const oneRunText = "FROM base AS final\nRUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"b\"]\n"

func configOnly(b *bench) (result, error) {
	return b.compare(
		func() (measurement, error) { return b.imagemode(b.large, "", 0) },
		func() (measurement, error) { return b.buildahBuild(b.large, "") })
}

func oneRun(b *bench) (result, error) {
	return b.compare(
		func() (measurement, error) {
			b.repository++ // nothing of an earlier build is there
			return b.imagemode(b.large, oneRunText, 0)
		},
		func() (measurement, error) { return b.buildahBuild(b.large, oneRunText) })
}

// configChangedFromBase is compared with a whole build, which is all that the
// other side can do.
func configChangedFromBase(b *bench) (result, error) {
	b.repository++
	if _, err := b.imagemode(b.large, oneRunText, 0); err != nil {
		return result{}, err
	}
	return b.compare(
		func() (measurement, error) { return b.imagemode(b.large, oneRunText, 0) },
		func() (measurement, error) { return b.buildahBuild(b.large, oneRunText) })
}

// oneLineMore compares the builder with itself in a repository without a cache.
func oneLineMore(b *bench) (result, error) {
	first := fmt.Sprintf("FROM base AS final\nRUN [\"/bin/tool\", \"sleep\", \"%d\"]\n", b.sleep)
	more := func(number int) string {
		return first + fmt.Sprintf("RUN [\"/bin/tool\", \"write\", \"/usr/share/a\", \"%d\"]\n", number)
	}
	b.repository++
	cached := b.repository
	if _, err := b.imagemode(b.small, first, 0); err != nil {
		return result{}, err
	}
	number := 0
	return b.compare(
		func() (measurement, error) {
			number++
			return b.imagemode(b.small, more(number), cached)
		},
		func() (measurement, error) {
			b.repository++
			return b.imagemode(b.small, more(number), 0)
		})
}

// measurement is one run.
type measurement struct {
	took time.Duration
	// memory is the largest resident size of a process of the run, in bytes.
	memory int64
	// sent is what went to the registry, in bytes; 0: not counted.
	sent int64
}

// result is what a case gave.
type result struct {
	ours, theirs []measurement
	missing      string
}

func (r result) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "  imagemode     %s\n", describe(r.ours))
	if r.missing != "" {
		return text.String() + "  compared with: " + r.missing + "\n"
	}
	fmt.Fprintf(&text, "  compared with %s\n", describe(r.theirs))
	fmt.Fprintf(&text, "  ratio         %.2f\n", seconds(r.theirs)/seconds(r.ours))
	return text.String()
}

func describe(runs []measurement) string {
	text := fmt.Sprintf("%.2f s (%s), %d MB memory", seconds(runs), each(runs), middle(runs, func(m measurement) int64 { return m.memory })>>20)
	if sent := middle(runs, func(m measurement) int64 { return m.sent }); sent > 0 {
		text += fmt.Sprintf(", %.3f MiB sent", float64(sent)/(1<<20))
	}
	return text
}
