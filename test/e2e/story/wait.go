package story

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is short, so that the times printed are right to a second.
const pollInterval = 500 * time.Millisecond

// check looks once: whether it is done, and else what it sees. An error ends
// the wait; what may pass, such as an object that is not there yet, is a state.
type check func(context.Context) (state string, done bool, err error)

// until looks again and again until the check is done or the context ends.
func until(ctx context.Context, what string, look check) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	lastSeen := "nothing yet"
	for {
		state, done, err := look(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if done {
			return nil
		}
		if ctx.Err() == nil {
			lastSeen = state
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, context.Cause(ctx), lastSeen)
		case <-ticker.C:
		}
	}
}

// sleep waits, or returns early with the reason why the context ended.
func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(duration):
		return nil
	}
}
