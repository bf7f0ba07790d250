//go:build mpi

package mpi

// #cgo CFLAGS: -O2
// #include "world.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
	"unsafe"

	"llmmemory/internal/serving/model"
)

// A World is all processes that mpirun or srun has started together. It implements model.Group. One goroutine may
// use it at a time.
type World struct {
	rank, size int
	host       string
	limit      time.Duration
	values     []float32
	message    []byte
}

// ErrMPI is wrapped when processes cannot be connected.
var ErrMPI = errors.New("MPI")

// A Lost is the error when processes have not answered within the time limit.
type Lost struct {
	Ranks []int
	After time.Duration
	first bool // this process has the lowest rank of the remaining ones
}

func (l *Lost) Error() string {
	if len(l.Ranks) == 0 {
		return fmt.Sprintf("a step took longer than %v, though all ranks are there", l.After)
	}
	ranks, are := "rank", "is"
	if len(l.Ranks) > 1 {
		ranks, are = "ranks", "are"
	}
	return fmt.Sprintf("%s %s %s lost: no answer for %v", ranks, strings.Trim(fmt.Sprint(l.Ranks), "[]"), are, l.After)
}

// Start connects the processes that were started together. limit is the time limit of every later wait except that of
// End.
func Start(limit time.Duration) (*World, error) {
	var rank, size C.int
	if C.world_start(&rank, &size) != C.DONE {
		return nil, fmt.Errorf("%w: the library does not start, or has no MPI_THREAD_SERIALIZED", ErrMPI)
	}
	var host [256]C.char
	C.world_host(&host[0])
	return &World{rank: int(rank), size: int(size), host: C.GoString(&host[0]), limit: limit}, nil
}

// Rank returns the number of this process, from 0.
func (w *World) Rank() int { return w.rank }

// Size returns the number of processes.
func (w *World) Size() int { return w.size }

// Host returns the name of this process's machine.
func (w *World) Host() string { return w.host }

// SetLimit sets how long another process may take to answer.
func (w *World) SetLimit(limit time.Duration) { w.limit = limit }

// End ends MPI. All processes must call it.
func (w *World) End() { C.world_end() }

// Abort prints cause and ends all processes with status 1. If processes are lost, each remaining process calls Abort.
// The remaining process with the lowest rank ends all processes at once. Each other remaining process first sleeps for
// two seconds, during which it is normally ended.
//
// If cause is a *Lost without Ranks, all processes still answer, but a step took too long. Perhaps this process was
// late, and another process reports it as lost. Abort therefore also sleeps first.
func (w *World) Abort(cause error) {
	var lost *Lost
	if errors.As(cause, &lost) {
		cause = lost
		if !lost.first || len(lost.Ranks) == 0 {
			time.Sleep(2 * time.Second) // let the reporting process end all: this process may have been late itself
		}
	}
	fmt.Fprintf(os.Stderr, "llmserve: rank %d on %s: %v\n", w.rank, w.host, cause)
	C.world_abort(1)
	os.Exit(1)
}

// AllReduce implements model.Group.
func (w *World) AllReduce(_ int, x []float32) error {
	if len(x) == 0 {
		return nil
	}
	received := w.buffer(len(x))
	return w.check(C.world_reduce((*C.float)(&x[0]), (*C.float)(&received[0]), C.int(len(x)), w.seconds()))
}

// Gather implements model.Group.
func (w *World) Gather(_ int, dst []float32, stride int, part []float32, columns []model.Columns) error {
	bytes := func(v []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4) }
	local := columns[w.rank]
	if w.rank != 0 {
		return w.Send(0, bytes(part))
	}
	local.CopyFrom(part, dst, stride)
	rows := len(part) / (local.End - local.Start)
	for sender := 1; sender < w.size; sender++ {
		c := columns[sender]
		received := w.buffer(rows * (c.End - c.Start))
		if err := w.receive(sender, bytes(received)); err != nil {
			return err
		}
		c.CopyFrom(received, dst, stride)
	}
	return nil
}

// Broadcast sends a message to all other processes, each of which must call Receive.
func (w *World) Broadcast(message []byte) error {
	for receiver := range w.size {
		if receiver != w.rank {
			if err := w.Send(receiver, message); err != nil {
				return err
			}
		}
	}
	return nil
}

// Receive returns the next message from the given process. The message is valid until the next call.
func (w *World) Receive(sender int) ([]byte, error) {
	var n C.int
	if err := w.check(C.world_next(C.int(sender), &n, w.seconds())); err != nil {
		return nil, err
	}
	if cap(w.message) < int(n) {
		w.message = make([]byte, n)
	}
	w.message = w.message[:n]
	return w.message, w.receive(sender, w.message)
}

// Exchange returns the arguments of all processes, by rank.
func (w *World) Exchange(local []byte) (all [][]byte, err error) {
	for sender := range w.size {
		if sender == w.rank {
			err = w.Broadcast(local)
			all = append(all, local)
		} else {
			var message []byte
			message, err = w.Receive(sender)
			all = append(all, append([]byte(nil), message...))
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Send sends a message to another process.
func (w *World) Send(receiver int, data []byte) error {
	if len(data) > math.MaxInt32 {
		return fmt.Errorf("%w: a message of %d bytes", ErrMPI, len(data))
	}
	return w.check(C.world_send(unsafe.Pointer(unsafe.SliceData(data)), C.int(len(data)), C.int(receiver), w.seconds()))
}

func (w *World) receive(sender int, data []byte) error {
	return w.check(C.world_receive(unsafe.Pointer(unsafe.SliceData(data)), C.int(len(data)), C.int(sender), w.seconds()))
}

func (w *World) seconds() C.double { return C.double(w.limit.Seconds()) }

func (w *World) buffer(n int) []float32 {
	if cap(w.values) < n {
		w.values = make([]float32, n)
	}
	return w.values[:n]
}

// check returns nil if a wait ended with DONE. Otherwise it finds out which processes still answer, and returns a
// Lost with the others.
func (w *World) check(result C.int) error {
	if result == C.DONE {
		return nil
	}
	lost := &Lost{After: w.limit, first: true}
	silent := C.world_silent(C.double(min(w.limit, 2*time.Second).Seconds()))
	for rank := range w.size {
		switch {
		case silent&(1<<rank) != 0:
			lost.Ranks = append(lost.Ranks, rank)
		case rank < w.rank:
			lost.first = false
		}
	}
	return lost
}
