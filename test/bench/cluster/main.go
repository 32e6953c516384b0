package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/imagemode/imagemode/test/bench/program"
)

// settings are the flags.
type settings struct {
	buildah, tool, work     string
	runs, layers, megabytes int
}

func main() {
	var s settings
	flag.StringVar(&s.buildah, "buildah", "bin/bench-buildah", "buildah, the program, compiled statically")
	flag.StringVar(&s.tool, "tool", "bin/bench-tool", "static program of the base, see test/bench/builder/tool")
	flag.StringVar(&s.work, "work", "/var/tmp", "directory on a disk, for the base's layers")
	flag.IntVar(&s.runs, "runs", 5, "runs of each side")
	flag.IntVar(&s.layers, "layers", 21, "layers of the base")
	flag.IntVar(&s.megabytes, "megabytes", 1400, "size of the base, compressed")
	flag.Parse()
	program.Run(func(ctx context.Context) error { return run(ctx, s) })
}

func run(ctx context.Context, s settings) error {
	told, err := program.Begin(ctx)
	if err != nil {
		return err
	}
	b := &bench{settings: s, told: told}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer b.clear()
	fmt.Printf("\nload before: %s\n", load())
	var ours, theirs []time.Duration
	for i := range s.runs {
		lines, took, err := b.imagemode(ctx, i)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		fmt.Printf("run %d, imagemode %.2f s\n%s", i+1, took.Seconds(), lines)
		if took, err = b.buildahPod(ctx, i); err != nil {
			return err
		}
		theirs = append(theirs, took)
		fmt.Printf("run %d, buildah in a pod %.2f s\n", i+1, took.Seconds())
	}
	fmt.Printf("load after: %s\n", load())
	fmt.Printf("\nconfig-only change, %d MB base of %d layers, from the MachineConfig to Succeeded\n", s.megabytes, s.layers)
	fmt.Printf("  imagemode        %s\n  buildah in a pod %s\n", describe(ours), describe(theirs))
	fmt.Printf("  ratio            %.2f\n", median(theirs).Seconds()/median(ours).Seconds())
	return nil
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

func describe(times []time.Duration) string {
	var each []string
	for _, took := range times {
		each = append(each, fmt.Sprintf("%.2f", took.Seconds()))
	}
	return fmt.Sprintf("%.2f s (%s)", median(times).Seconds(), strings.Join(each, " "))
}

// load is the load average of the machine over 1, 5 and 15 minutes.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}
