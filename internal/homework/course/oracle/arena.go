package oracle

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"llmmemory/internal/homework/course"
)

// arena is a course.Memory over one mapping. Put makes no memory available again.
type arena struct {
	space []byte
	used  int
	peak  int // the highest used; World.Adopt can lower used
	live  int // chunks
	fail  int // number of the chunk that fails, from 1; if 0, none fails
}

const arenaSize = 1 << 30

// spaces has zeroed mappings for reuse.
var spaces = make(chan []byte, 4)

// maxKept is the number of used bytes up to which an arena's memory is kept for another arena. More would occupy too
// much memory.
const maxKept = 16 << 20

func newArena() (*arena, error) {
	select {
	case space := <-spaces:
		return &arena{space: space}, nil
	default:
	}
	space, err := unix.Mmap(-1, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("memory for the expected state: %w", err)
	}
	return &arena{space: space}, nil
}

func (a *arena) close() {
	if a.peak <= maxKept {
		clear(a.space[:a.peak])
		select {
		case spaces <- a.space:
			return
		default:
		}
	}
	_ = unix.Munmap(a.space)
}

// Get implements course.Memory.
func (a *arena) Get(chunks []course.Chunk) bool {
	if a.fail > 0 && a.fail <= len(chunks) {
		a.fail = 0
		clear(chunks)
		return false
	}
	a.fail = max(0, a.fail-len(chunks))
	for i := range chunks {
		chunks[i].At = a.take(int(chunks[i].Size))
	}
	a.live += len(chunks)
	return true
}

func (a *arena) take(size int) unsafe.Pointer {
	if a.used+size > len(a.space) {
		panic("the trace needs more memory than the grader has for it")
	}
	p := unsafe.Pointer(&a.space[a.used])
	a.used += (size + 15) &^ 15
	a.peak = max(a.peak, a.used)
	return p
}

// Put implements course.Memory.
func (a *arena) Put(first, single unsafe.Pointer) {
	for ; first != nil; first = *(*unsafe.Pointer)(first) {
		a.live--
	}
	if single != nil {
		a.live--
	}
}
