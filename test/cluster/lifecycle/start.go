package lifecycle

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/imagemode/imagemode/test/cluster/process"
)

// hungTimeout is how long a daemon that runs already may take to answer before
// it counts as hung and is started again: longer than a machine busy with
// compiling makes it wait.
const hungTimeout = 30 * time.Second

// ensurePart makes the daemon run and answer, and reports whether it had to be
// started.
func ensurePart(ctx context.Context, options Options, part part) (started bool, err error) {
	began := time.Now()
	started, err = store.Ensure(ctx, part.spec)
	if err != nil {
		return false, err
	}
	if !started && awaitHealthy(ctx, part, hungTimeout) != nil {
		options.Log("%s: runs but does not answer, starting it again", part.spec.Name)
		if started, err = restart(ctx, part.spec); err != nil {
			return false, err
		}
	}
	if err := awaitHealthy(ctx, part, part.timeout); err != nil {
		return started, err
	}
	if part.settle != nil {
		if err := part.settle(ctx); err != nil {
			return started, err
		}
	}
	if started {
		options.Log("%s: started, healthy after %s", part.spec.Name, time.Since(began).Round(100*time.Millisecond))
	}
	return started, nil
}

func restart(ctx context.Context, spec process.Spec) (bool, error) {
	if err := store.Stop(ctx, spec.Name, process.StopGrace); err != nil {
		return false, err
	}
	return store.Ensure(ctx, spec)
}

// awaitHealthy asks the daemon until it answers well. It gives up early when the
// daemon has ended.
func awaitHealthy(ctx context.Context, part part, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		probe, cancelProbe := context.WithTimeout(ctx, probeTimeout)
		err := part.healthy(probe)
		cancelProbe()
		if err == nil {
			return nil
		}
		if _, running := store.Running(part.spec.Name); !running {
			return fmt.Errorf("%s ended; the end of %s:\n%s", part.spec.Name, store.LogFile(part.spec.Name), logTail(part.spec.Name))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not become healthy within %s (%w), see %s", part.spec.Name, timeout, err, store.LogFile(part.spec.Name))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// logTail is the end of a daemon's log, for an error message.
func logTail(name string) string {
	content, err := os.ReadFile(store.LogFile(name))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
