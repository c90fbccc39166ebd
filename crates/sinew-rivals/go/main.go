// The workloads of `sinew bench` on goroutines.
//
// rivals-go NAME --workers N --scale S runs one workload once and prints its
// figures, one `key value` a line. Sizes and meanings are those of child.rs in
// sinew-cli; GOMAXPROCS is the number of workers.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

type job struct {
	name    string
	workers int
	scale   float64
}

func main() {
	j, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rivals-go:", err)
		os.Exit(2)
	}
	runtime.GOMAXPROCS(j.workers)
	work, ok := map[string]func(job){
		"yield_1":       yields(1),
		"yield_10":      yields(10),
		"yield_1k":      yields(1000),
		"spawn_join":    spawnJoin,
		"spawn_1m":      spawn1m,
		"skynet_cold":   skynetCold,
		"skynet_warm":   skynetWarm,
		"sleep_1m":      sleep1m,
		"idle":          idle,
		"balance":       balance,
		"latency_spawn": latencySpawn,
		"pingpong_0":    pingpong(0),
		"pingpong_1":    pingpong(1),
		"pingpong_1m":   pingpong1m,
		"apart_0":       apart(0),
		"apart_1":       apart(1),
		"mpsc_4p1c":     queue(100, 1),
		"mpmc_4p4c":     queue(1000, 4),
		"uncontended":   uncontended,
		"mutex_100":     mutex100,
		"rwlock_4r2w":   rwlock,
		"semaphore_8_2": semaphore,
		"select_2":      selects(2, pick2),
		"select_8":      selects(8, pick8),
		"select_32":     selects(32, pick32),
		"echo_100":      serveWith(echo),
		"echo_9000":     serveWith(echo),
		"idle_conn":     serveWith(echo),
		"io_even":       serveWith(echo),
		"short":         serveWith(answerOnce),
		"proxy":         serveWith(forward),
		"file_read":     fileRead,
		"busy_1":        busy(1),
		"busy_3":        busy(3),
		"busy_10":       busy(10),
		"busy_fewer":    busy(0),
	}[j.name]
	if !ok {
		fmt.Fprintf(os.Stderr, "rivals-go: no workload `%s`\n", j.name)
		os.Exit(3)
	}
	work(j)
}

func parse(args []string) (job, error) {
	j := job{workers: 1, scale: 1}
	if len(args) == 0 {
		return j, fmt.Errorf("workload name missing")
	}
	j.name = args[0]
	for args = args[1:]; len(args) > 0; args = args[2:] {
		if len(args) < 2 {
			return j, fmt.Errorf("%s needs a value", args[0])
		}
		var err error
		switch args[0] {
		case "--workers":
			j.workers, err = strconv.Atoi(args[1])
		case "--scale":
			j.scale, err = strconv.ParseFloat(args[1], 64)
		default:
			err = fmt.Errorf("unknown option `%s`", args[0])
		}
		if err == nil && (j.workers < 1 || !(j.scale > 0 && j.scale <= 1)) {
			err = fmt.Errorf("%s: `%s` is not in range", args[0], args[1])
		}
		if err != nil {
			return j, err
		}
	}
	return j, nil
}

// count is full at scale 1, less below, at least 1.
func (j job) count(full int) int {
	return max(int(float64(full)*j.scale), 1)
}

// leaves is the largest power of ten that fits.
func (j job) leaves() int {
	leaves, most := 1, j.count(1_000_000)
	for leaves*10 <= most {
		leaves *= 10
	}
	return leaves
}

// steady warms run up, finds how many operations take half a second (at scale
// 1), and measures that many. It answers nanoseconds per operation.
func (j job) steady(run func(n int) time.Duration) float64 {
	target := time.Duration(float64(500*time.Millisecond) * max(j.scale, 0.02))
	n := 1000
	for {
		took := run(n)
		if took >= target/10 {
			n = max(int(float64(n)*target.Seconds()/took.Seconds()), 1)
			return each(run(n), n)
		}
		n *= 4
	}
}

// repeated runs work, which does ops operations: once to warm up, then until
// half a second has passed (at scale 1). It answers nanoseconds per operation.
func (j job) repeated(ops int, work func() time.Duration) float64 {
	target := time.Duration(float64(500*time.Millisecond) * max(j.scale, 0.02))
	work()
	var took time.Duration
	runs := 0
	for took < target {
		took += work()
		runs++
	}
	return each(took, runs*ops)
}

func report(key string, value float64) {
	fmt.Printf("%s %v\n", key, value)
}

func each(total time.Duration, n int) float64 {
	return float64(total.Nanoseconds()) / float64(n)
}

func millis(d time.Duration) float64 {
	return d.Seconds() * 1e3
}
