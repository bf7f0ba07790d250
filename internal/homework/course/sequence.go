package course

import (
	"unsafe"

	"llmmemory/internal/block"
)

// unmapped is an L2 table without blocks.
var unmapped = L2Table{
	block.None, block.None, block.None, block.None, block.None, block.None, block.None, block.None,
	block.None, block.None, block.None, block.None, block.None, block.None, block.None, block.None,
}

// create follows handout, task 2: it allocates only after all checks.
func (c *core) create(e *Engine, id, length int32) (*Sequence, error) {
	if length <= 0 {
		return nil, ErrLength
	}
	last, ok := c.absent(e, id)
	if !ok {
		return nil, ErrExists
	}
	need := (int(length) + KVPerBlock - 1) / KVPerBlock // 64 bits: INT_MAX does not overflow
	if need > MaxLogicalBlocks {
		return nil, ErrCapacity
	}
	if need > int(e.Free) {
		return nil, ErrNoBlocks
	}
	if e.Active.Prev == nil {
		return nil, ErrCorrupt
	}
	counts := e.counts()
	fit := block.FirstFitOver(counts)
	fresh := c.fresh[:need]
	if fit.Fill(fresh) < need {
		return nil, ErrNoBlocks
	}
	s, ok := c.allocate((need + L2Size - 1) / L2Size)
	if !ok {
		return nil, ErrNoMemory
	}
	var l2 *L2Table
	for i, free := range fresh {
		if i%L2Size == 0 {
			l2 = (*L2Table)(c.chunks[2+i/L2Size].At)
			*l2 = unmapped
			s.BlockTable[i/L2Size] = l2
		}
		block.Assign(counts, &l2[i%L2Size], free)
	}
	e.Free -= int32(need)
	s.ID = id
	s.KVCount = length
	c.link(e, s, last)
	return s, nil
}

// fork follows the handout, task 3. It increments the counts before it allocates the tables, so that it checks and
// shares the blocks in one pass over the parent's tables. If the allocation fails, it decrements the counts again.
func (c *core) fork(e *Engine, parentID, id int32) (*Sequence, error) {
	parent := c.find(e, parentID)
	if parent == nil {
		return nil, ErrNotFound
	}
	last, ok := c.absent(e, id)
	if !ok {
		return nil, ErrExists
	}
	if parent.BlockTable == nil || e.Active.Prev == nil {
		return nil, ErrCorrupt
	}
	counts := e.counts()
	tables := 0
	for i, l2 := range parent.BlockTable {
		if l2 == nil {
			continue
		}
		if !block.Share(counts, l2[:]) {
			unshare(counts, parent.BlockTable[:i])
			return nil, ErrCorrupt
		}
		tables++
	}
	s, ok := c.allocate(tables)
	if !ok {
		unshare(counts, parent.BlockTable[:])
		return nil, ErrNoMemory
	}
	next := 2
	for i, l2 := range parent.BlockTable {
		if l2 == nil {
			continue
		}
		child := (*L2Table)(c.chunks[next].At)
		next++
		*child = *l2
		s.BlockTable[i] = child
	}
	s.ID = id
	s.KVCount = parent.KVCount
	c.link(e, s, last)
	return s, nil
}

func unshare(counts []int32, tables []*L2Table) {
	for _, l2 := range tables {
		if l2 != nil {
			block.Unshare(counts, l2[:])
		}
	}
}

// free follows the handout, task 2. It visits all 16 slots of the L1 table and of each L2 table, even after empty
// ones.
func (c *core) free(e *Engine, id int32) error {
	s := c.find(e, id)
	if s == nil {
		return ErrNotFound
	}
	if s.Node.Prev == nil || s.Node.Next == nil {
		return ErrCorrupt
	}
	c.cache.unlinking(e, s)
	unlink(&s.Node)
	if s.BlockTable != nil {
		counts := e.counts()
		freed := int32(0)
		for _, l2 := range s.BlockTable {
			if l2 == nil {
				continue
			}
			for _, entry := range l2 {
				if block.Release(counts, entry) {
					freed++
				}
			}
		}
		e.Free += freed
	}
	var gone chain
	gone.addSequence(s)
	c.lib.Memory.Put(gone.first, nil)
	return nil
}

// allocate allocates a sequence, its L1 table, and L2 tables; the parameter tables is their number. It fills the L1
// table with NULL. The addresses of the L2 tables are in c.chunks[2:] afterwards.
func (c *core) allocate(tables int) (*Sequence, bool) {
	chunks := c.chunks[:2+tables]
	chunks[0] = Chunk{Size: sequenceSize}
	chunks[1] = Chunk{Size: l1Size}
	for i := range tables {
		chunks[2+i] = Chunk{Size: l2Size}
	}
	if !c.lib.Memory.Get(chunks) {
		return nil, false
	}
	s := (*Sequence)(chunks[0].At)
	s.BlockTable = (*L1Table)(chunks[1].At)
	clear(unsafe.Slice((*uintptr)(chunks[1].At), L1Size))
	return s, true
}

// link appends s to the list (handout, task 2: "append the sequence to the tail of active_seqs") and adds a cache
// entry. last is the node that absent returned.
func (c *core) link(e *Engine, s *Sequence, last *Node) {
	linkTail(&e.Active, &s.Node)
	if last == s.Node.Prev { // last can be nil, or differ if the backward links are broken
		c.cache.insertLast(e, s, last)
	}
}

// linkTail adds n at the end of the list. The list is circular, so n becomes the node before head.
func linkTail(head, n *Node) {
	tail := head.Prev
	n.Prev, n.Next = tail, head
	tail.Next = n
	head.Prev = n
}

func unlink(n *Node) {
	n.Prev.Next = n.Next
	n.Next.Prev = n.Prev
}
