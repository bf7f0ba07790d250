package exhaustive

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"

	"llmmemory/internal/homework/course/trace"
)

// Bounds limit the enumeration.
type Bounds struct {
	// Start has the calls before the enumeration begins: llm_init of engine 0, and further calls if the
	// interesting states are far from the beginning.
	Start []trace.Op
	// IDs are the ids of new sequences. It makes no difference which of the unused ids a call takes.
	IDs []int32
	// Lengths are the arguments of create_sequence.
	Lengths []int32
	// Calls is the maximum number of calls after Start.
	Calls int
}

// Small returns the bounds of an engine with the given number of blocks, from llm_init
// on, with three different ids and the lengths at which the number of blocks changes.
func Small(blocks int, ids [3]int32, calls int) Bounds {
	return Bounds{
		Start:   []trace.Op{{Kind: trace.Init, A: int32(blocks) * blockSize}},
		IDs:     ids[:],
		Lengths: []int32{0, 1, 15, 16, 17, 33},
		Calls:   calls,
	}
}

// A Case is a state, and every call that can be made in it.
type Case struct {
	// Path leads to State: Start, followed by as few calls as possible.
	Path  []trace.Op
	State State
	// Refused are the calls that fail, including the calls of Changes with one of
	// their allocations failing. They change nothing, so all of them can be played
	// one after the other after Path.
	Refused []trace.Op
	// Changes are the calls that succeed. Each is played in the same state: after Path, or after Path and
	// Refused.
	Changes []trace.Op
}

// Cases yields every distinct state that fewer than Calls calls reach, shorter paths first. The first wrong
// call of a subject therefore ends a shortest sequence of calls that shows a mistake.
//
// The caller must not change a Case, and must copy what it keeps.
func (b Bounds) Cases() iter.Seq[Case] {
	return func(yield func(Case) bool) {
		s := search{Bounds: b, seen: map[[16]byte]bool{}}
		s.add(-1, trace.Op{}, b.start())
		for node, end := 0, 1; node < len(s.nodes) && s.depth < b.Calls; s.depth++ {
			for ; node < end; node++ {
				c := s.expand(int32(node))
				if !yield(c) {
					return
				}
				for _, op := range c.Changes {
					next := c.State.Clone()
					next.Play(op)
					s.add(int32(node), op, next)
				}
			}
			end = len(s.nodes)
		}
	}
}

func (b Bounds) start() State {
	var s State
	for _, op := range b.Start {
		s.Play(op)
	}
	return s
}

// A search is breadth-first. It keeps the path to each state, not the state.
type search struct {
	Bounds
	nodes []node
	seen  map[[16]byte]bool
	depth int
}

type node struct {
	parent int32
	op     trace.Op
}

// add adds a state unless it is known or has no engine.
func (s *search) add(parent int32, op trace.Op, to State) {
	if key := to.key(); to.Exists && !s.seen[key] {
		s.seen[key] = true
		s.nodes = append(s.nodes, node{parent, op})
	}
}

func (s *search) path(node int32) []trace.Op {
	var path []trace.Op
	for ; node > 0; node = s.nodes[node].parent {
		path = append(path, s.nodes[node].op)
	}
	slices.Reverse(path)
	return append(slices.Clone(s.Start), path...)
}

func (s *search) expand(node int32) Case {
	c := Case{Path: s.path(node)}
	for _, op := range c.Path {
		c.State.Play(op)
	}
	for _, op := range s.calls(&c.State) {
		after := c.State.Clone()
		if !after.Play(op) {
			c.Refused = append(c.Refused, op)
			continue
		}
		for fail := 1; ; fail++ {
			op := op
			op.Fail = fail
			if again := c.State.Clone(); again.Play(op) {
				break
			}
			c.Refused = append(c.Refused, op)
		}
		c.Changes = append(c.Changes, op)
	}
	return c
}

// calls returns all calls that can be made in a state. New sequences get the first unused ids. The data of an
// append is the position of the record.
func (s *search) calls(state *State) []trace.Op {
	var live, dead []int32
	for _, q := range state.Sequences {
		live = append(live, q.ID)
	}
	for _, id := range s.IDs {
		if len(dead) < 2 && state.find(id) == nil {
			dead = append(dead, id)
		}
	}
	known := slices.Concat(live, dead[:min(1, len(dead))])
	var ops []trace.Op
	for _, id := range known {
		for _, length := range s.Lengths {
			ops = append(ops, trace.Op{Kind: trace.Create, A: id, B: length})
		}
		for _, child := range known {
			ops = append(ops, trace.Op{Kind: trace.Fork, A: id, B: child})
		}
		record := int32(0)
		if q := state.find(id); q != nil {
			record = q.KVCount
		}
		ops = append(ops, trace.Op{Kind: trace.Append, A: id, B: record}, trace.Op{Kind: trace.Free, A: id})
	}
	if len(dead) == 2 {
		ops = append(ops, trace.Op{Kind: trace.Fork, A: dead[0], B: dead[1]})
	}
	return append(ops, trace.Op{Kind: trace.Destroy})
}

// key returns a hash that is equal for states that differ only in ids. It leaves out
// the counts, which follow from the tables.
func (s *State) key() [16]byte {
	var to []byte
	put := func(n int32) { to = binary.LittleEndian.AppendUint32(to, uint32(n)) }
	for _, q := range s.Sequences {
		put(q.KVCount)
		for i, table := range q.Tables {
			if table == nil {
				continue
			}
			put(int32(i))
			for _, id := range table {
				put(id)
			}
		}
		put(tableSize)
	}
	for _, r := range s.Pool {
		put(int32(r))
	}
	sum := sha256.Sum256(to)
	return [16]byte(sum[:16])
}
