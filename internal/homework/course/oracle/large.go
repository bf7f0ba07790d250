package oracle

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"llmmemory/internal/homework/course/trace"
)

// ErrReserve means that the machine has no address space for a large pool.
var ErrReserve = errors.New("no address space for a large pool")

// initLarge calls init with a large pool. The pool occupies address space but little memory, because only its two ends
// are touched.
func (w *World) initLarge(op trace.Op) Outcome {
	size := int(op.Pool())
	space, err := unix.Mmap(-1, 0, size+2*Slack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return Outcome{Err: fmt.Errorf("%w: %d bytes: %w", ErrReserve, size, err)}
	}
	w.large = append(w.large, space)
	low, high := space[:Slack+trace.End], space[Slack+size-trace.End:]
	Fill(low)
	Fill(high)
	e, err := w.library.Init(unsafe.Pointer(&space[Slack]), uintptr(size))
	if err == nil {
		w.Engines[op.Engine], w.Pools[op.Engine], w.Ends[op.Engine] = e, nil, [2][]byte{low, high}
	}
	return Outcome{Err: err}
}
