package course

import "unsafe"

// Memory allocates engines, sequences and tables: on C's heap in the library, in an
// arena in tests and in the grader. Each chunk is a separate allocation, so that a
// tester can free one by hand.
//
// A call of the engine uses Memory at most once, because a call from Go into C costs
// more than the allocation.
type Memory interface {
	// Get allocates all chunks, in order. If one fails, it allocates none, sets every
	// At to nil, and returns false.
	Get(chunks []Chunk) bool
	// Put frees a chain of chunks and then the chunk single. In the chain, the first word of each chunk is the
	// address of the next. single may be too small to hold an address. Both arguments may be nil.
	Put(first, single unsafe.Pointer)
}

// A Chunk is one malloc(Size), or calloc(Size, 1) if Zero is not 0. C reads and
// writes it as struct { size_t size; size_t zero; void *at; }.
type Chunk struct {
	Size uintptr
	Zero uintptr
	At   unsafe.Pointer
}

const (
	engineSize   = unsafe.Sizeof(Engine{})
	sequenceSize = unsafe.Sizeof(Sequence{})
	l1Size       = unsafe.Sizeof(L1Table{})
	l2Size       = unsafe.Sizeof(L2Table{})
)

// A chain collects chunks for one Put.
type chain struct{ first unsafe.Pointer }

func (c *chain) add(p unsafe.Pointer) {
	*(*unsafe.Pointer)(p) = c.first
	c.first = p
}
