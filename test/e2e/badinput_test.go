//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/imagemode/imagemode/test/e2e/story"
)

// badInputTimeout is short: nothing has to be built to see that input is bad.
const badInputTimeout = time.Minute

// testBadInput uses pools without nodes, beside the story.
func testBadInput(t *testing.T, told *story.Story) {
	t.Run("a Containerfile that does not parse fails with its line, without a pod", func(t *testing.T) {
		ctx := emptyPool(t, told, "unparsable")
		if err := told.ApplyMachineOSConfig(ctx, "unparsable", "FROM configs AS final\nRUNN true\n", "push"); err != nil {
			t.Fatal(err)
		}
		failed, err := told.FailedBuild(ctx, "unparsable")
		if err != nil {
			t.Fatal(err)
		}
		if failed.Reason != "Containerfile" || !strings.Contains(failed.Message, "line 2") {
			t.Errorf("Failed: reason %q, message %q; want reason Containerfile and the line, 2", failed.Reason, failed.Message)
		}
		pods, err := told.BuilderPods(ctx, "unparsable")
		if err != nil {
			t.Fatal(err)
		}
		if len(pods) > 0 {
			t.Errorf("builder pods %v were started, want none", pods)
		}
	})
	t.Run("a push secret that is missing is named", func(t *testing.T) {
		ctx := emptyPool(t, told, "no-secret")
		if err := told.ApplyMachineOSConfig(ctx, "no-secret", story.Containerfile, "not-there"); err != nil {
			t.Fatal(err)
		}
		valid, err := told.InvalidConfig(ctx, "no-secret")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(valid.Message, "not-there") {
			t.Errorf("Valid=False says %q, want the name of the Secret, not-there", valid.Message)
		}
	})
}

// emptyPool makes a pool for the test and returns a context that ends in time.
func emptyPool(t *testing.T, told *story.Story, name string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), badInputTimeout)
	t.Cleanup(cancel)
	if err := told.CreateEmptyPool(ctx, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := told.DeletePool(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return ctx
}
