package parallel

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Task is work in n parts. Do is called once for each part i, by several goroutines at the same time, each with a
// different worker number from 0 to Size()-1. If a Task is a pointer that is used for many Runs, passing it to Run
// allocates nothing.
type Task interface {
	Do(worker, i int)
}

// A Pool is a fixed number of workers. One of them is the goroutine that calls Run. A Pool is safe for concurrent use;
// calls of Run wait for each other. A task must not call Run of the pool that runs it.
type Pool struct {
	size     int
	bound    bool // workers are bound to processors
	foreign  bool // the threads that call Run are another program's
	patience time.Duration
	yields   bool       // polling lets other goroutines run after lessPatience
	mu       sync.Mutex // held during Run

	task   Task
	n      int64
	next   atomic.Int64 // the first task that no worker has taken
	busy   atomic.Int64 // workers that have not finished this Run
	failed atomic.Pointer[failure]

	caller placement

	workers []*worker
	done    chan struct{} // the last worker to finish wakes the caller
}

type failure struct{ value any }

// patience is how long a worker polls for the next Run before it sleeps. The caller of Run also polls for this time
// before it sleeps, while it waits for the workers to finish. Waking a sleeping thread takes 20 to 100 µs, and a step
// of a model consists of a hundred Runs with little work between them.
//
// Two kinds of pools use lessPatience instead: pools of New with more workers than processors, and pools of
// NewBesideThreads with at least as many workers as processors. In these pools, a worker that polls takes a processor
// from other work.
//
// In a pool with at least as many workers as GOMAXPROCS, a worker that has polled for lessPatience lets other
// goroutines run.
const (
	patience     = 100 * time.Microsecond
	lessPatience = 10 * time.Microsecond
)

// pollsPerCheck is the number of times a worker polls between two looks at the clock.
const pollsPerCheck = 500

// New makes a pool of size workers, at least 1. If cpus is not empty, each worker i except worker 0 is pinned to
// processor cpus[i]. Worker 0 is the goroutine that calls Run.
func New(size int, cpus ...int) (*Pool, error) {
	return newPool(size, size > processors(), cpus)
}

// NewBesideThreads makes a pool for a program that calls Run on its own threads, such as a C program. Between Runs, the
// program uses these threads for other computations. Run does not move these threads to other processors. The program
// may have bound them to processors itself, and a sandbox may forbid the system call.
func NewBesideThreads(size int) (*Pool, error) {
	p, err := newPool(size, size >= processors(), nil)
	if err == nil {
		p.foreign = true
	}
	return p, err
}

func processors() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }

func newPool(size int, impatient bool, cpus []int) (*Pool, error) {
	if size < 1 {
		return nil, fmt.Errorf("a pool of %d workers; it needs at least 1", size)
	}
	if len(cpus) != 0 && len(cpus) < size {
		return nil, fmt.Errorf("%d processors for %d workers; name at least one for each, or none", len(cpus), size)
	}
	p := &Pool{size: size, bound: len(cpus) != 0, patience: patience, yields: size >= runtime.GOMAXPROCS(0),
		done: make(chan struct{}, 1)}
	if impatient {
		p.patience = lessPatience
	}
	started := make(chan error, size)
	for i := 1; i < size; i++ {
		w := &worker{pool: p, number: i, cpu: -1, wake: make(chan struct{}, 1)}
		if len(cpus) != 0 {
			w.cpu = cpus[i]
		}
		p.workers = append(p.workers, w)
		go w.loop(started)
	}
	var first error
	for i := 1; i < size; i++ {
		if err := <-started; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		p.Close()
		return nil, first
	}
	return p, nil
}

// Size is the number of workers.
func (p *Pool) Size() int { return p.size }

// Run does the tasks 0 to n-1 and returns when all are done. If a task panics, Run panics with the same value in the
// calling goroutine after all workers have stopped.
func (p *Pool) Run(n int, t Task) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	helpers := min(p.size-1, n-1)
	if helpers == 0 {
		for i := range n {
			t.Do(0, i)
		}
		return
	}
	p.task, p.n = t, int64(n)
	p.next.Store(0)
	p.busy.Store(int64(helpers + 1))
	for _, w := range p.workers[:helpers] {
		w.start()
	}
	p.work(0)
	missing := 0
	if !p.bound {
		missing = p.withdraw(helpers)
	}
	if p.busy.Add(-int64(1+missing)) > 0 {
		p.wait()
	}
	if !p.foreign {
		p.caller.check(missing > 0)
	}
	p.task = nil
	if f := p.failed.Swap(nil); f != nil {
		panic(f.value)
	}
}

// withdraw cancels the calls of those workers that have not begun, and returns the number of these workers. The
// parameter helpers is the number of workers that Run has called. Run calls withdraw when no tasks are left. Without
// withdraw, Run would wait for a worker whose processor does other work, and such a worker may begin only
// milliseconds later.
//
// Run does not call withdraw if workers are pinned to processors. Pinned workers would miss many short Runs after a
// sleep, or while the caller runs on their processor. A step of one sequence on pinned workers took 0.8 ms, and with
// withdraw 1.3 ms.
func (p *Pool) withdraw(helpers int) (n int) {
	for _, w := range p.workers[:helpers] {
		if w.state.CompareAndSwap(called, waiting) {
			n++
		}
	}
	return n
}

// work does tasks until none is left. If a task panics, work keeps the value for the goroutine that called Run.
func (p *Pool) work(number int) {
	defer p.keepPanic()
	for {
		i := p.next.Add(1) - 1
		if i >= p.n {
			return
		}
		p.task.Do(number, int(i))
	}
}

func (p *Pool) keepPanic() {
	if value := recover(); value != nil {
		p.failed.CompareAndSwap(nil, &failure{value})
		p.next.Store(p.n)
	}
}

func (p *Pool) wait() {
	for begin := time.Now(); p.polls(begin); {
		for range pollsPerCheck {
			if p.busy.Load() == 0 {
				<-p.done
				return
			}
		}
	}
	<-p.done
}

func (p *Pool) polls(begin time.Time) bool { return polls(begin, p.patience, p.yields) }

func polls(begin time.Time, patience time.Duration, yields bool) bool {
	spent := time.Since(begin)
	if spent >= patience {
		return false
	}
	if yields && spent >= lessPatience {
		runtime.Gosched()
	}
	return true
}

// Close ends the workers. No Run may follow.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		w.closed.Store(true)
		w.start()
	}
	p.workers, p.size = nil, 1
}

type worker struct {
	pool   *Pool
	number int
	cpu    int          // the processor it is pinned to, or -1
	state  atomic.Int32 // waiting, asleep, called or working
	wake   chan struct{}
	slept  time.Time // when it fell asleep
	closed atomic.Bool
}

const (
	waiting = iota // polls
	asleep         // must be woken
	called         // must take part in a Run, or end; Run may withdraw this call
	working
)

func (w *worker) start() {
	if w.state.Swap(called) == asleep {
		w.pool.caller.woke(w.slept)
		w.wake <- struct{}{}
	}
}

func (w *worker) loop(started chan<- error) {
	if w.cpu >= 0 {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := pin(w.cpu); err != nil {
			started <- err
			w.await()
			return
		}
	}
	started <- nil
	for {
		w.await()
		if w.closed.Load() {
			return
		}
		w.pool.work(w.number)
		w.state.Store(waiting)
		if w.pool.busy.Add(-1) == 0 {
			w.pool.done <- struct{}{}
		}
	}
}

// await waits until start calls the worker. A call that Run has withdrawn in the meantime does not count.
func (w *worker) await() {
	for {
		for begin := time.Now(); w.pool.polls(begin); {
			for range pollsPerCheck {
				if w.state.Load() == called && w.state.CompareAndSwap(called, working) {
					return
				}
			}
		}
		w.slept = time.Now()
		if w.state.CompareAndSwap(waiting, asleep) {
			<-w.wake
		}
	}
}
