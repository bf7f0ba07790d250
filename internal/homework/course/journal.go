package course

import (
	"unsafe"

	"llmmemory/internal/block"
)

// A journal makes a batch of appends that either does all of them or nothing. Each step changes tables and counts as
// append does, in the order of the appends. There are three differences. A step does not write to the pool. It finds
// its block in one scan of the counts, which all steps share. It puts a missing L2 table into scratch memory. After the
// last step, the scratch tables are replaced by allocated ones, and the pool is written. If a step or the allocation
// fails, the journal undoes the steps in reverse order.
type journal struct {
	engine *Engine
	fit    block.FirstFit
	steps  []step
	tables []L2Table // scratch tables in use
	chunks []Chunk   // one for each of them

	memory unsafe.Pointer
	size   uintptr
}

// inPlace marks a step that needed no block.
const inPlace int32 = -2

type step struct {
	home   **L2Table // the L1 entry of the block, if the step needed one
	block  int32     // where the records go
	old    int32     // the old entry (a block to copy, or None), or inPlace
	offset uint32    // position of the record in the block
	table  int32     // if home is set: index of the scratch table that this step added, or -1
}

// keptBytes is the size up to which a journal keeps its memory after a call. It is enough for 37,000 appends.
const keptBytes = 4 << 20

const bytesPerStep = unsafe.Sizeof(step{}) + unsafe.Sizeof(L2Table{}) + unsafe.Sizeof(Chunk{})

// open prepares the journal for a batch of n steps on e. It returns false if there is no memory.
func (j *journal) open(e *Engine, n int) bool {
	if size := uintptr(n) * bytesPerStep; size > j.size {
		j.release()
		size = max(size, keptBytes)
		if j.memory = mapPages(size); j.memory == nil {
			return false
		}
		j.size = size
	}
	j.engine = e
	j.fit = block.FirstFitOver(e.counts())
	p := j.memory
	j.steps = unsafe.Slice((*step)(p), n)
	p = unsafe.Add(p, uintptr(n)*unsafe.Sizeof(step{}))
	j.tables = unsafe.Slice((*L2Table)(p), n)[:0]
	p = unsafe.Add(p, uintptr(n)*unsafe.Sizeof(L2Table{}))
	j.chunks = unsafe.Slice((*Chunk)(p), n)[:0]
	return true
}

func (j *journal) close() {
	if j.size > keptBytes {
		j.release()
	}
}

func (j *journal) release() {
	if j.memory != nil {
		unmap(j.memory, j.size)
		j.memory, j.size = nil, 0
	}
}

// place does what append does for a logical block, but postpones copying the block and allocating a table.
func (j *journal) place(st *step, s *Sequence, logical uint32) error {
	e := j.engine
	home, entry := s.lookup(logical)
	switch block.NeedOf(e.counts(), entry) {
	case block.Nothing:
		*st = step{block: entry, old: inPlace}
		return nil
	case block.Outside:
		return ErrCorrupt
	}
	if e.Free == 0 {
		return ErrNoBlocks
	}
	fresh := j.fit.Next()
	if fresh == block.None {
		return ErrNoBlocks
	}
	*st = step{home: home, block: fresh, table: -1}
	if *home == nil {
		st.table = int32(len(j.tables))
		j.tables = append(j.tables, unmapped) // within the capacity that open has mapped
		*home = &j.tables[st.table]
	}
	st.old = block.Assign(e.counts(), &(*home)[logical%L2Size], fresh)
	e.Free--
	return nil
}

// settle allocates all L2 tables that are still in scratch memory, by one call of memory.Get, and copies the scratch
// tables into them. It returns false if the allocation fails.
func (j *journal) settle(memory Memory) bool {
	if len(j.tables) == 0 {
		return true
	}
	j.chunks = j.chunks[:len(j.tables)]
	for i := range j.chunks {
		j.chunks[i] = Chunk{Size: l2Size}
	}
	if !memory.Get(j.chunks) {
		return false
	}
	for i := range j.steps {
		st := &j.steps[i]
		if st.home == nil || st.table < 0 {
			continue
		}
		l2 := (*L2Table)(j.chunks[st.table].At)
		*l2 = j.tables[st.table]
		*st.home = l2
	}
	return true
}

// copyOld copies the 64 bytes of a step's old block to its new block, if the step has an old block.
func (j *journal) copyOld(st *step) {
	if st.old >= 0 {
		*j.engine.records(st.block) = *j.engine.records(st.old)
	}
}

// revoke undoes one step, which was made for the logical block.
func (j *journal) revoke(st *step, logical uint32) {
	if st.old == inPlace {
		return
	}
	e := j.engine
	block.Revoke(e.counts(), &(*st.home)[logical%L2Size], st.old)
	e.Free++
	if st.table >= 0 {
		*st.home = nil
	}
}

// revokeRun undoes the first steps of appendRun; done is their number. first is the logical block of the first step.
func (j *journal) revokeRun(first, done int) {
	for i := done - 1; i >= 0; i-- {
		j.revoke(&j.steps[i], uint32(first+i))
	}
}
