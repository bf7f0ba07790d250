package parallel

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Barrier makes several goroutines wait for each other. Like the workers of a pool, they poll for a while before they
// sleep.
//
// Linux may wake two goroutines on the same processor (see placement). They then take turns there while another
// processor is idle. A waiting goroutine therefore moves to another processor if another goroutine was last seen on its
// processor.
type Barrier struct {
	size     int64
	patience time.Duration
	members  []member
	move     func()       // moves the calling thread to another processor
	arrived  atomic.Int64 // calls of Wait so far

	mu  sync.Mutex
	all sync.Cond
}

type member struct {
	processor atomic.Int64 // where it last called Wait; negative if unknown
	moved     time.Time
	_         [64]byte // each member has its own cache line
}

// NewBarrier makes a barrier for size goroutines.
func NewBarrier(size int) *Barrier {
	b := &Barrier{size: int64(size), patience: patience, members: make([]member, size), move: leaveProcessor}
	if size > processors() {
		b.patience = lessPatience
	}
	for i := range b.members {
		b.members[i].processor.Store(-1)
	}
	b.all.L = &b.mu
	return b
}

// Wait blocks until all goroutines have called it. number is the caller's number, from 0 to size-1.
func (b *Barrier) Wait(number int) {
	b.noteProcessor(number)
	n := b.arrived.Add(1)
	last := (n + b.size - 1) / b.size * b.size
	if n == last {
		b.mu.Lock() // no goroutine is between its last check and its sleep
		b.all.Broadcast()
		b.mu.Unlock()
		return
	}
	for begin := time.Now(); polls(begin, b.patience, true); b.separate(number) {
		for range pollsPerCheck {
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

func (b *Barrier) noteProcessor(number int) {
	cpu, err := processor()
	if err != nil {
		cpu = -1
	}
	b.members[number].processor.Store(int64(cpu))
}

// The goroutine with the given number calls separate while it waits. If another goroutine of the barrier was last seen
// on the same processor, separate moves the calling thread to another processor. It moves a goroutine's thread at most
// once in betweenMoves.
func (b *Barrier) separate(number int) {
	m := &b.members[number]
	cpu := m.processor.Load()
	if cpu < 0 || time.Since(m.moved) < betweenMoves {
		return
	}
	for i := range b.members {
		if i == number || b.members[i].processor.Load() != cpu {
			continue
		}
		b.move()
		m.moved = time.Now()
		b.noteProcessor(number)
		return
	}
}
