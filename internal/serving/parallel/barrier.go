package parallel

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Barrier makes several goroutines wait for each other. They poll for a while before they sleep, as the workers of a
// pool do.
//
// Two of them may have woken on one processor (see placement), where they compute in turns while another processor
// has nothing to do. A goroutine that waits on the processor where another one was last moves to another.
type Barrier struct {
	size     int64
	patience time.Duration
	seats    []seat
	leave    func()       // moves the calling thread to another processor
	arrived  atomic.Int64 // calls of Wait since the beginning

	mu  sync.Mutex
	all sync.Cond
}

// A seat is the place of a goroutine.
type seat struct {
	processor atomic.Int64 // on which it called Wait last; less than 0: not known
	moved     time.Time
	_         [64]byte // others write to other cache lines
}

// NewBarrier makes a barrier for size goroutines.
func NewBarrier(size int) *Barrier {
	b := &Barrier{size: int64(size), patience: patience, seats: make([]seat, size), leave: leaveProcessor}
	if size > processors() {
		b.patience = lessPatience
	}
	for i := range b.seats {
		b.seats[i].processor.Store(-1)
	}
	b.all.L = &b.mu
	return b
}

// Wait returns when all goroutines have called it, each with its number, from 0.
func (b *Barrier) Wait(number int) {
	b.sit(number)
	n := b.arrived.Add(1)
	last := (n + b.size - 1) / b.size * b.size
	if n == last {
		b.mu.Lock() // no goroutine is between its last look and its sleep
		b.all.Broadcast()
		b.mu.Unlock()
		return
	}
	for begin := time.Now(); polls(begin, b.patience, true); b.spread(number) {
		for range looks {
			if b.arrived.Load() >= last {
				return
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.arrived.Load() < last {
		b.all.Wait()
	}
}

// sit notes on which processor a goroutine is.
func (b *Barrier) sit(number int) {
	here, err := processor()
	if err != nil {
		here = -1
	}
	b.seats[number].processor.Store(int64(here))
}

// spread moves a goroutine to another processor if another one was on its own.
func (b *Barrier) spread(number int) {
	own := &b.seats[number]
	here := own.processor.Load()
	for i := range b.seats {
		if i == number || here < 0 || b.seats[i].processor.Load() != here || time.Since(own.moved) < betweenMoves {
			continue
		}
		b.leave()
		own.moved = time.Now()
		b.sit(number)
		return
	}
}
