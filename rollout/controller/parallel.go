package controller

import "sync"

// inParallel is the function of that name, with as many at a time as the reconciler may.
func (r *Reconciler) inParallel(count int, do func(int)) { inParallel(r.parallel, count, do) }

// inParallel calls do with every number below count, up to limit at the same time, and
// returns when all are done. A panic comes out of it, not out of the program.
func inParallel(limit, count int, do func(int)) {
	if limit <= 1 || count <= 1 {
		for i := range count {
			do(i)
		}
		return
	}
	var group sync.WaitGroup
	var once sync.Once
	var cause any
	numbers := make(chan int)
	for range min(limit, count) {
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
