package main

import (
	"runtime"
	"sync"
	"time"
)

const producers = 4

func serve(n int, ping chan<- int, pong <-chan int) time.Duration {
	start := time.Now()
	for ball := 0; ball < n; ball++ {
		ping <- ball
		if <-pong != ball {
			panic("wrong ball")
		}
	}
	close(ping)
	return time.Since(start)
}

func answer(ping <-chan int, pong chan<- int) {
	for ball := range ping {
		pong <- ball
	}
}

// rally is n round trips between two goroutines; begin is called by each of
// them first.
func rally(n, room int, begin func()) time.Duration {
	ping, pong := make(chan int, room), make(chan int, room)
	var wg sync.WaitGroup
	var took time.Duration
	wg.Add(2)
	go func() {
		defer wg.Done()
		begin()
		answer(ping, pong)
	}()
	go func() {
		defer wg.Done()
		begin()
		took = serve(n, ping, pong)
	}()
	wg.Wait()
	return took
}

func pingpong(room int) func(job) {
	return func(j job) {
		report("ns", j.steady(func(n int) time.Duration {
			return rally(n, room, func() {})
		}))
	}
}

func pingpong1m(j job) {
	report("ms", millis(rally(j.count(1_000_000), 1, func() {})))
}

// apart keeps the two goroutines on threads of their own, the only way there
// is to keep one from moving to the other; the threads end with them.
func apart(room int) func(job) {
	return func(j job) {
		report("ns", j.steady(func(n int) time.Duration {
			return rally(n, room, runtime.LockOSThread)
		}))
	}
}

func queue(room, consumers int) func(job) {
	return func(j job) {
		report("ns", j.steady(func(n int) time.Duration {
			share := max(n/producers, 1)
			start := time.Now()
			messages := make(chan int, room)
			sums := make(chan int, consumers)
			for c := 0; c < consumers; c++ {
				go func() {
					sum := 0
					for i := range messages {
						sum += i
					}
					sums <- sum
				}()
			}
			var wg sync.WaitGroup
			wg.Add(producers)
			for p := 0; p < producers; p++ {
				go func() {
					defer wg.Done()
					for i := 0; i < share; i++ {
						messages <- i
					}
				}()
			}
			wg.Wait()
			close(messages)
			sum := 0
			for c := 0; c < consumers; c++ {
				sum += <-sums
			}
			if sum != producers*(share*(share-1)/2) {
				panic("wrong sum")
			}
			return time.Since(start)
		}))
	}
}
