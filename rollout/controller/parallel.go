package controller

import "sync"

// inParallel calls do with every number below count, some at the same time, and
// returns when all are done. A panic comes out of it, not out of the program.
func (r *Reconciler) inParallel(count int, do func(int)) {
	if r.parallel <= 1 || count <= 1 {
		for i := range count {
			do(i)
		}
		return
	}
	var group sync.WaitGroup
	var once sync.Once
	var cause any
	numbers := make(chan int)
	for range min(r.parallel, count) {
		group.Go(func() {
			for i := range numbers {
				func() {
					defer func() {
						if found := recover(); found != nil {
							once.Do(func() { cause = found })
						}
					}()
					do(i)
				}()
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	group.Wait()
	if cause != nil {
		panic(cause)
	}
}
