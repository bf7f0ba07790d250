package course

// The yardstick is the handout's algorithm, written sentence by sentence and without optimisation. It works on the
// same structs, on the Go heap. Where the memory is inconsistent and a literal program would crash, it refuses the
// call, as the library does.

type yardstick struct {
	live int // allocations that were not freed
	fail int // fail the fail-th allocation of the next call; 0: never
}

// allocate counts n allocations. If the test wants one of them to fail, allocate counts none and returns false.
func (y *yardstick) allocate(n int) bool {
	fails := y.fail > 0 && y.fail <= n
	y.fail = max(0, y.fail-n)
	if !fails {
		y.live += n
	}
	return !fails
}

func (y *yardstick) find(e *Engine, id int32) *Sequence {
	for n := e.Active.Next; n != &e.Active && n != nil; n = n.Next {
		if sequenceOf(n).ID == id {
			return sequenceOf(n)
		}
	}
	return nil
}

func (y *yardstick) inPool(e *Engine, id int32) bool {
	return id >= 0 && id < e.Total && e.RefCount != nil
}

// firstFit follows the handout: "use a for loop from 0 to total_local_blocks - 1 and pick the very first block where
// ref_count == 0".
func (y *yardstick) firstFit(e *Engine) int32 {
	for id := int32(0); y.inPool(e, id); id++ {
		if *e.count(id) == 0 {
			return id
		}
	}
	return -1
}

func (y *yardstick) zeros(e *Engine) int {
	zeros := 0
	for id := int32(0); y.inPool(e, id); id++ {
		if *e.count(id) == 0 {
			zeros++
		}
	}
	return zeros
}

func (y *yardstick) create(e *Engine, id, length int32) *Sequence {
	if e == nil || length <= 0 || y.find(e, id) != nil {
		return nil
	}
	required := (int64(length) + 15) / 16
	if required > 256 || required > int64(e.Free) {
		return nil
	}
	tables := int((required + 15) / 16)
	if e.Active.Prev == nil || y.zeros(e) < int(required) || !y.allocate(2+tables) {
		return nil
	}
	s := &Sequence{ID: id, BlockTable: &L1Table{}}
	for logical := range required {
		if s.BlockTable[logical/16] == nil {
			s.BlockTable[logical/16] = newL2()
		}
		free := y.firstFit(e)
		s.BlockTable[logical/16][logical%16] = free
		*e.count(free) = 1
		e.Free--
	}
	s.KVCount = length
	y.link(e, s)
	return s
}

func newL2() *L2Table {
	l2 := &L2Table{}
	for i := range l2 {
		l2[i] = -1
	}
	return l2
}

func (y *yardstick) link(e *Engine, s *Sequence) {
	s.Node.Prev = e.Active.Prev
	s.Node.Next = &e.Active
	e.Active.Prev.Next = &s.Node
	e.Active.Prev = &s.Node
}

func (y *yardstick) free(e *Engine, id int32) *Sequence {
	if e == nil {
		return nil
	}
	s := y.find(e, id)
	if s == nil || s.Node.Prev == nil || s.Node.Next == nil {
		return nil
	}
	s.Node.Prev.Next = s.Node.Next
	s.Node.Next.Prev = s.Node.Prev
	y.live--
	if s.BlockTable == nil {
		return s
	}
	y.live--
	for i := range s.BlockTable {
		if s.BlockTable[i] == nil {
			continue
		}
		for _, entry := range s.BlockTable[i] {
			if entry != -1 && y.inPool(e, entry) {
				*e.count(entry)--
				if *e.count(entry) == 0 {
					e.Free++
				}
			}
		}
		y.live--
	}
	return s
}

func (y *yardstick) fork(e *Engine, parentID, id int32) *Sequence {
	if e == nil {
		return nil
	}
	parent := y.find(e, parentID)
	if parent == nil || y.find(e, id) != nil || parent.BlockTable == nil || e.Active.Prev == nil {
		return nil
	}
	tables := 0
	for _, l2 := range parent.BlockTable {
		if l2 == nil {
			continue
		}
		tables++
		for _, entry := range l2 {
			if entry != -1 && !y.inPool(e, entry) {
				return nil
			}
		}
	}
	if !y.allocate(2 + tables) {
		return nil
	}
	child := &Sequence{ID: id, KVCount: parent.KVCount, BlockTable: &L1Table{}}
	for i, l2 := range parent.BlockTable {
		if l2 == nil {
			continue
		}
		child.BlockTable[i] = newL2()
		for k, entry := range l2 {
			if entry != -1 {
				child.BlockTable[i][k] = entry
				*e.count(entry)++
			}
		}
	}
	y.link(e, child)
	return child
}

func (y *yardstick) append(e *Engine, id, data int32) bool {
	if e == nil {
		return false
	}
	s := y.find(e, id)
	return s != nil && y.appendTo(e, s, data)
}

func (y *yardstick) appendTo(e *Engine, s *Sequence, data int32) bool {
	logical, offset := s.KVCount/16, s.KVCount%16
	if s.KVCount < 0 || logical >= 256 || s.BlockTable == nil || e.Pool == nil {
		return false
	}
	l2 := s.BlockTable[logical/16]
	entry := int32(-1)
	if l2 != nil {
		entry = l2[logical%16]
	}
	if entry != -1 && !y.inPool(e, entry) {
		return false
	}
	if entry == -1 || *e.count(entry) > 1 {
		if e.Free == 0 {
			return false
		}
		free := y.firstFit(e)
		if free == -1 || l2 == nil && !y.allocate(1) {
			return false
		}
		if l2 == nil {
			l2 = newL2()
			s.BlockTable[logical/16] = l2
		}
		if entry != -1 {
			*e.records(free) = *e.records(entry)
			*e.count(entry)--
		}
		*e.count(free) = 1
		l2[logical%16] = free
		e.Free--
	}
	e.records(l2[logical%16])[offset] = data
	s.KVCount++
	return true
}

func (y *yardstick) destroy(e *Engine) {
	for n := e.Active.Next; n != &e.Active && n != nil; n = n.Next {
		y.live -= allocations(sequenceOf(n))
	}
	y.live -= 2
}

func allocations(s *Sequence) int {
	n := 1
	if s.BlockTable != nil {
		n++
		for _, l2 := range s.BlockTable {
			if l2 != nil {
				n++
			}
		}
	}
	return n
}
