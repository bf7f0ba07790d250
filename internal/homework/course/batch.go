package course

// appendBatch appends one record to each sequence, in order. A sequence may occur twice, and two sequences may share a
// block, so an earlier append may change which block a later one needs. Therefore the journal first makes all
// positions writable, one after the other. Then appendBatch writes the records.
func (c *core) appendBatch(e *Engine, seqs []*Sequence, data []int32) error {
	j := &c.batch
	if !j.open(e, len(seqs)) {
		return ErrNoMemory
	}
	defer j.close()
	for i, s := range seqs {
		if s == nil {
			return c.abort(seqs, i, ErrArgument)
		}
		if err := writableAt(e, s); err != nil {
			return c.abort(seqs, i, err)
		}
		position, st := uint32(s.KVCount), &j.steps[i]
		if err := j.place(st, s, position/KVPerBlock); err != nil {
			return c.abort(seqs, i, err)
		}
		st.offset = position % KVPerBlock
		s.KVCount++
	}
	if !j.settle(c.lib.Memory) {
		return c.abort(seqs, len(seqs), ErrNoMemory)
	}
	for i := range seqs {
		st := &j.steps[i]
		j.copyOld(st)
		e.records(st.block)[st.offset] = data[i]
	}
	return nil
}

func (c *core) abort(seqs []*Sequence, done int, err error) error {
	for i := done - 1; i >= 0; i-- {
		s := seqs[i]
		s.KVCount--
		c.batch.revoke(&c.batch.steps[i], uint32(s.KVCount)/KVPerBlock)
	}
	return err
}

// appendRun appends all records to one sequence. The journal has one step for each block that gets a record.
func (c *core) appendRun(e *Engine, s *Sequence, data []int32) error {
	if err := writableAt(e, s); err != nil {
		return err
	}
	position := int(s.KVCount)
	if len(data) > maxRecords-position {
		return ErrCapacity
	}
	first := position / KVPerBlock
	steps := (position+len(data)-1)/KVPerBlock - first + 1
	j := &c.batch
	if !j.open(e, steps) {
		return ErrNoMemory
	}
	if err := c.reachAll(s, first, steps); err != nil {
		return err
	}
	offset := position % KVPerBlock
	for i := range steps {
		st := &j.steps[i]
		j.copyOld(st)
		n := copy(e.records(st.block)[offset:], data)
		data = data[n:]
		offset = 0
		s.KVCount += int32(n)
	}
	return nil
}

// reachAll makes the logical blocks first to first+steps-1 writable. If it fails for one of them, it undoes what it
// did for the others and returns an error.
func (c *core) reachAll(s *Sequence, first, steps int) error {
	j := &c.batch
	for i := range steps {
		if err := j.place(&j.steps[i], s, uint32(first+i)); err != nil {
			j.revokeRun(first, i)
			return err
		}
	}
	if !j.settle(c.lib.Memory) {
		j.revokeRun(first, steps)
		return ErrNoMemory
	}
	return nil
}
