package course

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"llmmemory/internal/homework/course/trace"
)

// A flatArena is a Memory in one piece, so that a test can restore an earlier state. It overwrites freed memory and
// has guard bytes after each chunk.
type flatArena struct {
	space  []byte
	used   int
	chunks []flatChunk
	gets   int // calls of Get that asked for memory
	fail   int // fail the fail-th chunk from now; 0: never
}

type flatChunk struct {
	offset, size int
	live         bool
}

const (
	flatSize  = 4 << 20
	flatGuard = 16
	freshByte = 0x5a
	freedByte = 0xa5
	guardByte = 0xee
)

func newFlatArena() *flatArena {
	space, err := syscall.Mmap(-1, 0, flatSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	must(err)
	return &flatArena{space: space}
}

func (a *flatArena) close() { _ = syscall.Munmap(a.space) }

func (a *flatArena) Get(chunks []Chunk) bool {
	a.gets++
	if a.fail > 0 && a.fail <= len(chunks) {
		clear(chunks)
		return false
	}
	for i := range chunks {
		offset := (a.used + 15) &^ 15
		end := offset + int(chunks[i].Size)
		fill(a.space[a.used:offset], guardByte)
		if chunks[i].Zero != 0 {
			fill(a.space[offset:end], 0)
		} else {
			fill(a.space[offset:end], freshByte)
		}
		fill(a.space[end:end+flatGuard], guardByte)
		a.used = end + flatGuard
		a.chunks = append(a.chunks, flatChunk{offset, end - offset, true})
		chunks[i].At = unsafe.Pointer(&a.space[offset])
	}
	return true
}

func (a *flatArena) Put(first, single unsafe.Pointer) {
	for first != nil {
		next := *(*unsafe.Pointer)(first)
		a.free(first)
		first = next
	}
	if single != nil {
		a.free(single)
	}
}

func (a *flatArena) find(p unsafe.Pointer) *flatChunk {
	offset := int(uintptr(p) - uintptr(unsafe.Pointer(&a.space[0])))
	for i := range a.chunks {
		if a.chunks[i].offset == offset && a.chunks[i].live {
			return &a.chunks[i]
		}
	}
	return nil
}

func (a *flatArena) free(p unsafe.Pointer) {
	c := a.find(p)
	if c == nil {
		panic("freed what was not allocated")
	}
	c.live = false
	fill(a.space[c.offset:c.offset+c.size], freedByte)
}

func (a *flatArena) live() int {
	n := 0
	for _, c := range a.chunks {
		if c.live {
			n++
		}
	}
	return n
}

func (a *flatArena) checkGuards() error {
	for _, c := range a.chunks {
		if consistsOf(a.space[c.offset+c.size:c.offset+c.size+flatGuard], guardByte) && (c.live || consistsOf(a.space[c.offset:c.offset+c.size], freedByte)) {
			continue
		}
		return fmt.Errorf("a write after or into a chunk of %d bytes (live: %t)", c.size, c.live)
	}
	return nil
}

func fill(dst []byte, value byte) {
	for i := range dst {
		dst[i] = value
	}
}

func consistsOf(data []byte, b byte) bool { return bytes.Count(data, []byte{b}) == len(data) }

type subject struct {
	arena   *flatArena
	library *Library
	engine  *Engine
	pool    []int32
	saved   struct {
		engine *Engine
		space  []byte
		chunks []flatChunk
		pool   []int32
	}
}

func newSubject() *subject {
	arena := newFlatArena()
	return &subject{arena: arena, library: &Library{Memory: arena}}
}

func (s *subject) save() {
	s.saved.engine = s.engine
	s.saved.space = append(s.saved.space[:0], s.arena.space[:s.arena.used]...)
	s.saved.chunks = append(s.saved.chunks[:0], s.arena.chunks...)
	s.saved.pool = append(s.saved.pool[:0], s.pool...)
}

func (s *subject) restore() {
	s.engine = s.saved.engine
	s.arena.used = copy(s.arena.space, s.saved.space)
	s.arena.chunks = append(s.arena.chunks[:0], s.saved.chunks...)
	copy(s.pool, s.saved.pool)
}

func (s *subject) untouched() bool {
	return s.arena.used == len(s.saved.space) && bytes.Equal(s.arena.space[:s.arena.used], s.saved.space) &&
		unsafe.String((*byte)(unsafe.Pointer(&s.pool[0])), 4*len(s.pool)) ==
			unsafe.String((*byte)(unsafe.Pointer(&s.saved.pool[0])), 4*len(s.pool))
}

func (s *subject) reset() {
	s.arena.used, s.arena.chunks, s.engine, s.pool = 0, s.arena.chunks[:0], nil, s.pool[:0]
}

func (s *subject) play(op trace.Op) (made *Sequence, err error) {
	s.arena.fail, s.arena.gets = op.Fail, 0
	defer func() { s.arena.fail = 0 }()
	switch op.Kind {
	case trace.Init:
		s.pool = s.pool[:0]
		for word := range op.A / KVSize {
			s.pool = append(s.pool, magic(int(word)))
		}
		s.engine, err = s.library.Init(unsafe.Pointer(unsafe.SliceData(s.pool)), uintptr(op.A))
		return nil, err
	case trace.Create:
		return s.library.Create(s.engine, op.A, op.B)
	case trace.Fork:
		return s.library.Fork(s.engine, op.A, op.B)
	case trace.Forks:
		for i := range op.C {
			if made, err = s.library.Fork(s.engine, op.A, op.B+i); err != nil {
				return nil, err
			}
		}
		return made, nil
	case trace.Append:
		return nil, s.library.Append(s.engine, op.A, op.B)
	case trace.Free:
		return nil, s.library.Free(s.engine, op.A)
	default:
		err = s.library.Destroy(s.engine)
		s.engine = nil
		return nil, err
	}
}

func (s *subject) differs(want *model) error {
	if live := s.arena.live(); live != want.live {
		return fmt.Errorf("%d live allocations, not %d", live, want.live)
	}
	if !slices.Equal(s.pool, want.pool) {
		return fmt.Errorf("the pool is %d, not %d", s.pool, want.pool)
	}
	if want.engine == nil {
		return s.arena.checkGuards()
	}
	e, w := s.engine, want.engine
	if e.Pool != unsafe.Pointer(&s.pool[0]) || e.Total != w.Total || e.Free != w.Free {
		return fmt.Errorf("the engine has %d of %d blocks free, not %d of %d", e.Free, e.Total, w.Free, w.Total)
	}
	if c := s.arena.find(unsafe.Pointer(e.RefCount)); c == nil || c.size != 4*int(w.Total) {
		return errors.New("ref_count has another size")
	}
	if !slices.Equal(e.counts(), w.counts()) {
		return fmt.Errorf("the counts are %d, not %d", e.counts(), w.counts())
	}
	n := &e.Active
	for i, q := range want.sequences() {
		if n.Next == &e.Active || n.Next.Prev != n {
			return fmt.Errorf("the list is wrong at place %d", i)
		}
		n = n.Next
		if err := sequenceDiffers(sequenceOf(n), q); err != nil {
			return fmt.Errorf("sequence %d: %w", q.ID, err)
		}
	}
	if n.Next != &e.Active || e.Active.Prev != n {
		return errors.New("the list has more sequences")
	}
	return s.arena.checkGuards()
}

func sequenceDiffers(got, want *Sequence) error {
	if got.ID != want.ID || got.KVCount != want.KVCount {
		return fmt.Errorf("id %d, %d records, not %d", got.ID, got.KVCount, want.KVCount)
	}
	for i, table := range want.BlockTable {
		l2 := got.BlockTable[i]
		if (table == nil) != (l2 == nil) {
			return fmt.Errorf("table %d is NULL: %t", i, l2 == nil)
		}
		if table != nil && *l2 != *table {
			return fmt.Errorf("table %d is %v, not %v", i, *l2, *table)
		}
	}
	return nil
}
