package main

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Sizes and orders of serve.rs in sinew-cli.
const (
	piece    = 12
	shortNap = time.Millisecond
	settle   = 100 * time.Millisecond

	orderNap   = 1
	orderCount = 2
)

// busy answers beside each computing goroutines for each worker; 0 is one for all
// workers but one.
func busy(each int) func(job) {
	return func(j job) {
		tasks := each * j.workers
		if each == 0 {
			tasks = j.workers - 1
		}
		pieces := make([]atomic.Uint64, tasks)
		for i := range pieces {
			go func(own *atomic.Uint64) {
				for {
					sink.Store(fib(piece))
					own.Store(own.Load() + 1)
				}
			}(&pieces[i])
		}
		time.Sleep(settle)
		serveWith(func(conn net.Conn) { obey(conn, pieces) })(j)
	}
}

func obey(conn net.Conn, pieces []atomic.Uint64) {
	defer conn.Close()
	var bytes [message]byte
	for {
		if _, err := io.ReadFull(conn, bytes[:]); err != nil {
			return
		}
		var value uint64
		switch bytes[0] {
		case orderNap:
			start := time.Now()
			time.Sleep(shortNap)
			value = uint64(max(time.Since(start)-shortNap, 0))
		case orderCount:
			for i := range pieces {
				value += pieces[i].Load()
			}
		}
		binary.LittleEndian.PutUint64(bytes[8:], value)
		if _, err := conn.Write(bytes[:]); err != nil {
			return
		}
	}
}
