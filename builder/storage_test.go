package builder

import (
	"strings"
	"testing"
)

func TestTwoBuildsDoNotShareAStorage(t *testing.T) {
	directory := t.TempDir()
	first, err := lockStorage(directory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockStorage(directory); err == nil || !strings.Contains(err.Error(), "another build uses") {
		t.Errorf("got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := lockStorage(directory)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
