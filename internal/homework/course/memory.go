package course

import "unsafe"

// Memory is where engines, sequences and tables come from: C's heap in the
// library, an arena in tests and in the grader. Each chunk is an allocation of
// its own, so that a tester can free one by hand.
//
// A call of the engine uses Memory at most once, whatever it needs: crossing
// into C costs more than the work.
type Memory interface {
	// Get allocates every chunk, in order, or none: false, and every At nil.
	Get(chunks []Chunk) bool
	// Put frees each chunk of the chain that starts at first, where the first
	// word of a chunk points at the next, and then single, which is too small
	// for a link. Either may be nil.
	Put(first, single unsafe.Pointer)
}

// A Chunk is one malloc(Size), or calloc(Size, 1) where Zero is not 0. C reads
// and writes it as struct { size_t size; size_t zero; void *at; }.
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

// A chain collects chunks that are given back in one Put.
type chain struct{ first unsafe.Pointer }

func (c *chain) add(p unsafe.Pointer) {
	*(*unsafe.Pointer)(p) = c.first
	c.first = p
}
