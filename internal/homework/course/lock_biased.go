//go:build linux && amd64 && !race

package course

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// A lock belongs to the first thread that takes it, which from then on enters
// and leaves with plain stores, which cost less than two atomic instructions.
// When a second thread comes, the lock becomes an ordinary mutex for good.
//
// The owner says busy and then looks whether it still is the owner; a newcomer
// takes the ownership away and then looks whether the owner is busy. Stores may
// become visible after later loads, so between its two steps the newcomer has
// the kernel put a memory barrier into every thread (membarrier(2)).
type lock struct {
	owner  atomic.Uintptr // the g that owns the lock, none, or revoked
	busy   uint32         // the owner is inside; written by the owner only
	shared bool           // the mutex decides; written inside the lock
	mu     sync.Mutex
}

const (
	none    uintptr = 0
	revoked uintptr = 1
)

func (l *lock) Lock() {
	me := self()
	if l.owner.Load() == me {
		l.busy = 1
		if l.owner.Load() == me {
			return
		}
		l.busy = 0
	}
	l.lockSlow(me)
}

// Unlock checks shared, not owner: an owner that is revoked while it holds the lock unlocks as it
// locked, and shared is set only after that.
func (l *lock) Unlock() {
	if !l.shared {
		l.busy = 0
		return
	}
	l.mu.Unlock()
}

func (l *lock) lockSlow(me uintptr) {
	l.mu.Lock()
	if l.shared {
		return
	}
	if l.owner.Load() == none && canBar() {
		l.busy = 1
		l.owner.Store(me)
		l.mu.Unlock()
		return
	}
	if l.owner.Swap(revoked) != none {
		bar()
		for atomic.LoadUint32(&l.busy) != 0 {
			runtime.Gosched()
		}
	}
	l.shared = true
}

// self is the running g: of one C thread as long as it lives.
func self() uintptr

// From linux/membarrier.h.
const (
	sysMembarrier            = 324
	privateExpedited         = 1 << 3
	registerPrivateExpedited = 1 << 4
)

// barriers says whether the kernel has the call: 0 unknown, 1 yes, 2 no.
var barriers atomic.Uint32

// canBar registers the process, as the kernel wants before the first use. A
// sandbox may forbid it; then every lock is a mutex from the start.
func canBar() bool {
	if barriers.Load() == 0 {
		answer := uint32(2)
		if membarrier(registerPrivateExpedited) && membarrier(privateExpedited) {
			answer = 1
		}
		barriers.Store(answer)
	}
	return barriers.Load() == 1
}

// bar returns when every thread has passed a memory barrier. A sandbox that was
// closed after canBar leaves waiting: stores leave the processor in
// nanoseconds.
func bar() {
	if !membarrier(privateExpedited) {
		wait := syscall.Timespec{Nsec: 20e6}
		_ = syscall.Nanosleep(&wait, nil)
	}
}

func membarrier(command uintptr) bool {
	_, _, errno := syscall.RawSyscall(sysMembarrier, command, 0, 0)
	return errno == 0
}
