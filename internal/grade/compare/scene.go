package compare

import (
	"fmt"
	"slices"
	"unsafe"

	"llmmemory/internal/course"
	"llmmemory/internal/course/oracle"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/runner"
)

// A Scene is the memory of one engine around the step that differs: before it, as expected after
// it, and as it is. A State is nil if there is no engine.
type Scene struct {
	Before, Expected, Actual *State
	Block                    int // the block whose records the States have; -1: none
}

// A State is the state of one engine.
type State struct {
	Total, Free int32
	RefCount    []int32
	Sequences   []SequenceState
	Records     []int32 `json:",omitempty"` // of the Scene's Block
	Broken      string  `json:",omitempty"` // the pointer behind which nothing could be read
}

// A SequenceState is one sequence with its tables.
type SequenceState struct {
	ID, KVCount int32
	Tables      []Table // those that are not NULL, in order
}

// A Table is an L2 block table.
type Table struct {
	Slot   int // of the L1 table
	Blocks [course.L2Size]int32
}

// most is how many sequences a State has besides those that the call names.
const most = 64

// Look plays a trace again up to the step of a difference, to read the memory around it.
func Look(program string, ops []trace.Op, d *Difference) (*Scene, error) {
	if d.Op.Engine == trace.None || d.Hangs || hasLarge(ops) {
		return nil, nil
	}
	expected, err := oracle.New()
	if err != nil {
		return nil, err
	}
	defer expected.Close()
	process, err := runner.Start(program, PatienceWith(ops))
	if err != nil {
		return nil, err
	}
	defer process.Close()
	p := &player{expected: expected, subject: process, heap: newHeap(), open: d.Channel == Pool}
	for _, op := range ops[:d.Step] {
		if found := p.step(op); p.trouble != nil || len(found) > 0 && !p.adopt() {
			return nil, p.trouble // it behaved differently this time
		}
	}
	s := &Scene{Block: -1}
	if d.Channel == Pool {
		if n, err := fmt.Sscanf(d.Field, "byte %d of", &s.Block); n != 1 || err != nil {
			s.Block = -1
		} else {
			s.Block /= course.BlockSize
		}
	}
	engine := d.Op.Engine
	shows := func(n int, id int32) bool {
		return n < most || id == d.Op.A || d.Op.Kind == trace.Fork && id == d.Op.B
	}
	s.Before = p.want(engine, s.Block, shows)
	_ = p.step(d.Op)
	s.Expected, s.Actual = p.want(engine, s.Block, shows), p.have(engine, s.Block, shows)
	return s, p.trouble
}

// want returns the State of the oracle.
func (p *player) want(engine, block int, shows func(n int, id int32) bool) *State {
	e := p.expected.Engines[engine]
	if e == nil {
		return nil
	}
	s := &State{Total: e.Total, Free: e.Free, RefCount: slices.Clone(unsafe.Slice(e.RefCount, e.Total))}
	for n := e.Active.Next; n != &e.Active; n = n.Next {
		from := sequenceOf(n)
		if !shows(len(s.Sequences), from.ID) {
			continue
		}
		q := SequenceState{ID: from.ID, KVCount: from.KVCount}
		for slot, l2 := range from.BlockTable {
			if l2 != nil {
				q.Tables = append(q.Tables, Table{slot, *l2})
			}
		}
		s.Sequences = append(s.Sequences, q)
	}
	s.Records = records(p.expected.Pools[engine], block)
	return s
}

// have returns the State of the submission, as far as it can be read.
func (p *player) have(engine, block int, shows func(n int, id int32) bool) *State {
	var at course.Engine // only for its offsets
	e := p.chunk(p.engines[engine], engineSize)
	if e == nil {
		return nil
	}
	s := &State{Total: i32(e, unsafe.Offsetof(at.Total)), Free: i32(e, unsafe.Offsetof(at.Free))}
	pool := p.subject.At(p.pools[engine], uint64(len(p.expected.Pools[engine])))
	s.Records = records(pool, block)
	count := s.Total
	if want := p.expected.Engines[engine]; want != nil {
		count = want.Total
	}
	counts := p.chunk(u64(e, unsafe.Offsetof(at.RefCount)), 4*uint64(max(0, count)))
	if counts == nil {
		s.Broken = "engine->ref_count"
		return s
	}
	for i := range count {
		s.RefCount = append(s.RefCount, i32(counts, uintptr(4*i)))
	}
	head := p.engines[engine] + activeOffset
	steps := 0
	for node := u64(p.subject.At(head, 16), 8); node != head && steps <= len(p.live); steps++ {
		bytes := p.chunk(node-nodeOffset, sequenceSize)
		if bytes == nil {
			s.Broken = "engine->active_seqs"
			return s
		}
		q, whole := p.sequenceState(bytes)
		if shows(len(s.Sequences), q.ID) {
			s.Sequences = append(s.Sequences, q)
		}
		if !whole {
			s.Broken = fmt.Sprintf("the tables of sequence %d", q.ID)
			return s
		}
		node = u64(bytes[nodeOffset:], 8)
	}
	return s
}

func (p *player) sequenceState(bytes []byte) (q SequenceState, whole bool) {
	var at course.Sequence
	q = SequenceState{ID: i32(bytes, unsafe.Offsetof(at.ID)), KVCount: i32(bytes, unsafe.Offsetof(at.KVCount))}
	l1 := p.chunk(u64(bytes, unsafe.Offsetof(at.BlockTable)), l1Size)
	if l1 == nil {
		return q, false
	}
	for slot := range course.L1Size {
		address := u64(l1, uintptr(8*slot))
		if address == 0 {
			continue
		}
		l2 := p.chunk(address, l2Size)
		if l2 == nil {
			return q, false
		}
		t := Table{Slot: slot}
		for i := range t.Blocks {
			t.Blocks[i] = i32(l2, uintptr(4*i))
		}
		q.Tables = append(q.Tables, t)
	}
	return q, true
}

// records returns the records of one block of a pool that has slack around it.
func records(pool []byte, block int) []int32 {
	from := oracle.Slack + block*course.BlockSize
	if block < 0 || from+course.BlockSize > len(pool)-oracle.Slack {
		return nil
	}
	var all []int32
	for i := range course.BlockSize / course.KVSize {
		all = append(all, i32(pool, uintptr(from+i*course.KVSize)))
	}
	return all
}
