package compare

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

// A Fact is a circumstance of the call that showed a difference. Given a difference and its facts, the table mistakes
// says which sentence of the handout the submission violates, if any.
type Fact string

// Facts about the state before the call.
const (
	UnknownID      Fact = "must fail: no sequence has this id"
	ExistingID     Fact = "must fail: the id exists"
	BadLength      Fact = "must fail: the length is not positive"
	BeyondCapacity Fact = "must fail: more than 256 logical blocks"
	NoFreeBlocks   Fact = "must fail: too few free blocks"
	NoMemory       Fact = "must fail: malloc returned NULL"
	BadPool        Fact = "must fail: the pool is NULL or smaller than a block"

	OwnBlock    Fact = "the record goes to a block that no other sequence uses"
	SharedBlock Fact = "the record goes to a block that another sequence uses, too"
	NewPage     Fact = "the record goes to a new block"
	NewTable    Fact = "the L2 table of the record does not exist yet"
	NearLimit   Fact = "logical block 240 or a later one"
	LastFree    Fact = "all free blocks are needed"
	NoneFree    Fact = "no block is free"
	FullLength  Fact = "256 blocks are needed"
	Long        Fact = "more than 16 blocks are needed"
	Scattered   Fact = "an L1 slot is NULL, and a later one is not"
	HardToFind  Fact = "the id is not positive, or there are more than two sequences"
	NoSequences Fact = "there is no sequence"
)

// Facts about the state after the call.
const (
	Done           Fact = "all else is as it has to be"
	TookFewer      Fact = "too few blocks were taken"
	TookMore       Fact = "too many blocks were taken"
	TookOthers     Fact = "other blocks were taken"
	Stored         Fact = "the record is where it has to be"
	InCopy         Fact = "the difference is in the block of the record"
	OldBlock       Fact = "the record was written to the shared block"
	Elsewhere      Fact = "it is another sequence than that of the call"
	OtherSlot      Fact = "another entry of the tables changed instead of the record's"
	LostEntry      Fact = "an entry of the tables is mapped no longer"
	OtherTable     Fact = "the tables differ, too"
	ExtraTable     Fact = "there is a table that no block needs"
	SharedL1       Fact = "it has the parent's L1 table"
	SharedTable    Fact = "it has a table of the parent's"
	WholeTable     Fact = "one L2 table was left out as a whole"
	OfEngine       Fact = "it is the engine or its ref_count"
	Transposed     Fact = "the block is where the indices of L1 and L2 are exchanged"
	NullTable      Fact = "it uses an L2 table that is NULL"
	NullPointer    Fact = "it uses a pointer that is NULL, which is no L2 table"
	UnwrittenTable Fact = "it uses an entry of a new L1 table that was never written"
	IntOverflow    Fact = "it computes an address in int"
	UsesFreed      Fact = "it uses a pointer that it reads from freed memory"
	DummyHead      Fact = "it is the dummy head"
)

// Facts that follow from the difference.
const (
	noEngine     Fact = "the engine is NULL"
	severalCalls Fact = "the step is several calls"
	mustFail     Fact = "the call must fail"
)

// Has reports whether all the given facts hold.
func (d *Difference) Has(facts ...Fact) bool {
	return !slices.ContainsFunc(facts, func(f Fact) bool { return !d.holds(f) })
}

func (d *Difference) holds(f Fact) bool {
	switch f {
	case noEngine:
		return d.Op.Engine == trace.None
	case severalCalls:
		return d.Op.Kind.Many()
	case mustFail:
		return d.reason() != ""
	}
	return slices.Contains(d.Facts, f)
}

// A refusal is a reason for which a call must fail.
type refusal struct {
	reason error
	fact   Fact
}

var refusals = []refusal{
	{course.ErrNotFound, UnknownID},
	{course.ErrExists, ExistingID},
	{course.ErrLength, BadLength},
	{course.ErrCapacity, BeyondCapacity},
	{course.ErrNoBlocks, NoFreeBlocks},
	{course.ErrPool, BadPool},
	{course.ErrNoMemory, NoMemory},
}

// Refused reports whether the call must fail.
func (d *Difference) Refused() bool {
	return d.Op.Engine == trace.None || d.refusal() != ""
}

// refusal returns the fact from the list refusals that explains why the call must fail, or "" if there is none. A call
// whose engine is NULL must fail, too, but refusals has no fact for this reason. So refusal returns "" for such a call.
func (d *Difference) refusal() Fact {
	for _, r := range refusals {
		if d.Has(r.fact) {
			return r.fact
		}
	}
	return ""
}

// A moment has data about the expected state before a call. All facts about this state, and some facts about the state
// after the call, are computed from these data.
type moment struct {
	op              trace.Op
	engine          *course.Engine
	sequence        *course.Sequence // the one that the call names; nil if there is none
	facts           []Fact
	tables          [course.L1Size]*course.L2Table // copies of the sequence's
	counts          []int32                        // of free_sequence only
	block           int32                          // the block that append_kv writes to or copies; -1: none
	logical, offset int32
}

// factsBefore lists the facts about the state before a call. holds reports whether the fact is true. It is called
// only if applies returns true.
var factsBefore = []struct {
	fact           Fact
	applies, holds func(m *moment) bool
}{
	{NoSequences, everyCall, func(m *moment) bool { return m.engine.Active.Next == &m.engine.Active }},
	{NoneFree, oneSequence, func(m *moment) bool { return m.engine.Free == 0 }},
	{LastFree, create, func(m *moment) bool { return m.needs() == int64(m.engine.Free) }},
	{FullLength, create, func(m *moment) bool { return m.needs() == course.MaxLogicalBlocks }},
	{Long, create, func(m *moment) bool { return m.needs() > course.L2Size }},
	{Scattered, named, func(m *moment) bool {
		first := slices.Index(m.tables[:], nil)
		return first >= 0 && slices.ContainsFunc(m.tables[first:], func(t *course.L2Table) bool { return t != nil })
	}},
	{HardToFind, named, func(m *moment) bool {
		first := m.engine.Active.Next
		return m.op.A <= 0 || first.Next != &m.engine.Active && first.Next.Next != &m.engine.Active
	}},
	{NewTable, writes, func(m *moment) bool { return m.tables[m.logical/course.L2Size] == nil }},
	{NewPage, writes, func(m *moment) bool { return m.block < 0 }},
	{SharedBlock, writes, (*moment).shared},
	{OwnBlock, writes, func(m *moment) bool { return m.block >= 0 && !m.shared() }},
	{LastFree, writes, func(m *moment) bool { return m.engine.Free == 1 && (m.block < 0 || m.shared()) }},
	{NearLimit, writes, func(m *moment) bool { return m.logical >= 240 }},
}

func everyCall(*moment) bool     { return true }
func oneSequence(m *moment) bool { return m.op.Kind <= trace.Free }
func create(m *moment) bool      { return m.op.Kind == trace.Create }
func named(m *moment) bool       { return m.sequence != nil }
func writes(m *moment) bool {
	return named(m) && m.op.Kind == trace.Append && m.logical < course.MaxLogicalBlocks
}

func (m *moment) needs() int64 {
	return int64(m.op.B)/course.KVPerBlock + min(1, int64(m.op.B)%course.KVPerBlock)
}

func (m *moment) shared() bool { return m.block >= 0 && oracle.Counts(m.engine)[m.block] > 1 }

// moment reads the expected state before a call.
func (p *player) moment(op trace.Op) moment {
	m := moment{op: op, block: -1}
	if op.Kind == trace.Init || op.Engine == trace.None || p.expected.Engines[op.Engine] == nil {
		return m
	}
	m.engine = p.expected.Engines[op.Engine]
	if oneSequence(&m) && !create(&m) {
		m.sequence = oracle.Find(m.engine, op.A)
	}
	if m.sequence != nil {
		m.logical, m.offset = m.sequence.KVCount/course.KVPerBlock, m.sequence.KVCount%course.KVPerBlock
		for i, l2 := range m.sequence.BlockTable {
			if l2 != nil {
				table := *l2
				m.tables[i] = &table
			}
		}
		if op.Kind == trace.Free {
			m.counts = slices.Clone(oracle.Counts(m.engine))
		}
	}
	if writes(&m) {
		m.block = oracle.Entry(m.sequence, m.logical)
	}
	for _, f := range factsBefore {
		if f.applies(&m) && f.holds(&m) {
			m.facts = append(m.facts, f.fact)
		}
	}
	return m
}

// outcomeFacts adds the reason for which the call must fail.
func outcomeFacts(facts []Fact, outcome oracle.Outcome) []Fact {
	for _, r := range refusals {
		if errors.Is(outcome.Err, r.reason) {
			facts = append(slices.Clip(facts), r.fact)
		}
	}
	return facts
}

func (p *player) facts(d *Difference, m *moment, outcome oracle.Outcome) []Fact {
	facts := append(outcomeFacts(m.facts, outcome), d.Facts...)
	if d.Op.Engine == trace.None || d.Op.Kind.Many() {
		return facts
	}
	add := func(fact Fact, holds bool) {
		if holds {
			facts = append(slices.Clip(facts), fact)
		}
	}
	e := p.expected.Engines[d.Op.Engine]
	if e == nil || p.engines[d.Op.Engine] == 0 {
		return facts
	}
	took := p.took(e, d.Op.Engine)
	add(took, took != "")
	switch {
	case d.Channel == Returned:
		add(Done, p.engine(d.Op.Engine) == nil)
	case d.Channel == Pool && d.Op.Kind == trace.Append:
		p.stored(d, e, m, add)
	case d.Op.Kind == trace.Fork && (d.Channel == Counts || d.Field == Keeps):
		child, parent := p.address(d.Op.Engine, d.Op.B), p.address(d.Op.Engine, d.Op.A)
		l1 := func(sequence uint64) uint64 { return view[sequenceStruct](p, sequence).blockTable }
		add(SharedL1, child != 0 && parent != 0 && l1(child) == l1(parent))
		if table := p.sharedTable(parent, child); table != "" && d.Field == Keeps {
			add(SharedTable, true)
			d.Expected, d.Actual = "an allocation of its own", fmt.Sprintf("%s of %s is that of %s", table, SequenceName(d.Op.B), SequenceName(d.Op.A))
		}
		want := oracle.Find(e, d.Op.B)
		add(OtherTable, want != nil && child != 0 && p.sequence(want, view[sequenceStruct](p, child), 0) != nil)
	case d.Op.Kind == trace.Append:
		add(Elsewhere, d.Channel == Sequence && d.sequence != d.Op.A)
		p.entries(e, d.Op, m, add)
	case d.Channel == Counts && d.Op.Kind == trace.Free:
		add(WholeTable, p.leftOut(e, d.Op.Engine, m))
	}
	return facts
}

// sharedTable returns the name in C of the first table that a child shares with its parent, such as block_table[2], or
// "" if they share none.
func (p *player) sharedTable(parent, child uint64) string {
	if parent == 0 || child == 0 {
		return ""
	}
	theirs, its := view[sequenceStruct](p, parent).blockTable, view[sequenceStruct](p, child).blockTable
	if theirs == its {
		return "block_table"
	}
	tables := view[l1Table](p, theirs)
	for slot, table := range view[l1Table](p, its) {
		if table != 0 && table == tables[slot] {
			return fmt.Sprintf("block_table[%d]", slot)
		}
	}
	return ""
}

// countsOf returns an engine struct of the submission and its reference counts. Each is nil if the pointer to it leads
// to no allocation.
func (p *player) countsOf(want *course.Engine, engine int) (*engineStruct, []int32) {
	e := checked[engineStruct](p, p.engines[engine])
	if e == nil {
		return nil, nil
	}
	return e, p.refCounts(e.refCount, want.Total)
}

// took compares the number of blocks that the submission uses with the expected number. It returns TookMore or
// TookFewer if the numbers differ, TookOthers if only the blocks differ, and otherwise "". It also returns "" if the
// submission's ref_count and free_local_blocks contradict each other.
func (p *player) took(e *course.Engine, engine int) Fact {
	got, have := p.countsOf(e, engine)
	if have == nil {
		return ""
	}
	counts := oracle.Counts(e)
	used, wanted, missing := 0, 0, false
	for _, some := range looked(e.Total) {
		for block := some[0]; block < some[1]; block++ {
			inUse := have[block] != 0
			if inUse {
				used++
			}
			if counts[block] != 0 {
				wanted++
				missing = missing || !inUse
			}
		}
	}
	switch {
	case used-wanted != int(e.Free)-int(got.free):
	case used < wanted:
		return TookFewer
	case used > wanted:
		return TookMore
	case missing:
		return TookOthers
	}
	return ""
}

// stored finds out where append_kv wrote.
func (p *player) stored(d *Difference, e *course.Engine, m *moment, add func(Fact, bool)) {
	s := oracle.Find(e, d.Op.A)
	if s == nil || p.isLarge(d.Op.Engine) || s.BlockTable[m.logical/course.L2Size] == nil {
		return
	}
	target := int64(oracle.Entry(s, m.logical))
	at := p.pools[d.Op.Engine] + oracle.Slack + uint64(target)*course.BlockSize + uint64(m.offset)*course.KVSize
	add(Stored, p.subject.At(at, course.KVSize) != nil && *view[int32](p, at) == d.Op.B)
	add(InCopy, d.byteAt/course.BlockSize == target)
	old := int64(m.block)*course.KVPerBlock + int64(m.offset) // the record's place without a copy
	add(OldBlock, m.block >= 0 && int64(m.block) != target && d.byteAt/course.KVSize == old)
}

func (p *player) entries(e *course.Engine, op trace.Op, m *moment, add func(Fact, bool)) {
	s, address := oracle.Find(e, op.A), p.address(op.Engine, op.A)
	if s == nil || address == 0 || m.logical >= course.MaxLogicalBlocks {
		return
	}
	l1 := view[l1Table](p, view[sequenceStruct](p, address).blockTable)
	entry := func(logical int) int32 {
		if l2 := l1[logical/course.L2Size]; l2 != 0 {
			return view[course.L2Table](p, l2)[logical%course.L2Size]
		}
		return -1
	}
	target, lost, others := false, false, false
	for logical := range course.MaxLogicalBlocks {
		want, have := oracle.Entry(s, int32(logical)), entry(logical)
		switch {
		case logical == int(m.logical):
			target = have == want
		case have == want || want < 0 && (have < 0 || have >= e.Total): // not set to -1
		case have == -1:
			lost = true
		default:
			others = true
		}
	}
	add(OtherSlot, others && (!target || slices.Contains(m.facts, OwnBlock)))
	add(LostEntry, lost)
}

// leftOut reports whether free_sequence has forgotten a whole L2 table, so that all blocks of the table still have
// their references. It returns false if the first forgotten table is in slot 0, because free_sequence may then have
// released nothing at all.
func (p *player) leftOut(e *course.Engine, engine int, m *moment) bool {
	_, have := p.countsOf(e, engine)
	if have == nil {
		return false
	}
	for slot, table := range m.tables {
		if table == nil {
			continue
		}
		kept, mapped := 0, 0
		for _, block := range table {
			if block >= 0 {
				mapped++
				if have[block] == m.counts[block] {
					kept++
				}
			}
		}
		if kept == mapped && mapped > 0 {
			return slot > 0
		}
	}
	return false
}
