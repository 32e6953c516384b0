package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// settings are the flags.
type settings struct {
	builder, buildah, registry, tool string
	work                             string
	runs, layers, megabytes, sleep   int
}

func main() {
	var s settings
	flag.StringVar(&s.builder, "builder", "bin/imagemode-builder", "imagemode-builder, compiled")
	flag.StringVar(&s.buildah, "buildah", "buildah", "buildah, the program to compare with")
	flag.StringVar(&s.registry, "registry", "bin/bench-registry", "the local cluster's registry, compiled")
	flag.StringVar(&s.tool, "tool", "bin/bench-tool", "static program for the RUNs, see the folder tool")
	flag.StringVar(&s.work, "work", "/var/tmp", "directory on a disk, for about 40 GB at the default size")
	flag.IntVar(&s.runs, "runs", 5, "runs of each case")
	flag.IntVar(&s.layers, "layers", 21, "layers of the large base")
	flag.IntVar(&s.megabytes, "megabytes", 1400, "size of the large base, compressed")
	flag.IntVar(&s.sleep, "sleep", 10, "seconds that the first RUN of the cached case takes")
	flag.Parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	work, err := os.MkdirTemp(s.work, "imagemode-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	s.work = work
	b := &bench{settings: s}
	if err := b.startRegistry(); err != nil {
		return err
	}
	defer b.stopRegistry()
	fmt.Printf("load before: %s\n", load())
	if err := b.makeBases(); err != nil {
		return err
	}
	for _, c := range cases {
		result, err := c.measure(b)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("\n%s\n%s", c.name, result)
	}
	fmt.Printf("\nload after: %s\n", load())
	return nil
}

// load is the load average of the machine over 1, 5 and 15 minutes: figures taken
// on a busy one mean little.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

// path gives a new directory below the work directory.
func (b *bench) path(name string) string {
	b.count++
	return filepath.Join(b.work, fmt.Sprintf("%03d-%s", b.count, name))
}
