package course

import (
	"math"
	"unsafe"
)

// init follows handout, task 1. It writes nothing to the pool.
func (c *core) init(pool unsafe.Pointer, size uintptr) (*Engine, error) {
	blocks := size / BlockSize
	if pool == nil || blocks == 0 || blocks > math.MaxInt32 {
		return nil, ErrPool
	}
	chunks := c.chunks[:2]
	chunks[0] = Chunk{Size: engineSize}
	chunks[1] = Chunk{Size: blocks * unsafe.Sizeof(int32(0)), Zero: 1}
	if !c.lib.Memory.Get(chunks) {
		return nil, ErrNoMemory
	}
	e := (*Engine)(chunks[0].At)
	e.Pool = pool
	e.Total = int32(blocks)
	e.Free = int32(blocks)
	e.RefCount = (*int32)(chunks[1].At)
	e.Active = Node{Prev: &e.Active, Next: &e.Active}
	return e, nil
}

// destroy follows the handout, task 5. It does not decrement the counts, because it frees the array that they are in.
// It does not free the pool.
func (c *core) destroy(e *Engine) {
	c.cache.removeEngine(e)
	var gone chain
	head := &e.Active
	for n := head.Next; n != head && n != nil; {
		s := sequenceOf(n)
		n = n.Next
		c.cache.invalidate(s)
		gone.addSequence(s)
	}
	counts := e.RefCount
	gone.add(unsafe.Pointer(e))
	c.lib.Memory.Put(gone.first, unsafe.Pointer(counts))
}

func (c *chain) addSequence(s *Sequence) {
	if l1 := s.BlockTable; l1 != nil {
		for _, l2 := range l1 {
			if l2 != nil {
				c.add(unsafe.Pointer(l2))
			}
		}
		c.add(unsafe.Pointer(l1))
	}
	c.add(unsafe.Pointer(s))
}
