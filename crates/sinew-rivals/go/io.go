package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Sizes of serve.rs in sinew-cli.
const (
	message  = 64
	buffer   = 512
	block    = 4096
	inFlight = 64
	blocks   = 16 * 1024
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// serveWith accepts forever, with a goroutine for each connection. Go raises the
// limit of open files by itself.
func serveWith(handle func(net.Conn)) func(job) {
	return func(job) {
		listener := must(net.Listen("tcp4", "127.0.0.1:0"))
		fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
		for {
			conn := must(listener.Accept())
			go handle(conn)
		}
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	var bytes [buffer]byte
	for {
		n, err := conn.Read(bytes[:])
		if err != nil {
			return
		}
		if _, err := conn.Write(bytes[:n]); err != nil {
			return
		}
	}
}

func answerOnce(conn net.Conn) {
	defer conn.Close()
	var bytes [message]byte
	if _, err := io.ReadFull(conn, bytes[:]); err == nil {
		conn.Write(bytes[:]) // we close it anyway
	}
}

// forward leaves the choice of a buffer, or of splice, to io.Copy.
func forward(near net.Conn) {
	far := must(net.Dial("tcp4", os.Getenv("SINEW_BENCH_UPSTREAM")))
	copyTo := func(to, from net.Conn) {
		io.Copy(to, from)
		to.(*net.TCPConn).CloseWrite()
	}
	go copyTo(near, far)
	copyTo(far, near)
}

func fileRead(j job) {
	name := fmt.Sprintf("%s/sinew-bench-%d", os.TempDir(), os.Getpid())
	defer os.Remove(name)
	file := must(os.Create(name))
	bytes := make([]byte, block)
	for i := range bytes {
		bytes[i] = 7
	}
	for number := uint64(0); number < blocks; number++ {
		binary.LittleEndian.PutUint64(bytes, number)
		must(file.Write(bytes))
	}
	report("ns", j.steady(func(n int) time.Duration {
		share := max(n/inFlight, 1)
		start := time.Now()
		var group sync.WaitGroup
		for reader := uint64(0); reader < inFlight; reader++ {
			group.Add(1)
			go func(reader uint64) {
				defer group.Done()
				readBlocks(file, reader, share)
			}(reader)
		}
		group.Wait()
		return time.Duration(float64(time.Since(start)) * float64(n) / float64(share*inFlight))
	}))
}

func readBlocks(file *os.File, reader uint64, n int) {
	var bytes [block]byte
	state := reader*0x9e3779b97f4a7c15 | 1
	for i := 0; i < n; i++ {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		number := (state >> 20) % blocks
		must(file.ReadAt(bytes[:], int64(number*block)))
		if binary.LittleEndian.Uint64(bytes[:]) != number || bytes[block-1] != 7 {
			panic("wrong bytes")
		}
	}
}
