//go:build linux && amd64 && !race

package course

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// A lock is a mutex that is biased to the first thread that takes it: this thread, the
// owner, locks and unlocks with plain stores, which cost less than two atomic
// instructions. When a second thread comes, the lock becomes an ordinary mutex for good.
//
// The owner sets busy and then checks that it is still the owner. A second thread
// revokes the ownership and then checks whether the owner is busy. A store may become
// visible after later loads, so between its two steps the second thread asks the kernel
// to execute a memory barrier on every thread (membarrier(2)).
type lock struct {
	owner  atomic.Uintptr // the g that owns the lock, none, or revoked
	busy   uint32         // 1 while the owner holds the lock; written by the owner only
	shared bool           // the lock is an ordinary mutex; written while it is held
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

// Unlock checks shared, not owner: if the ownership is revoked while the owner holds the lock, the
// owner must unlock as it locked, and shared is set only after that.
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

// self returns the current g. A C thread keeps the same g as long as it lives.
func self() uintptr

// From linux/membarrier.h.
const (
	sysMembarrier            = 324
	privateExpedited         = 1 << 3
	registerPrivateExpedited = 1 << 4
)

// barriers is 1 if membarrier can be called, 2 if not, and 0 if that is not known yet.
var barriers atomic.Uint32

// canBar registers the process for membarrier, as the kernel requires, and reports whether that succeeded.
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

// bar returns after every thread has executed a memory barrier. If a sandbox has forbidden membarrier since
// canBar was called, bar waits 20 ms instead. A store becomes visible within nanoseconds.
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
