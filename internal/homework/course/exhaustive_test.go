package course

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// deepest returns the number of calls after llm_init in the longest series that TestEveryShortUseIsTheHandouts tries
// for a pool of this size. With 6 calls, the test detects each broken rule that one_rule_test.go assigns to it. make
// exhaustive tries longer series.
func deepest(blocks int) int {
	if blocks < 4 {
		return level.Pick(6, 10)
	}
	return level.Pick(6, 9)
}

func TestEveryShortUseIsTheHandouts(t *testing.T) {
	s := newSubject()
	defer s.arena.close()
	for blocks := 1; blocks <= 4; blocks++ {
		t.Run(strconv.Itoa(blocks)+" blocks", func(t *testing.T) {
			x := explore(t, s, small(blocks, [3]int32{0, -1, math.MaxInt32}, deepest(blocks)))
			t.Logf("%d states, %d calls compared", x.states, x.calls)
		})
	}
}

// Ensure that every call follows the handout if a sequence's length is near a boundary. The boundaries are the end of a
// block, the end of an L2 table, and the maximum length. The test tries this with and without shared blocks. The pools
// have no, one, two or many free blocks.
func TestEveryCallAtABoundaryIsTheHandouts(t *testing.T) {
	level.SkipNormal(t)
	s := newSubject()
	defer s.arena.close()
	states, calls := 0, 0
	for _, length := range []int32{1, 15, 16, 17, 255, 256, 257, 4079, 4080, 4081, 4095, 4096} {
		for _, sharers := range []int32{1, 2, 3, 20} {
			for _, spare := range []int32{0, 1, 2, 300} {
				b := bounds{
					start: []trace.Op{
						{Kind: trace.Init, A: ((length+KVPerBlock-1)/KVPerBlock + spare) * BlockSize},
						{Kind: trace.Create, A: 1, B: length},
					},
					ids:     []int32{7},
					lengths: []int32{16, 17, 256, 257, 4080, 4096, 4097},
					calls:   2,
				}
				if sharers > 1 {
					b.start = append(b.start, trace.Op{Kind: trace.Forks, A: 1, B: 10, C: sharers - 1})
				}
				if sharers > 3 || spare > 2 {
					b.calls = 1
				}
				x := explore(t, s, b)
				states += x.states
				calls += x.calls
			}
		}
	}
	require.Equal(t, 656, states, "the starts are far from llm_init")
	t.Logf("%d calls compared", calls)
}

type explorer struct {
	*testing.T
	s      *subject
	states int
	calls  int
}

func explore(t *testing.T, s *subject, b bounds) *explorer {
	s.library = &Library{Memory: s.arena}
	x := &explorer{T: t, s: s}
	for c := range b.cases() {
		x.states++
		x.s.reset()
		for _, op := range c.path {
			_, err := x.s.play(op)
			require.NoError(t, err)
		}
		x.s.save()
		x.require(x.s.differs(c.state), c.path)
		for _, op := range c.refused {
			x.refused(c, op)
		}
		for _, op := range c.accepted {
			x.changes(c, op)
		}
		x.runs(c)
		x.batches(c)
	}
	return x
}

func (x *explorer) require(err error, path []trace.Op, last ...any) {
	if err != nil {
		x.Helper()
		require.FailNow(x, "the states differ", "after %v %v: %v", path, last, err)
	}
}

func (x *explorer) refused(c useCase, op trace.Op) {
	x.calls++
	_, err := x.s.play(op)
	switch {
	case err == nil:
		err = errors.New("it was not refused")
	case errors.Is(err, ErrNoMemory) != (op.Fail > 0):
		err = fmt.Errorf("it was refused for: %w", err)
	case op.Fail == 0 && x.s.arena.gets > 0:
		err = errors.New("it asked for memory")
	case !x.s.untouched():
		err = errors.New("it changed something")
	default:
		err = nil
	}
	x.require(err, c.path, op)
}

func (x *explorer) changes(c useCase, op trace.Op) {
	x.calls++
	made, err := x.s.play(op)
	x.require(err, c.path, op)
	want := c.state.clone()
	want.play(op)
	x.require(x.s.differs(want), c.path, op)
	if op.Kind == trace.Create || op.Kind == trace.Fork {
		if &made.Node != x.s.engine.Active.Prev {
			x.require(errors.New("it returned another sequence"), c.path, op)
		}
	}
	if x.s.arena.gets > 1 {
		x.require(errors.New("it asked for memory more than once"), c.path, op)
	}
	x.s.restore()
}

// checkAppends runs call, which must append data[i] to the sequence ids[i] for each i. If the same appends, made one by
// one, would all succeed, call must have the same effect. If one of them would fail, call must fail and change nothing.
// The same is required if one of the allocations of call fails.
func (x *explorer) checkAppends(c useCase, ids, data []int32, call func() error) {
	want := c.state.clone()
	all := true
	for i, id := range ids {
		all = all && want.play(trace.Op{Kind: trace.Append, A: id, B: data[i]})
	}
	tables := want.live - c.state.live
	for fail := range tables + 1 {
		x.calls++
		x.s.arena.fail, x.s.arena.gets = fail, 0
		err := call()
		x.s.arena.fail = 0
		switch {
		case all && fail == 0:
			if err == nil {
				err = x.s.differs(want)
			}
		case err == nil:
			err = errors.New("it was not refused")
		case !x.s.untouched():
			err = errors.New("it was refused and changed something")
		default:
			err = nil
		}
		x.require(err, c.path, "several appends", ids, "failing", fail)
		x.s.restore()
		if !all {
			return
		}
	}
}

func (x *explorer) listed() []*Sequence {
	var list []*Sequence
	for n := x.s.engine.Active.Next; n != &x.s.engine.Active; n = n.Next {
		list = append(list, sequenceOf(n))
	}
	return list
}

func (x *explorer) runs(c useCase) {
	for _, s := range x.listed() {
		left := maxRecords - int(s.KVCount)
		for _, n := range []int{1, 2, 16, 17, 33, left - 1, left, left + 1} {
			if n < 1 || n > 40 && (len(c.state.engine.counts()) < 4*n/KVPerBlock/5 || len(c.path) > 3) {
				continue
			}
			ids, data := make([]int32, n), make([]int32, n)
			for i := range n {
				ids[i], data[i] = s.ID, int32(i)
			}
			x.checkAppends(c, ids, data, func() error { return x.s.library.AppendRun(x.s.engine, s, &data[0], int32(n)) })
		}
	}
}

// batches tries three kinds of batches for each sequence in the list. The first kind has the sequence and one of the
// first three sequences in the list, which may be the same sequence. The second has the sequence three times. The
// third has the sequence and all its successors in the list.
func (x *explorer) batches(c useCase) {
	list := x.listed()
	var batches [][]*Sequence
	for i, a := range list {
		for _, b := range list[:min(len(list), 3)] {
			batches = append(batches, []*Sequence{a, b})
		}
		batches = append(batches, []*Sequence{a, a, a}, list[i:])
	}
	for _, seqs := range batches {
		ids, data := make([]int32, len(seqs)), make([]int32, len(seqs))
		for i, s := range seqs {
			ids[i], data[i] = s.ID, int32(100+i)
		}
		x.checkAppends(c, ids, data, func() error {
			return x.s.library.AppendBatch(x.s.engine, &seqs[0], &data[0], int32(len(seqs)))
		})
	}
}

// Ensure that every call does what the handout of the course says. The lengths of the lists of sequences are near the
// length from which the library uses its cache. Because of the cache, an earlier call could influence a later one. So
// the test plays every series of calls, even if several series lead to the same state.
func TestEveryShortUseOfALongListIsTheHandouts(t *testing.T) {
	level.SkipQuick(t)
	x := &explorer{T: t, s: newSubject()}
	defer x.s.arena.close()
	const first = 100 // the ids of the list are first, first + 1, ...
	for length := int32(plainNodes); length <= plainNodes+nearNodes+2; length++ {
		start := []trace.Op{
			{Kind: trace.Init, A: 64 * BlockSize},
			{Kind: trace.Create, A: first, B: 17},
			{Kind: trace.Forks, A: first, B: first + 1, C: length - 1},
		}
		if length%2 == 0 && !level.Exhaustive() || length > plainNodes+2 && !level.Long() {
			continue
		}
		last := first + length - 1
		var calls []trace.Op
		for _, id := range []int32{1, 2, last, last - 1} {
			calls = append(calls, trace.Op{Kind: trace.Free, A: id}, trace.Op{Kind: trace.Append, A: id, B: 7})
		}
		for _, id := range []int32{1, 2} {
			calls = append(calls, trace.Op{Kind: trace.Create, A: id, B: 1})
		}
		calls = append(calls, trace.Op{Kind: trace.Fork, A: last, B: 1}, trace.Op{Kind: trace.Free, A: first + plainNodes})
		x.everySequence(start, calls, level.Pick(3, 4))
	}
	t.Logf("%d sequences of calls compared", x.calls)
}

func (x *explorer) everySequence(path, calls []trace.Op, depth int) {
	state := &model{}
	x.s.library = &Library{Memory: x.s.arena}
	x.s.reset()
	var succeeded, want bool
	for _, op := range path {
		_, err := x.s.play(op)
		succeeded, want = err == nil, state.play(op)
	}
	x.calls++
	if succeeded != want {
		x.require(fmt.Errorf("it succeeded: %t", succeeded), path)
	}
	x.require(x.s.differs(state), path)
	x.require(x.s.library.check(), path)
	_ = x.s.library.Destroy(x.s.engine)
	x.require(x.s.library.check(), path, "llm_destroy")
	if depth == 0 {
		return
	}
	for _, op := range calls {
		x.everySequence(append(path[:len(path):len(path)], op), calls, depth-1)
	}
}

func TestCopyOnWriteEverywhereIsTheHandouts(t *testing.T) {
	x := &explorer{T: t, s: newSubject()}
	defer x.s.arena.close()
	c := useCase{state: &model{}}
	c.path = []trace.Op{
		{Kind: trace.Init, A: (MaxLogicalBlocks + 1) * BlockSize},
		{Kind: trace.Create, A: 1, B: maxRecords},
		{Kind: trace.Fork, A: 1, B: 2},
	}
	for _, op := range c.path {
		_, err := x.s.play(op)
		require.NoError(t, err)
		c.state.play(op)
	}
	for position := range int32(maxRecords) {
		child := sequenceOf(x.s.engine.Active.Prev)
		child.KVCount, c.state.find(c.state.engine, 2).KVCount = position, position
		x.s.save()
		x.changes(c, trace.Op{Kind: trace.Append, A: 2, B: position})
		for _, n := range []int{1, 2, 16} { // of which one or two blocks are copied; there is one
			ids, data := make([]int32, n), make([]int32, n)
			for i := range ids {
				ids[i], data[i] = 2, int32(i)
			}
			x.checkAppends(c, ids, data, func() error { return x.s.library.AppendRun(x.s.engine, child, &data[0], int32(n)) })
		}
		ids, data := []int32{2}, []int32{7}
		x.checkAppends(c, ids, data, func() error { return x.s.library.AppendBatch(x.s.engine, &child, &data[0], 1) })
	}
}
