//go:build linux && amd64 && !race

package course

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// A lock is a mutex that is biased to its owner, the first thread to take it. The owner locks and unlocks with plain
// stores, which cost less than two atomic instructions. When a second thread takes the lock, it becomes an ordinary
// mutex for good.
//
// The owner sets busy and then checks its ownership. A second thread revokes the ownership and then checks whether the
// owner is busy. A processor may make a store visible to other threads after it has executed later loads. So the second
// thread asks the kernel between its two steps to execute a memory barrier on every thread (membarrier(2)).
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

// Unlock releases the lock. If shared is false, the caller is the owner, and Unlock sets busy to 0. If shared is true,
// the lock is an ordinary mutex, and Unlock unlocks mu.
//
// shared does not change while the owner holds the lock: a second thread sets it only after the owner has set busy to
// 0. The field owner can change in this time, because the second thread sets it to revoked at once. So Unlock does not
// read owner.
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

// self returns the address of the current goroutine's g. A C thread has the same g as long as it lives.
func self() uintptr

// From linux/membarrier.h.
const (
	sysMembarrier            = 324
	privateExpedited         = 1 << 3
	registerPrivateExpedited = 1 << 4
)

// barriers says whether membarrier can be called: 1 yes, 2 no, 0 not known yet.
var barriers atomic.Uint32

// canBar reports whether membarrier can be called. The first call registers the process, as the kernel requires.
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

// bar returns after every thread has executed a memory barrier. A sandbox may have forbidden membarrier since canBar
// was called. In this case bar sleeps for 20 ms, which is enough because a store becomes visible to other threads
// within nanoseconds.
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
