package course

import (
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"
)

// A testArena is a Memory. An access to memory that was not allocated is a Go panic (debug.SetPanicOnFault). Each chunk,
// rounded up to 8 bytes, ends at the end of a page, and the page after it is not accessible. When a chunk is freed, its
// first page becomes inaccessible.
//
// If reuse is set, a freed chunk stays accessible, and the next allocation of the same size gets the chunk that was freed last, as malloc often does. A new
// sequence then has the address of an old one.
type testArena struct {
	sync.Mutex // for Get and Put, which engines with different locks call at the same time
	reuse      bool
	space      []byte
	used       int // pages
	live       map[unsafe.Pointer]uintptr
	freed      map[uintptr][]unsafe.Pointer // by size, to be reused
	calls      int                          // of Get and Put
	fail       int                          // the fail-th chunk from now fails; 0: none
}

const (
	pageSize   = 4096
	arenaPages = 1 << 15
)

func newArena(reuse bool) *testArena {
	debug.SetPanicOnFault(true)
	space, err := syscall.Mmap(-1, 0, arenaPages*pageSize, syscall.PROT_NONE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	must(err)
	return &testArena{reuse: reuse, space: space, live: map[unsafe.Pointer]uintptr{}, freed: map[uintptr][]unsafe.Pointer{}}
}

func (a *testArena) close() { _ = syscall.Munmap(a.space) }

func (a *testArena) Get(chunks []Chunk) bool {
	a.Lock()
	defer a.Unlock()
	a.calls++
	for i := range chunks {
		if a.fail > 0 {
			if a.fail--; a.fail == 0 {
				for _, c := range chunks[:i] {
					a.drop(c.At)
				}
				clear(chunks)
				return false
			}
		}
		chunks[i].At = a.get(chunks[i].Size, chunks[i].Zero != 0)
	}
	return true
}

func (a *testArena) Put(first, single unsafe.Pointer) {
	a.Lock()
	defer a.Unlock()
	a.calls++
	for first != nil {
		next := *(*unsafe.Pointer)(first)
		a.drop(first)
		first = next
	}
	if single != nil {
		a.drop(single)
	}
}

func (a *testArena) one(size uintptr) unsafe.Pointer { return a.get(size, false) }

func (a *testArena) get(size uintptr, zero bool) (p unsafe.Pointer) {
	if list := a.freed[size]; len(list) > 0 && !zero {
		p, a.freed[size] = list[len(list)-1], list[:len(list)-1]
	} else {
		p = a.fresh(int(size), zero)
	}
	a.live[p] = size
	return p
}

func (a *testArena) fresh(size int, zero bool) unsafe.Pointer {
	if size%4 != 0 {
		panic("no struct or array of llm_memory.h has this size")
	}
	pages := (size+pageSize-1)/pageSize + 1
	if (a.used+pages)*pageSize > len(a.space) {
		panic("the test's arena is too small")
	}
	area := a.space[a.used*pageSize : (a.used+pages-1)*pageSize]
	a.used += pages
	must(syscall.Mprotect(area, syscall.PROT_READ|syscall.PROT_WRITE))
	chunk := area[len(area)-(size+7)&^7:]
	if !zero {
		fill(chunk, freedByte)
	}
	return unsafe.Pointer(&chunk[0])
}

func (a *testArena) drop(p unsafe.Pointer) {
	size, live := a.live[p]
	if !live {
		panic("freed what was not allocated")
	}
	delete(a.live, p)
	if a.reuse {
		a.freed[size] = append(a.freed[size], p)
		fill(unsafe.Slice((*byte)(p), size), freedByte)
		return
	}
	// Only the first page of a large chunk (ref_count) becomes inaccessible.
	page := (uintptr(p) - uintptr(unsafe.Pointer(&a.space[0]))) / pageSize * pageSize
	must(syscall.Mprotect(a.space[page:page+pageSize], syscall.PROT_NONE))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
