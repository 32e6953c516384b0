package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/imagemode/imagemode/test/bench/program"
)

// settings are the flags.
type settings struct {
	bytes, rate     int64
	rounds, workers int
	// limit is how many seconds the large change may add, staged first.
	limit float64
}

func main() {
	var s settings
	flag.Int64Var(&s.bytes, "bytes", 1_000_000_000, "size of the large change, which cannot be compressed")
	flag.Int64Var(&s.rate, "rate", 50_000_000, "bytes per second that a node gets from the registry")
	flag.IntVar(&s.rounds, "rounds", 1, "how often each case is measured, on every worker")
	flag.IntVar(&s.workers, "workers", 2, "how many of the workers to use")
	flag.Float64Var(&s.limit, "limit", 1, "seconds that the large change may add when it is staged first")
	flag.Parse()
	program.Run(func(ctx context.Context) error { return run(ctx, s) })
}

func run(ctx context.Context, s settings) error {
	told, err := program.Begin(ctx)
	if err != nil {
		return err
	}
	b := &bench{Story: told, settings: s, took: map[string][]float64{}}
	for round := range s.rounds {
		for _, c := range cases {
			fmt.Printf("\n== round %d: %s\n", round+1, c.name())
			if err := b.measure(ctx, c); err != nil {
				told.Diagnose()
				return fmt.Errorf("%s: %w", c.name(), err)
			}
		}
	}
	if err := told.DeleteRollout(ctx); err != nil {
		return err
	}
	return b.report()
}
