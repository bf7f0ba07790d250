package course

import (
	"runtime/debug"
	"syscall"
	"unsafe"
)

// A guardedArena is a Memory in which a freed chunk can never be touched again,
// nor the byte after a chunk: every chunk ends at the end of a page of its
// own, the page after it is not accessible, and freeing takes the access away.
// A violation is a Go panic (debug.SetPanicOnFault).
type guardedArena struct {
	space []byte
	used  int
	live  map[unsafe.Pointer]bool
	gets  int // chunks handed out in all
	calls int // Get and Put calls
	fail  int // fail the fail-th chunk from now; 0: never
}

const (
	pageSize   = 4096
	arenaPages = 1 << 15
)

func newGuardedArena() *guardedArena {
	debug.SetPanicOnFault(true)
	space, err := syscall.Mmap(-1, 0, arenaPages*pageSize, syscall.PROT_NONE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		panic(err)
	}
	return &guardedArena{space: space, live: map[unsafe.Pointer]bool{}}
}

func (a *guardedArena) close() { _ = syscall.Munmap(a.space) }

func (a *guardedArena) Get(chunks []Chunk) bool {
	a.calls++
	for i := range chunks {
		if a.fail > 0 {
			if a.fail--; a.fail == 0 {
				for ; i > 0; i-- {
					a.free(chunks[i-1].At)
				}
				clear(chunks)
				return false
			}
		}
		chunks[i].At = a.alloc(int(chunks[i].Size), chunks[i].Zero != 0)
	}
	return true
}

func (a *guardedArena) Put(first, single unsafe.Pointer) {
	a.calls++
	for first != nil {
		next := *(*unsafe.Pointer)(first)
		a.free(first)
		first = next
	}
	if single != nil {
		a.free(single)
	}
}

func (a *guardedArena) alloc(size int, zero bool) unsafe.Pointer {
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
		for i := range chunk {
			chunk[i] = 0xa5
		}
	}
	p := unsafe.Pointer(&chunk[0])
	a.live[p] = true
	a.gets++
	return p
}

func (a *guardedArena) free(p unsafe.Pointer) {
	if !a.live[p] {
		panic("freed what was not allocated")
	}
	delete(a.live, p)
	// A chunk of many pages (ref_count) keeps the pages after its first.
	page := (uintptr(p) - uintptr(unsafe.Pointer(&a.space[0]))) / pageSize * pageSize
	must(syscall.Mprotect(a.space[page:page+pageSize], syscall.PROT_NONE))
}

// A reusingArena hands the chunk that was freed last out first, as malloc does,
// so that a new sequence lies where an old one was.
type reusingArena struct {
	guardedArena
	free map[uintptr][]unsafe.Pointer
	size map[unsafe.Pointer]uintptr
}

func newReusingArena() *reusingArena {
	return &reusingArena{guardedArena: *newGuardedArena(),
		free: map[uintptr][]unsafe.Pointer{}, size: map[unsafe.Pointer]uintptr{}}
}

func (a *reusingArena) Get(chunks []Chunk) bool {
	a.calls++
	for i := range chunks {
		if a.fail > 0 {
			if a.fail--; a.fail == 0 {
				for ; i > 0; i-- {
					a.put(chunks[i-1].At)
				}
				clear(chunks)
				return false
			}
		}
		chunks[i].At = a.get(chunks[i].Size, chunks[i].Zero != 0)
	}
	return true
}

func (a *reusingArena) get(size uintptr, zero bool) unsafe.Pointer {
	if list := a.free[size]; len(list) > 0 && !zero {
		p := list[len(list)-1]
		a.free[size] = list[:len(list)-1]
		a.live[p] = true
		a.gets++
		return p
	}
	p := a.alloc(int(size), zero)
	a.size[p] = size
	return p
}

func (a *reusingArena) put(p unsafe.Pointer) {
	if !a.live[p] {
		panic("freed what was not allocated")
	}
	delete(a.live, p)
	a.free[a.size[p]] = append(a.free[a.size[p]], p)
	for i, bytes := 0, unsafe.Slice((*byte)(p), a.size[p]); i < len(bytes); i++ {
		bytes[i] = 0xa5
	}
}

func (a *reusingArena) Put(first, single unsafe.Pointer) {
	a.calls++
	for first != nil {
		next := *(*unsafe.Pointer)(first)
		a.put(first)
		first = next
	}
	if single != nil {
		a.put(single)
	}
}

// testArena is what the tests want of an arena.
type testArena interface {
	Memory
	state() *guardedArena
	one(size uintptr) unsafe.Pointer // malloc, as a tester calls it
	drop(p unsafe.Pointer)           // free, as a tester calls it
}

func (a *guardedArena) state() *guardedArena            { return a }
func (a *guardedArena) one(size uintptr) unsafe.Pointer { return a.alloc(int(size), false) }
func (a *guardedArena) drop(p unsafe.Pointer)           { a.free(p) }
func (a *reusingArena) one(size uintptr) unsafe.Pointer { return a.get(size, false) }
func (a *reusingArena) drop(p unsafe.Pointer)           { a.put(p) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
