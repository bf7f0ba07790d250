package course

import "llmmemory/internal/block"

// append follows the handout, task 4.
func (c *core) append(e *Engine, id, data int32) error {
	s := c.find(e, id)
	if s == nil {
		return ErrNotFound
	}
	if err := writableAt(e, s); err != nil {
		return err
	}
	position := uint32(s.KVCount)
	logical := position / KVPerBlock
	home, entry := s.lookup(logical)
	switch block.NeedOf(e.counts(), entry) {
	case block.Nothing:
	case block.Outside:
		return ErrCorrupt
	case block.Map, block.Copy:
		var err error
		if entry, err = c.place(e, home, logical); err != nil {
			return err
		}
	}
	e.records(entry)[position%KVPerBlock] = data
	s.KVCount++
	return nil
}

// writableAt returns an error if no further record can be written to s.
func writableAt(e *Engine, s *Sequence) error {
	if uint32(s.KVCount) >= maxRecords {
		if s.KVCount < 0 {
			return ErrCorrupt
		}
		return ErrCapacity
	}
	if s.BlockTable == nil || e.Pool == nil {
		return ErrCorrupt
	}
	return nil
}

// place finds a free block, maps the logical block to it, and returns it. If the logical block was mapped to another
// block before, place copies the records of that block to the free block.
func (c *core) place(e *Engine, home **L2Table, logical uint32) (int32, error) {
	if e.Free == 0 { // handout, task 4, OOM interception
		return 0, ErrNoBlocks
	}
	counts := e.counts()
	fit := block.FirstFitOver(counts)
	fresh := fit.Next()
	if fresh == block.None {
		return 0, ErrNoBlocks
	}
	if *home == nil {
		chunks := c.chunks[:1]
		chunks[0] = Chunk{Size: l2Size}
		if !c.lib.Memory.Get(chunks) {
			return 0, ErrNoMemory
		}
		l2 := (*L2Table)(chunks[0].At)
		*l2 = unmapped
		*home = l2
	}
	if old := block.Assign(counts, &(*home)[logical%L2Size], fresh); old != block.None {
		*e.records(fresh) = *e.records(old)
	}
	e.Free--
	return fresh, nil
}
