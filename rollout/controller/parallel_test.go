package controller

import (
	"sync/atomic"
	"testing"
)

func TestInParallel(t *testing.T) {
	for _, parallel := range []int{0, 1, 4} {
		r := &Reconciler{parallel: parallel}
		var sum atomic.Int64
		r.inParallel(10, func(i int) { sum.Add(int64(i)) })
		if sum.Load() != 45 {
			t.Errorf("%d at a time: the numbers add up to %d, want 45", parallel, sum.Load())
		}
		r.inParallel(0, func(int) { t.Error("called for nothing") })
		func() {
			defer func() {
				if cause := recover(); cause != "a bug" {
					t.Errorf("%d at a time: out comes %v", parallel, cause)
				}
			}()
			r.inParallel(3, func(i int) {
				if i == 1 {
					panic("a bug")
				}
			})
		}()
	}
}
