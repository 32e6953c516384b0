// Command tool is what a RUN of the benchmark runs: write FILE TEXT, or sleep
// SECONDS.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 3 && arguments[0] == "write":
		return os.WriteFile(arguments[1], []byte(arguments[2]), 0o644)
	case len(arguments) == 2 && arguments[0] == "sleep":
		seconds, err := strconv.Atoi(arguments[1])
		time.Sleep(time.Duration(seconds) * time.Second)
		return err
	}
	return fmt.Errorf("write FILE TEXT, or sleep SECONDS; not %q", arguments)
}
