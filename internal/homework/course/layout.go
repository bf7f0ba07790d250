package course

import (
	"structs"
	"unsafe"

	"llmmemory/internal/block"
)

// The constants of llm_memory.h.
const (
	BlockSize        = 64                            // bytes in a physical block
	KVSize           = 4                             // bytes in a record
	KVPerBlock       = BlockSize / KVSize            // records in a block
	L1Size           = 16                            // L2 tables in a sequence
	L2Size           = 16                            // block ids in an L2 table
	MaxLogicalBlocks = L1Size * L2Size               // blocks in a sequence
	maxRecords       = MaxLogicalBlocks * KVPerBlock // records in a sequence
)

// Node mirrors struct list_node.
type Node struct {
	_    structs.HostLayout
	Prev *Node
	Next *Node
}

// L1Table is the table that Sequence.BlockTable points to. Each of its entries points to an L2Table or is nil.
type (
	L1Table [L1Size]*L2Table
	L2Table [L2Size]int32
)

// Sequence mirrors Sequence of llm_memory.h.
type Sequence struct {
	_          structs.HostLayout
	ID         int32
	BlockTable *L1Table
	KVCount    int32
	Node       Node
}

// Engine mirrors LLMEngine.
type Engine struct {
	_        structs.HostLayout
	Pool     unsafe.Pointer // *[Total][BlockSize]byte
	Total    int32
	Free     int32
	RefCount *int32 // *[Total]int32
	Active   Node
}

func sequenceOf(n *Node) *Sequence {
	if n == nil {
		return nil
	}
	return (*Sequence)(unsafe.Add(unsafe.Pointer(n), -int(unsafe.Offsetof(Sequence{}.Node))))
}

// idOf is sequenceOf(n).ID for a node that is not nil.
func idOf(n *Node) int32 {
	return *(*int32)(unsafe.Add(unsafe.Pointer(n), int(unsafe.Offsetof(Sequence{}.ID))-int(unsafe.Offsetof(Sequence{}.Node))))
}

// counts returns ref_count as a slice, or nil if ref_count is NULL or the engine has no blocks.
func (e *Engine) counts() []int32 {
	if e.RefCount == nil || e.Total <= 0 {
		return nil
	}
	return unsafe.Slice(e.RefCount, int(e.Total))
}

// records returns the records of a block, which must be in the pool. The offset needs 64 bits: block 2^25 begins 2
// GiB after the start of the pool.
func (e *Engine) records(id int32) *[KVPerBlock]int32 {
	return (*[KVPerBlock]int32)(unsafe.Add(e.Pool, int(id)*BlockSize))
}

// lookup returns the block at a logical block of s, or None if no block is mapped there. home is the address of the L1
// entry that points to the logical block's L2 table. logical must be below MaxLogicalBlocks.
func (s *Sequence) lookup(logical uint32) (home **L2Table, entry int32) {
	home = &s.BlockTable[logical/L2Size%L1Size]
	if *home == nil {
		return home, block.None
	}
	return home, (*home)[logical%L2Size]
}
