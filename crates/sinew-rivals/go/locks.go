package main

import (
	"runtime"
	"sync"
	"time"
)

const (
	lockers   = 100
	locks     = 10_000
	readers   = 4
	writers   = 2
	acquirers = 8
	permits   = 2
	tried     = 16
)

// uncontended: a channel with room for the permits is Go's semaphore, one with
// room for a message its oneshot, and select with default its try.
func uncontended(j job) {
	report("lock", j.steady(func(n int) time.Duration {
		mutex, count := new(sync.Mutex), 0
		start := time.Now()
		for i := 0; i < n; i++ {
			mutex.Lock()
			count++
			mutex.Unlock()
		}
		sink.Add(uint64(count))
		return time.Since(start)
	}))
	report("semaphore", j.steady(func(n int) time.Duration {
		permits := make(chan struct{}, 1)
		start := time.Now()
		for i := 0; i < n; i++ {
			permits <- struct{}{}
			<-permits
		}
		return time.Since(start)
	}))
	report("oneshot", j.steady(func(n int) time.Duration {
		start := time.Now()
		for i := 0; i < n; i++ {
			once := make(chan int, 1)
			once <- i
			if <-once != i {
				panic("wrong message")
			}
		}
		return time.Since(start)
	}))
	report("try", j.steady(func(n int) time.Duration {
		messages := make(chan int, tried)
		start := time.Now()
		for i := 0; i < n; i++ {
			select {
			case messages <- i:
			default:
				panic("full")
			}
			select {
			case got := <-messages:
				sink.Store(uint64(got))
			default:
				panic("empty")
			}
		}
		return time.Since(start)
	}))
}

// together runs each of tasks in a goroutine and waits for all.
func together(tasks ...func()) time.Duration {
	var wg sync.WaitGroup
	start := time.Now()
	wg.Add(len(tasks))
	for _, task := range tasks {
		go func(task func()) {
			defer wg.Done()
			task()
		}(task)
	}
	wg.Wait()
	return time.Since(start)
}

// times is n times the same task.
func times(n int, task func()) []func() {
	tasks := make([]func(), n)
	for i := range tasks {
		tasks[i] = task
	}
	return tasks
}

func mutex100(j job) {
	locks := j.count(locks)
	report("ns", j.repeated(lockers*locks, func() time.Duration {
		var mutex sync.Mutex
		count := 0
		took := together(times(lockers, func() {
			for i := 0; i < locks; i++ {
				mutex.Lock()
				count++
				mutex.Unlock()
			}
		})...)
		if count != lockers*locks {
			panic("wrong count")
		}
		return took
	}))
}

// modes are the figures with and without a yield while something is held.
var modes = []struct {
	key         string
	acrossYield bool
}{{"ns", false}, {"held", true}}

func rwlock(j job) {
	for _, mode := range modes {
		report(mode.key, j.steady(func(n int) time.Duration {
			share := max(n/(readers+writers), 1)
			var lock sync.RWMutex
			count := 0
			tasks := append(times(readers, func() {
				seen := 0
				for i := 0; i < share; i++ {
					lock.RLock()
					seen += count
					if mode.acrossYield {
						runtime.Gosched()
					}
					lock.RUnlock()
				}
				sink.Add(uint64(seen))
			}), times(writers, func() {
				for i := 0; i < share; i++ {
					lock.Lock()
					count++
					if mode.acrossYield {
						runtime.Gosched()
					}
					lock.Unlock()
				}
			})...)
			took := together(tasks...)
			if count != writers*share {
				panic("wrong count")
			}
			return took
		}))
	}
}

func semaphore(j job) {
	for _, mode := range modes {
		report(mode.key, j.steady(func(n int) time.Duration {
			held := make(chan struct{}, permits)
			return together(times(acquirers, func() {
				for i := 0; i < n/acquirers; i++ {
					held <- struct{}{}
					if mode.acrossYield {
						runtime.Gosched()
					}
					<-held
				}
			})...)
		}))
	}
}
