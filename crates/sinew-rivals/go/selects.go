package main

import "time"

// dice choose the arm that gets the next message: the sequence of waits.rs.
type dice uint64

func newDice() dice { return 0x9E3779B97F4A7C15 }

// roll is a number below sides, which is a power of two.
func (d *dice) roll(sides int) int {
	*d ^= *d << 13
	*d ^= *d >> 7
	*d ^= *d << 17
	return int(*d>>32) & (sides - 1)
}

// selects measures pick, a select over so many channels.
func selects(arms int, pick func([]chan int) int) func(job) {
	channels := func() []chan int {
		all := make([]chan int, arms)
		for i := range all {
			all[i] = make(chan int, 1)
		}
		return all
	}
	return func(j job) {
		report("ready", j.steady(func(n int) time.Duration {
			all, d := channels(), newDice()
			start := time.Now()
			for i := 0; i < n; i++ {
				all[d.roll(arms)] <- i
				if pick(all) != i {
					panic("wrong message")
				}
			}
			return time.Since(start)
		}))
		report("parked", j.steady(func(n int) time.Duration {
			all, d, replies := channels(), newDice(), make(chan int, 1)
			return together(func() {
				for i := 0; i < n; i++ {
					replies <- pick(all)
				}
			}, func() {
				for i := 0; i < n; i++ {
					all[d.roll(arms)] <- i
					if <-replies != i {
						panic("wrong message")
					}
				}
			})
		}))
	}
}

func pick2(c []chan int) int {
	_ = c[1]
	select {
	case i := <-c[0]:
		return i
	case i := <-c[1]:
		return i
	}
}

func pick8(c []chan int) int {
	_ = c[7]
	select {
	case i := <-c[0]:
		return i
	case i := <-c[1]:
		return i
	case i := <-c[2]:
		return i
	case i := <-c[3]:
		return i
	case i := <-c[4]:
		return i
	case i := <-c[5]:
		return i
	case i := <-c[6]:
		return i
	case i := <-c[7]:
		return i
	}
}

func pick32(c []chan int) int {
	_ = c[31]
	select {
	case i := <-c[0]:
		return i
	case i := <-c[1]:
		return i
	case i := <-c[2]:
		return i
	case i := <-c[3]:
		return i
	case i := <-c[4]:
		return i
	case i := <-c[5]:
		return i
	case i := <-c[6]:
		return i
	case i := <-c[7]:
		return i
	case i := <-c[8]:
		return i
	case i := <-c[9]:
		return i
	case i := <-c[10]:
		return i
	case i := <-c[11]:
		return i
	case i := <-c[12]:
		return i
	case i := <-c[13]:
		return i
	case i := <-c[14]:
		return i
	case i := <-c[15]:
		return i
	case i := <-c[16]:
		return i
	case i := <-c[17]:
		return i
	case i := <-c[18]:
		return i
	case i := <-c[19]:
		return i
	case i := <-c[20]:
		return i
	case i := <-c[21]:
		return i
	case i := <-c[22]:
		return i
	case i := <-c[23]:
		return i
	case i := <-c[24]:
		return i
	case i := <-c[25]:
		return i
	case i := <-c[26]:
		return i
	case i := <-c[27]:
		return i
	case i := <-c[28]:
		return i
	case i := <-c[29]:
		return i
	case i := <-c[30]:
		return i
	case i := <-c[31]:
		return i
	}
}
