package paper

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

func twoSequences(t *testing.T) (*Manager, *Group) {
	m, err := NewManager(Config{BlockSize: 2, NumGPUBlocks: 6, NumCPUBlocks: 3})
	require.NoError(t, err)
	g := &Group{Seqs: []Seq{{Len: 4}, {Len: 4}}}
	require.NoError(t, m.Allocate(g))
	return m, g
}

func TestARefusedCallOfTheManagerChangesNothing(t *testing.T) {
	m, g := twoSequences(t)
	refused := func(want, err error) {
		t.Helper()
		require.ErrorIs(t, err, want)
		require.NoError(t, m.Check(slices.Values([]*Group{g})))
		require.Equal(t, []int32{5, 4}, g.Seqs[0].table)
		require.Equal(t, 4, m.gpu.NumFree())
	}
	refused(ErrGroup, m.Allocate(g))
	refused(ErrGroup, m.Allocate(&Group{Seqs: []Seq{{Len: 1}, {Len: 2}}}))
	refused(ErrGroup, m.Allocate(&Group{Seqs: []Seq{{Len: 1, Finished: true}}}))
	refused(ErrNoFreeBlocks, m.Allocate(&Group{Seqs: []Seq{{Len: 9}}}))
	refused(ErrGroup, m.Refork(g, 1, 1))
	_, err := m.SwapIn(nil, g)
	refused(ErrGroup, err)
	g.Seqs[0].Len = 7
	_, _, err = m.Append(g, 0)
	require.ErrorIs(t, err, ErrGroup, "two blocks short")
	g.Seqs[0].Len = 4

	others := &Group{Seqs: []Seq{{Len: 8}}}
	require.NoError(t, m.Allocate(others))
	g.Seqs[0].Len = 5
	_, _, err = m.Append(g, 0)
	require.ErrorIs(t, err, ErrNoFreeBlocks)
	g.Seqs[0].Len = 4
	_, err = m.SwapOut(nil, others)
	require.ErrorIs(t, err, ErrNoFreeBlocks, "4 do not fit on a CPU of 3")
	require.False(t, m.CanSwapOut(others))
	require.True(t, m.CanSwapOut(g), "2 shared ones do")
	require.NoError(t, m.Check(slices.Values([]*Group{g, others})))
}

func TestACopyOfASequenceIsAsLong(t *testing.T) {
	m, g := twoSequences(t)
	g.Seqs[0].Len = 5
	_, _, err := m.Append(g, 0)
	require.NoError(t, err)
	require.NoError(t, m.Refork(g, 1, 0))
	require.Equal(t, 5, g.Seqs[1].Len)
	require.Equal(t, g.Seqs[0].Table(), g.Seqs[1].Table())
	require.NoError(t, m.Check(slices.Values([]*Group{g})))
}

// Ensure that the chunk freed last is taken first. A split must use the lower half (vllm/v0/RULES.md §11).
func TestTheBuddyAllocatorKeepsTheLowHalf(t *testing.T) {
	b, err := newBuddy(16, 8)
	require.NoError(t, err)
	for _, want := range []int32{8, 10, 12, 0} {
		start, _, ok := b.take(2)
		require.True(t, ok)
		require.Equal(t, want, start)
		if want == 10 {
			require.Equal(t, map[int][]int32{4: {12}, 8: {0}}, maps.Collect(b.Lists()))
		}
		if want == 12 {
			start, _, _ = b.take(2)
			require.EqualValues(t, 14, start)
		}
	}
}

func TestASwapWorksWhenItsMarkWrapsAround(t *testing.T) {
	m, g := twoSequences(t)
	m.mark = math.MaxUint32
	m.moved[5].mark = 1
	pairs, err := m.SwapOut(nil, g)
	require.NoError(t, err)
	require.Equal(t, []device.Pair{{Src: 5, Dst: 2}, {Src: 4, Dst: 1}}, pairs)
}

func TestManagerCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(m *Manager, g *Group){
		"a lost block":            func(m *Manager, _ *Group) { m.gpu.Unref(m.gpu.Take()) },
		"a reference too many":    func(m *Manager, g *Group) { m.gpu.Ref(g.Seqs[0].table[0]) },
		"a table on two devices":  func(_ *Manager, g *Group) { g.swapped = true },
		"a block in two places":   func(_ *Manager, g *Group) { g.Seqs[0].table[0] = g.Seqs[0].table[1] },
		"a miscounted entry":      func(m *Manager, _ *Group) { m.logical-- },
		"tokens without blocks":   func(_ *Manager, g *Group) { g.Seqs[0].Len = 9 },
		"a finished one's blocks": func(_ *Manager, g *Group) { g.Seqs[0].Finished = true },
	} {
		m, g := twoSequences(t)
		damage(m, g)
		require.Error(t, m.Check(slices.Values([]*Group{g})), name)
	}
}

func TestSchedulerCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(s *Scheduler){
		"a request in no queue":      func(s *Scheduler) { s.running.Remove(s.running.Head()) },
		"a request in a wrong queue": func(s *Scheduler) { at := s.running.Head(); s.running.Remove(at); s.swapped.PushBack(at) },
		"a waiting one with blocks":  func(s *Scheduler) { at := s.running.Head(); s.running.Remove(at); s.waiting.PushFront(at) },
		"waiting out of order":       func(s *Scheduler) { at := s.waiting.Head(); s.waiting.Remove(at); s.waiting.PushBack(at) },
	} {
		x, s := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 4}, wide, false)
		for id := range 3 {
			x.add(serve.Request{ID: id, Prompt: 3})
		}
		x.step()
		require.NoError(t, s.Check())
		damage(s)
		require.Error(t, s.Check(), name)
	}
}

// Ensure that the prefix's blocks stay on the GPU in a swap. Ensure also that a prompt must be longer than the prefix.
func TestThePrefixesBlocksBeginEveryTable(t *testing.T) {
	m, err := NewManager(Config{BlockSize: 4, NumGPUBlocks: 8, NumCPUBlocks: 8, Prefix: 10})
	require.NoError(t, err)
	require.Equal(t, []int32{7, 6}, m.prefix)
	require.Equal(t, 8, m.prefixTokens(), "two tokens fill no block")
	check := func(groups ...*Group) {
		t.Helper()
		require.NoError(t, m.Check(slices.Values(groups)))
	}
	check()

	require.ErrorIs(t, m.Allocate(&Group{Seqs: []Seq{{Len: 8}}}), ErrGroup)
	g := &Group{Seqs: []Seq{{Len: 11}, {Len: 11}}}
	require.NoError(t, m.Allocate(g))
	require.Equal(t, []int32{7, 6, 5}, g.Seqs[1].Table())
	require.Equal(t, 5, m.gpu.NumFree())
	require.Equal(t, 6, m.logical)
	check(g)

	out, err := m.SwapOut(nil, g)
	require.NoError(t, err)
	require.Equal(t, []device.Pair{{Src: 5, Dst: 7}}, out)
	require.Equal(t, []int32{7}, g.Seqs[0].Table())
	require.Zero(t, m.logical)
	require.Equal(t, 6, m.gpu.NumFree())
	check(g)

	in, err := m.SwapIn(nil, g)
	require.NoError(t, err)
	require.Equal(t, []device.Pair{{Src: 7, Dst: 5}}, in)
	require.Equal(t, []int32{7, 6, 5}, g.Seqs[0].Table())
	require.Equal(t, 6, m.logical)
	check(g)

	m.Free(g, 0)
	m.Free(g, 1)
	g.Seqs[0].Finished, g.Seqs[1].Finished = true, true
	check(g)
	require.EqualValues(t, 1, m.gpu.Count(7))

	_, err = NewManager(Config{BlockSize: 4, NumGPUBlocks: 2, Prefix: 12})
	require.ErrorIs(t, err, ErrConfig)
	s, err := NewSOSP(Config{BlockSize: 4, NumGPUBlocks: 8, NumCPUBlocks: 8, Prefix: 8}, Limits{MaxNumBatchedTokens: 20, MaxNumSeqs: 2}, false)
	require.NoError(t, err)
	require.ErrorIs(t, s.Add(serve.Request{ID: 1, Prompt: 8}), serve.ErrRequest)
}
