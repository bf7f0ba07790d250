package course

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"
	"unsafe"

	"llmmemory/internal/homework/course/trace"
)

// These tests enumerate the distinct states that a bounded number of calls can reach. In each state they try every
// call, also with each of its allocations failing. States that differ only in ids count as one, because calls treat
// ids alike.

// A model is one engine with its pool. Its state is changed only by calls of the yardstick, which is the handout's
// plain algorithm.
type model struct {
	yardstick
	engine *Engine // nil: none
	pool   []int32
}

func (m *model) play(op trace.Op) bool {
	m.fail = op.Fail
	defer func() { m.fail = 0 }()
	switch op.Kind {
	case trace.Init:
		return m.init(op.A)
	case trace.Create:
		return m.create(m.engine, op.A, op.B) != nil
	case trace.Fork:
		return m.fork(m.engine, op.A, op.B) != nil
	case trace.Forks:
		for i := range op.C {
			m.fork(m.engine, op.A, op.B+i)
		}
		return true
	case trace.Append:
		return m.append(m.engine, op.A, op.B)
	case trace.Free:
		return m.free(m.engine, op.A) != nil
	}
	m.destroy(m.engine)
	m.engine = nil
	return true
}

func (m *model) init(size int32) bool {
	if size < BlockSize || !m.allocate(2) {
		return false
	}
	m.pool = slices.Clone(m.pool[:0])
	for word := range size / KVSize {
		m.pool = append(m.pool, magic(int(word)))
	}
	m.open(make([]int32, size/BlockSize), size/BlockSize)
	return true
}

func (m *model) open(counts []int32, free int32) {
	e := &Engine{Total: int32(len(counts)), Free: free, RefCount: unsafe.SliceData(counts)}
	if m.pool != nil {
		e.Pool = unsafe.Pointer(&m.pool[0])
	}
	e.Active = Node{Prev: &e.Active, Next: &e.Active}
	m.engine = e
}

func (m *model) sequences() []*Sequence {
	if m.engine == nil {
		return nil
	}
	w := world{engines: []*Engine{m.engine}}
	return w.listed(0)
}

func (m *model) clone() *model {
	c := &model{yardstick: m.yardstick, pool: slices.Clone(m.pool)}
	if m.engine == nil {
		return c
	}
	c.open(slices.Clone(m.engine.counts()), m.engine.Free)
	for _, seq := range m.sequences() {
		s := &Sequence{ID: seq.ID, KVCount: seq.KVCount}
		if seq.BlockTable != nil {
			table := *seq.BlockTable
			for i, l2 := range table {
				if l2 != nil {
					entries := *l2
					table[i] = &entries
				}
			}
			s.BlockTable = &table
		}
		c.link(c.engine, s)
	}
	return c
}

// key returns a hash of the state. States that differ only in the ids of sequences have the same key.
func (m *model) key() [16]byte {
	var data []byte
	put := func(n int32) { data = binary.LittleEndian.AppendUint32(data, uint32(n)) }
	for _, s := range m.sequences() {
		put(s.KVCount)
		for i, l2 := range s.BlockTable {
			if l2 != nil {
				put(int32(i))
				for _, id := range l2 {
					put(id)
				}
			}
		}
		put(L1Size)
	}
	for _, word := range m.pool {
		put(word)
	}
	sum := sha256.Sum256(data)
	return [16]byte(sum[:16])
}

type bounds struct {
	start   []trace.Op // the calls before the enumeration begins: llm_init of engine 0, and others
	ids     []int32    // of new sequences; it makes no difference which of the unused ids a call takes
	lengths []int32    // the arguments of create_sequence
	calls   int        // the maximum number of calls after start
}

// small returns bounds for sequences with the three given ids, and with lengths near the sizes of one block and of
// two.
func small(blocks int, ids [3]int32, calls int) bounds {
	return bounds{[]trace.Op{{Kind: trace.Init, A: int32(blocks) * BlockSize}}, ids[:], []int32{0, 1, 15, 16, 17, 33}, calls}
}

type useCase struct {
	// path leads to the state. It consists of start and of as few further calls as possible.
	path  []trace.Op
	state *model
	// refused has the calls that fail in this state. Some of them fail although no allocation fails. The others are
	// accepted calls in which one allocation fails: such a call is in refused once for each of its allocations. A
	// failing call changes nothing, so all of them can be made one after the other.
	refused  []trace.Op
	accepted []trace.Op // the calls that succeed; each is played in the same state
}

// cases yields every distinct state that fewer than b.calls calls can reach. States with shorter paths come first.
func (b bounds) cases() iter.Seq[useCase] {
	return func(yield func(useCase) bool) {
		s := search{bounds: b, seen: map[[16]byte]bool{}}
		s.add(-1, trace.Op{}, played(b.start))
		for index, end, depth := 0, 1, 0; index < len(s.nodes) && depth < b.calls; depth++ {
			for ; index < end; index++ {
				c := s.expand(index)
				if !yield(c) {
					return
				}
				for _, op := range c.accepted {
					next := c.state.clone()
					next.play(op)
					s.add(index, op, next)
				}
			}
			end = len(s.nodes)
		}
	}
}

func played(path []trace.Op) *model {
	m := &model{}
	for _, op := range path {
		m.play(op)
	}
	return m
}

// A search enumerates states breadth-first. To save memory, it keeps the path to each state instead of the state.
type search struct {
	bounds
	nodes []searchNode
	seen  map[[16]byte]bool
}

type searchNode struct {
	parent int
	op     trace.Op
}

func (s *search) add(parent int, op trace.Op, state *model) {
	if key := state.key(); state.engine != nil && !s.seen[key] {
		s.seen[key] = true
		s.nodes = append(s.nodes, searchNode{parent, op})
	}
}

func (s *search) expand(index int) useCase {
	var path []trace.Op
	for ; index > 0; index = s.nodes[index].parent {
		path = append(path, s.nodes[index].op)
	}
	slices.Reverse(path)
	c := useCase{path: slices.Concat(s.start, path)}
	c.state = played(c.path)
	for _, op := range s.all(c.state) {
		if !c.state.clone().play(op) {
			c.refused = append(c.refused, op)
			continue
		}
		c.accepted = append(c.accepted, op)
		for op.Fail = 1; !c.state.clone().play(op); op.Fail++ {
			c.refused = append(c.refused, op)
		}
	}
	return c
}

// all returns all calls that are possible in a state. A new sequence gets the first unused id. An append writes the
// index of the new record as its data.
func (s *search) all(state *model) []trace.Op {
	var live, dead []int32
	for _, q := range state.sequences() {
		live = append(live, q.ID)
	}
	for _, id := range s.ids {
		if len(dead) < 2 && !slices.Contains(live, id) {
			dead = append(dead, id)
		}
	}
	ops := state.callsOf(slices.Concat(live, dead[:min(1, len(dead))]), s.lengths)
	if len(dead) == 2 {
		ops = append(ops, trace.Op{Kind: trace.Fork, A: dead[0], B: dead[1]})
	}
	return append(ops, trace.Op{Kind: trace.Destroy})
}

// callsOf returns all calls with these ids and lengths, except llm_destroy.
func (m *model) callsOf(ids, lengths []int32) (ops []trace.Op) {
	for _, id := range ids {
		for _, length := range lengths {
			ops = append(ops, trace.Op{Kind: trace.Create, A: id, B: length})
		}
		for _, child := range ids {
			ops = append(ops, trace.Op{Kind: trace.Fork, A: id, B: child})
		}
		record := int32(0)
		if s := m.find(m.engine, id); s != nil {
			record = s.KVCount
		}
		ops = append(ops, trace.Op{Kind: trace.Append, A: id, B: record}, trace.Op{Kind: trace.Free, A: id})
	}
	return ops
}
