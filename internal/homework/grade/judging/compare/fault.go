package compare

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/runner"
)

// fault handles a call that accessed a bad address and so ended the process. It adds a description of this access to
// the difference, such as the use of a NULL table, if the address and the memory show what it was.
func (p *player) fault(d *Difference, op trace.Op, m *moment) {
	f, found := p.subject.Fault()
	if !found || d.Hangs || p.trouble != nil {
		return
	}
	fresh := p.soFar(f.Events)
	access, fact := p.describeAccess(op, m, f.Address, d, fresh)
	if access == "" {
		return
	}
	d.Actual = fmt.Sprintf("it %s (%s)", access, d.Actual)
	if fact != "" {
		d.Facts = append(slices.Clip(d.Facts), fact)
	}
}

// soFar updates the live allocations by the events of a call that ended the process. It returns the addresses that the
// call allocated and did not free.
func (p *player) soFar(events []runner.Event) (fresh []uint64) {
	for i := range events[:min(len(events), maxAllocations)] {
		switch e := events[i]; e.What {
		case runner.Release:
			delete(p.live, e.At)
		case runner.Malloc, runner.Calloc, runner.Realloc:
			p.add(e.At, e.Size)
			fresh = append(fresh, e.At)
		}
	}
	return slices.DeleteFunc(fresh, func(address uint64) bool { _, live := p.live[address]; return !live })
}

// describeAccess describes what the call did when it used a bad address. The description begins with a verb, and is ""
// if nothing is known. fresh has the allocations that the call made and did not free.
func (p *player) describeAccess(op trace.Op, m *moment, address uint64, d *Difference, fresh []uint64) (string, Fact) {
	const near = 4096
	b, _ := fillOf(address)
	switch {
	case b == unwrittenByte:
		pointer, fact := p.neverWritten(op, fresh)
		return "uses " + pointer + ", which was " + Unwritten, fact
	case b == freedByte:
		return "uses a pointer that it reads from " + Freed, UsesFreed
	case address < near && op.Engine == trace.None:
		return "uses the engine, which is NULL", ""
	case address < near && op.Fail > 0:
		return "uses what malloc has returned, which is NULL", ""
	case address < near:
		return p.null(op, m, address, d, fresh)
	case -address < near:
		return "uses a list node that is NULL", ""
	case op.Engine == trace.None || p.engines[op.Engine] == 0:
		return "", ""
	}
	return p.index(op, m, address)
}

// null describes the use of a NULL pointer. offset is the address that was used. As the pointer is NULL, offset is also
// the distance from the pointer. The description names an entry of block_table only if this entry is NULL and a call
// that does not check it would use memory at the same offset.
//
// If the submission's llm_init has made no engine, the description never names an entry: the pointer may also be a
// global variable that only llm_init sets.
func (p *player) null(op trace.Op, m *moment, offset uint64, d *Difference, fresh []uint64) (string, Fact) {
	if d.Has(UnknownID) && offset < sequenceSize {
		return "uses a sequence that it has not found: NULL", ""
	}
	slot, name := -1, SequenceName(op.A)
	switch {
	case !p.inited:
	case op.Kind == trace.Create:
		if l1 := p.newL1(fresh); l1 != nil && offset == 0 {
			slot, name = slices.Index(l1[:], 0), "the new sequence"
		}
	case op.Kind == trace.Append && m.tables != [course.L1Size]*course.L2Table{}:
		if index := m.logical / course.L2Size; index < course.L1Size && m.tables[index] == nil && offset == uint64(m.logical%course.L2Size)*4 {
			slot = int(index)
		}
	case (op.Kind == trace.Free || op.Kind == trace.Fork) && !d.Has(UnknownID):
		if first := slices.Index(m.tables[:], nil); p.passed(op, m, first, fresh) && (offset == 0 || offset == l2Size-4) {
			slot = first
		}
	}
	if slot >= 0 {
		return fmt.Sprintf("uses block_table[%d] of %s, which is NULL", slot, name), NullTable
	}
	return "uses a pointer that is NULL", NullPointer
}

// newL1 returns the L1 table that the call allocated, or nil.
func (p *player) newL1(fresh []uint64) *l1Table {
	if i := slices.IndexFunc(fresh, func(address uint64) bool { return p.live[address] == l1Size }); i >= 0 {
		return view[l1Table](p, fresh[i])
	}
	return nil
}

// passed reports whether free_sequence or fork_sequence had probably processed the L2 tables in the slots below slot
// when the process died. For free_sequence it only checks that a reference count has changed. For fork_sequence it only
// checks that the child has a table in slot-1.
func (p *player) passed(op trace.Op, m *moment, slot int, fresh []uint64) bool {
	if slot <= 0 {
		return slot == 0
	}
	if op.Kind == trace.Free {
		_, counts := p.countsOf(p.expected.Engines[op.Engine], op.Engine)
		return counts != nil && !slices.Equal(counts, m.counts)
	}
	l1 := p.newL1(fresh)
	return l1 != nil && l1[slot-1] != 0
}

// neverWritten names a pointer that the submission has never written. It searches the allocations of the call first,
// and then the engine and its sequences.
func (p *player) neverWritten(op trace.Op, fresh []uint64) (string, Fact) {
	for _, chunk := range fresh {
		if slot := slices.Index(view[l1Table](p, chunk)[:], fill[uint64](unwrittenByte)); p.live[chunk] == l1Size && slot >= 0 {
			return fmt.Sprintf("block_table[%d] of the new sequence", slot), UnwrittenTable
		}
	}
	for _, chunk := range fresh {
		if field := p.unwrittenField(op.Kind == trace.Init, chunk); field != "" {
			return field, ""
		}
	}
	if op.Engine == trace.None || p.engines[op.Engine] == 0 {
		return "a pointer", ""
	}
	if field := p.unwrittenField(true, p.engines[op.Engine]); field != "" {
		return field, ""
	}
	for address, s := range p.sequences(op.Engine) {
		field := p.unwrittenField(false, address)
		if slot := slices.Index(view[l1Table](p, s.blockTable)[:], fill[uint64](unwrittenByte)); field == "" && slot >= 0 {
			field = fmt.Sprintf("block_table[%d]", slot)
		}
		if field != "" {
			return fmt.Sprintf("%s of %s", field, SequenceName(s.id)), ""
		}
	}
	return "a pointer", ""
}

// unwrittenField returns the name in C of the first pointer that was never written in the engine or sequence at an
// address, or "" if all were written.
func (p *player) unwrittenField(engine bool, address uint64) string {
	var pointers []uint64
	var names []string
	switch {
	case p.live[address] != sequenceSize: // which is that of an engine
		return ""
	case engine:
		e := view[engineStruct](p, address)
		pointers, names = []uint64{e.refCount, e.active.prev, e.active.next}, []string{"engine->ref_count", "engine->active_seqs.prev", "engine->active_seqs.next"}
	default:
		s := view[sequenceStruct](p, address)
		pointers, names = []uint64{s.blockTable, s.node.prev, s.node.next}, []string{"block_table", "node.prev", "node.next"}
	}
	if i := slices.Index(pointers, fill[uint64](unwrittenByte)); i >= 0 {
		return names[i]
	}
	return ""
}

// index names an index that is outside an array or overflows.
func (p *player) index(op trace.Op, m *moment, address uint64) (string, Fact) {
	counts := view[engineStruct](p, p.engines[op.Engine]).refCount
	if i := int64(address-counts) / 4; int64(int32(i)) == i {
		if b, _ := fillOf(uint32(i)); b != 0 {
			return fmt.Sprintf("uses ref_count[i], where i is %s", map[byte]string{unwrittenByte: "a table entry that was " + Unwritten, freedByte: Freed}[b]), ""
		}
	}
	e := p.expected.Engines[op.Engine]
	if e == nil || p.pools[op.Engine] == 0 {
		return "", ""
	}
	blocks := []int32{m.block}
	if s := oracle.Find(e, op.A); s != nil {
		for _, table := range s.BlockTable {
			if table != nil {
				blocks = append(blocks, table[:]...)
			}
		}
	}
	pool := p.pools[op.Engine] + oracle.Slack
	for _, block := range blocks {
		wrong := int64(block * course.BlockSize)
		if block >= 0 && wrong != int64(block)*course.BlockSize && address-(pool+uint64(wrong)) < course.BlockSize {
			return fmt.Sprintf("computes the address of block %d in int, where block * BLOCK_SIZE overflows", block), IntOverflow
		}
	}
	return "", ""
}
