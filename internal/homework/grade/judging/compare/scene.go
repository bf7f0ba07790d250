package compare

import (
	"encoding/json"
	"fmt"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/runner"
)

// A Scene is the memory of one engine around the step that showed a difference: before the step, as expected after it,
// and as found after it. A State is nil if there is no engine.
type Scene struct {
	Before, Expected, Actual *State
	Block                    int // the block whose records the States have; -1: none
}

// UnmarshalJSON reads a scene. An earlier version of llmgrade may have stored it in another form. Then UnmarshalJSON
// ignores it, so that the rest of the report can be read.
func (s *Scene) UnmarshalJSON(text []byte) error {
	type plain Scene
	if json.Unmarshal(text, (*plain)(s)) != nil {
		*s = Scene{}
	}
	return nil
}

// A State is one engine.
type State struct {
	Total, Free int32
	RefCount    []int32
	Sequences   []oracle.SequenceState // in the order of the list
	Records     []int32                `json:",omitempty"` // of the Scene's Block
	Broken      string                 `json:",omitempty"` // the pointer behind which nothing could be read
}

// MaxSequences is the number of sequences, from the head of the list, that a State has at most. Beyond it, a State has
// only the sequences named by the call.
const MaxSequences = 64

// Look plays a trace again up to the step with the difference d, and returns the memory before and after that step. It
// returns nil in four cases: the call has no engine, the call did not come back (Hangs), the trace has a large pool, or
// the submission now behaves differently before that step, so that the trace cannot go on.
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
	p := &player{expected: expected, subject: process, heap: newHeap(), poolsWritable: d.Channel == Pool}
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
	s.Before = p.expectedState(d.Op, s.Block)
	_ = p.step(d.Op)
	s.Expected, s.Actual = p.expectedState(d.Op, s.Block), p.actualState(d.Op, s.Block)
	return s, p.trouble
}

func (p *player) expectedState(op trace.Op, block int) *State {
	e := p.expected.Engines[op.Engine]
	if e == nil {
		return nil
	}
	state := oracle.EngineState{Total: e.Total, Free: e.Free, RefCount: slices.Clone(oracle.Counts(e)), Pool: p.expected.Pools[op.Engine]}
	for seq := range e.Sequences {
		s := oracle.SequenceState{ID: seq.ID, KVCount: seq.KVCount}
		for slot, l2 := range seq.BlockTable {
			if l2 != nil {
				table := *l2
				s.Tables[slot] = &table
			}
		}
		state.Sequences = append(state.Sequences, s)
	}
	return newState(state, op, block)
}

func (p *player) actualState(op trace.Op, block int) *State {
	state, broken := p.read(op.Engine, selector(op))
	if broken == "engine" {
		return nil
	}
	s := newState(state, op, block)
	s.Broken = broken
	return s
}

// newState returns the State of an engine for the call op. The State has the sequences that selector(op) selects. It
// has the records of a block if the pool has this block; block -1 means none.
func newState(engine oracle.EngineState, op trace.Op, block int) *State {
	s := &State{Total: engine.Total, Free: engine.Free, RefCount: engine.RefCount}
	keep := selector(op)
	for _, q := range engine.Sequences {
		if keep(s.Sequences, q.ID) {
			s.Sequences = append(s.Sequences, q)
		}
	}
	offset := oracle.Slack + block*course.BlockSize
	if block >= 0 && offset+course.BlockSize <= len(engine.Pool)-oracle.Slack {
		s.Records = slices.Clone(ints(engine.Pool[offset:][:course.BlockSize]))
	}
	return s
}

// selector returns a function that selects the sequences of a State: the first MaxSequences, and those that the call
// names. The function gets the sequences selected so far, and the id of the next one.
func selector(op trace.Op) func([]oracle.SequenceState, int32) bool {
	return func(all []oracle.SequenceState, id int32) bool {
		named := id == op.A || op.Kind == trace.Fork && id == op.B
		sameID := func(s oracle.SequenceState) bool { return s.ID == id } // a broken list may repeat an id
		return len(all) < MaxSequences || named && !slices.ContainsFunc(all, sameID)
	}
}
