package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	batch    = 10_000
	nap      = 3 * time.Second
	watch    = 2 * time.Second
	patience = 50 * time.Millisecond
)

var sink atomic.Uint64

func yields(yielders int) func(job) {
	return func(j job) {
		tasks := yielders * j.workers
		report("ns", j.steady(func(total int) time.Duration {
			var wg sync.WaitGroup
			start := time.Now()
			wg.Add(tasks)
			for t := 0; t < tasks; t++ {
				go func() {
					defer wg.Done()
					for i := 0; i < total/tasks; i++ {
						runtime.Gosched()
					}
				}()
			}
			wg.Wait()
			return time.Since(start)
		}))
	}
}

// spawnJoin hands each result over in a channel, the way to join with a value.
func spawnJoin(j job) {
	report("ns", j.steady(func(n int) time.Duration {
		start := time.Now()
		var sum uint64
		done := make(chan int)
		for i := 0; i < n; i++ {
			i := i
			go func() { done <- i }()
			sum += uint64(<-done)
		}
		sink.Add(sum)
		return time.Since(start)
	}))
}

func spawnThenJoin(n int) time.Duration {
	start := time.Now()
	results := make([]int, n)
	var wg sync.WaitGroup
	wg.Add(n)
	for i := 0; i < n; i++ {
		i := i
		go func() {
			results[i] = i
			wg.Done()
		}()
	}
	wg.Wait()
	sum := 0
	for _, result := range results {
		sum += result
	}
	if sum != n*(n-1)/2 {
		panic("wrong sum")
	}
	return time.Since(start)
}

func spawn1m(j job) {
	few, n := j.count(100_000), j.count(1_000_000)
	report("ns_first", each(spawnThenJoin(few), few))
	report("ns", each(spawnThenJoin(n), n))
	batches := max(n/batch, 1)
	var took time.Duration
	for i := 0; i < batches; i++ {
		took += spawnThenJoin(batch)
	}
	report("ns_batched", each(took, batches*batch))
}

func skynetNode(result chan<- int, first, size int) {
	if size == 1 {
		result <- first
		return
	}
	part := size / 10
	results := make(chan int, 10)
	for i := 0; i < 10; i++ {
		go skynetNode(results, first+i*part, part)
	}
	sum := 0
	for i := 0; i < 10; i++ {
		sum += <-results
	}
	result <- sum
}

func skynet(leaves int) time.Duration {
	start := time.Now()
	result := make(chan int, 1)
	go skynetNode(result, 0, leaves)
	if <-result != leaves*(leaves-1)/2 {
		panic("wrong sum")
	}
	return time.Since(start)
}

func skynetCold(j job) {
	report("ms", millis(skynet(j.leaves())))
}

func skynetWarm(j job) {
	for i := 0; i < 2; i++ {
		skynet(j.leaves())
	}
	report("ms", millis(skynet(j.leaves())))
}

func sleep1m(j job) {
	n := j.count(1_000_000)
	var started, woken atomic.Int64
	var allSpawned atomic.Bool
	var wg sync.WaitGroup
	before := memory()
	start := time.Now()
	weighed := make(chan struct{})
	go func() {
		for {
			w, s := woken.Load(), started.Load()
			if s == int64(n) || w > 0 {
				asleep := float64(max(s-w, 1))
				alive := asleep
				if allSpawned.Load() {
					alive = float64(int64(n) - w)
				}
				bytes := float64(memory() - before)
				report("asleep_at_once", asleep)
				report("bytes_each", bytes/alive)
				close(weighed)
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	wg.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			started.Add(1)
			time.Sleep(nap)
			woken.Add(1)
			wg.Done()
		}()
	}
	allSpawned.Store(true)
	wg.Wait()
	report("wall_s", time.Since(start).Seconds())
	<-weighed
}

func idle(j job) {
	never := make(chan struct{})
	for i := 0; i < 10_000; i++ {
		go func() { <-never }()
	}
	time.Sleep(300 * time.Millisecond)
	before, start := cpuTime(), time.Now()
	time.Sleep(time.Duration(float64(watch) * max(j.scale, 0.1)))
	used := cpuTime() - before
	report("cpu_ms_per_s", millis(used)/time.Since(start).Seconds())
}

//go:noinline
func fib(n uint32) uint64 {
	if n < 2 {
		return uint64(n)
	}
	return fib(n-1) + fib(n-2)
}

func balance(j job) {
	n := j.count(100_000)
	var wg sync.WaitGroup
	start := time.Now()
	wg.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			sink.Add(fib(20))
			for y := 0; y < 10; y++ {
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	report("ms", millis(time.Since(start)))
}

func latencySpawn(j job) {
	var micros []float64
	late, most := 0, 0.0
	for i := 0; i < max(j.count(200), 10) && late < 3; i++ {
		spinUntil(2*time.Millisecond, func() bool { return false })
		start := time.Now()
		cell := new(atomic.Int64)
		go func() { cell.Store(max(int64(time.Since(start)), 1)) }()
		spinUntil(patience, func() bool { return cell.Load() != 0 })
		took := float64(cell.Load()) / 1e3
		if took == 0 {
			late++
			took = patience.Seconds() * 1e6
		}
		micros = append(micros, took)
		most = max(most, took)
	}
	report("us", median(micros))
	report("us_max", most)
}

func spinUntil(limit time.Duration, done func() bool) {
	for start := time.Now(); time.Since(start) < limit && !done(); {
	}
}
