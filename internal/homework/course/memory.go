package course

import "unsafe"

// Memory allocates engines, sequences and tables: on C's heap in the library, and in an arena in tests and in the
// grader. Each engine, sequence or table is a separate allocation, so that a tester's C code can free it with free().
//
// A call of the engine uses Memory at most once, because a call from Go into C takes longer than an allocation.
type Memory interface {
	// Get allocates all chunks, in order. If it cannot allocate one, it allocates none, sets each At to nil, and
	// returns false.
	Get(chunks []Chunk) bool
	// Put frees the chunks of a chain and the chunk single. The first word of each chunk in the chain is the address
	// of the next chunk. single is separate, because it may be too small for an address. Both arguments may be nil.
	Put(first, single unsafe.Pointer)
}

// A Chunk is a request for malloc(Size), or for calloc(Size, 1) if Zero is not 0; At is the result. C reads and writes
// it as struct { size_t size; size_t zero; void *at; }.
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
