package v0

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/testkit/servetest"
)

// traffic makes random calls of a manager. Sequences of a group are swapped together. There are few different tokens,
// so that prompts often have a common prefix.
type traffic struct {
	m      *Manager
	groups []*group
}

type group struct {
	seqs    []*Seq
	swapped bool
}

func (x *traffic) seqs(yield func(*Seq) bool) {
	for _, g := range x.groups {
		for _, s := range g.seqs {
			if !yield(s) {
				return
			}
		}
	}
}

func drawConfig(t *rapid.T) Config {
	c := Config{
		BlockSize:    rapid.IntRange(1, 5).Draw(t, "block"),
		NumGPUBlocks: rapid.IntRange(0, 24).Draw(t, "gpu"),
		Watermark:    float64(rapid.IntRange(0, 20).Draw(t, "watermark")) / 100,
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		c.EnablePrefixCaching = true
	case 1:
		c.SlidingWindow = rapid.IntRange(1, 12).Draw(t, "window")
	default:
		c.NumCPUBlocks = rapid.IntRange(0, 16).Draw(t, "cpu")
	}
	return c
}

func content(t *rapid.T, n int) []int32 {
	tokens := make([]int32, n)
	seed := rapid.Int32Range(0, 1).Draw(t, "prompt")
	differs := rapid.IntRange(0, n).Draw(t, "differs")
	for i := range tokens {
		tokens[i] = seed
		if i >= differs {
			tokens[i] = 2 + seed
		}
	}
	return tokens
}

const longest = 48

func (x *traffic) allocate(t *rapid.T) {
	n := rapid.IntRange(0, 30).Draw(t, "tokens")
	tokens := content(t, longest)
	g := &group{}
	for range rapid.IntRange(1, 3).Draw(t, "seqs") {
		g.seqs = append(g.seqs, &Seq{Len: n, Tokens: slices.Clone(tokens)})
	}
	says := x.m.CanAllocate(n, 0)
	fails := x.runsOut(func(m *Manager, _ []*Seq) { m.allocate(cloneSeq(g.seqs[0])) })
	before := x.dump()
	err := x.m.Allocate(g.seqs[0], g.seqs[1:]...)
	require.Equal(t, fails, err != nil, "the plain algorithm runs out: %t", fails)
	if err != nil {
		require.ErrorIs(t, err, ErrNoFreeBlocks)
		require.Equal(t, before, x.dump())
		require.True(t, says != OK || x.m.config.SlidingWindow > 0, "the manager reported that it fits")
		return
	}
	x.groups = append(x.groups, g)
}

func (x *traffic) pick(t *rapid.T, swapped bool) *group {
	var list []*group
	for _, g := range x.groups {
		if g.swapped == swapped {
			list = append(list, g)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(t, "group")
}

func (x *traffic) appendTokens(t *rapid.T) {
	g := x.pick(t, false)
	if g == nil {
		return
	}
	lookahead := rapid.IntRange(0, 3).Draw(t, "lookahead")
	for _, s := range g.seqs {
		s.Len = min(longest, s.Len+rapid.IntRange(0, 6).Draw(t, "more"))
	}
	says := x.m.CanAppend(lookahead, g.seqs...)
	for _, s := range g.seqs {
		computed := rapid.IntRange(0, s.full).Draw(t, "computed")
		at := x.index(s)
		fails := x.runsOut(func(m *Manager, seqs []*Seq) { m.append(nil, seqs[at], lookahead, computed) })
		before := x.dump()
		old := slices.Clone(s.table)
		copies, err := x.m.Append(nil, s, lookahead, computed)
		require.Equal(t, fails, err != nil, "the plain algorithm runs out: %t", fails)
		if err != nil {
			require.ErrorIs(t, err, ErrNoFreeBlocks)
			require.Equal(t, before, x.dump())
			require.True(t, !says || x.m.config.SlidingWindow > 0, "the manager reported that it fits")
			s.Len = s.full
			continue
		}
		require.Equal(t, s.Len, s.full)
		for _, c := range copies {
			require.Contains(t, old, c.Src)
			require.Greater(t, x.m.gpu.Count(c.Src), int32(0), "the source of a copy is free")
		}
		require.NoError(t, x.m.Check(x.seqs))
	}
}

func (x *traffic) index(s *Seq) int {
	return slices.Index(slices.Collect(x.seqs), s)
}

func (x *traffic) fork(t *rapid.T) {
	if g := x.pick(t, rapid.Bool().Draw(t, "swapped")); g != nil {
		parent := rapid.SampledFrom(g.seqs).Draw(t, "parent")
		child := &Seq{Len: parent.Len, Tokens: content(t, longest)}
		copy(child.Tokens, parent.Tokens[:parent.Len])
		free := x.m.View.FreeGPU()
		err := x.m.Fork(parent, child)
		require.Equal(t, parent.moved, err != nil)
		if err == nil {
			require.Equal(t, free, x.m.View.FreeGPU())
			g.seqs = append(g.seqs, child)
		}
	}
}

func (x *traffic) free(t *rapid.T) {
	g := x.pick(t, rapid.Bool().Draw(t, "swapped"))
	if g == nil {
		return
	}
	at := rapid.IntRange(0, len(g.seqs)-1).Draw(t, "seq")
	if rapid.Bool().Draw(t, "accessed") {
		x.m.Access(float64(rapid.IntRange(0, 9).Draw(t, "now")), g.seqs[at])
	}
	x.m.Free(g.seqs[at])
	if g.seqs = slices.Delete(g.seqs, at, at+1); len(g.seqs) == 0 {
		x.groups = slices.DeleteFunc(x.groups, func(o *group) bool { return o == g })
	}
}

func (x *traffic) swap(t *rapid.T) {
	g := x.pick(t, rapid.Bool().Draw(t, "swapped"))
	if g == nil {
		return
	}
	before := x.dump()
	move, ok := x.m.SwapOut, x.m.CanSwapOut(g.seqs...)
	free := x.m.View.FreeCPU()
	if g.swapped {
		move, ok = x.m.SwapIn, x.m.CanSwapIn(0, g.seqs...) == OK
		free = x.m.View.FreeGPU()
	}
	entries, empty := 0, false
	for _, s := range g.seqs {
		entries += len(s.table)
		empty = empty || len(s.table) > ceil(s.full, x.m.config.BlockSize)
	}
	pairs, err := move(nil, g.seqs...)
	if err != nil {
		require.Equal(t, before, x.dump())
		refused := x.m.config.EnablePrefixCaching || slices.ContainsFunc(g.seqs, func(s *Seq) bool { return s.moved })
		require.True(t, refused || entries > free, "%v", err)
		require.True(t, refused || !ok || empty, "the manager reported that it fits: %v", err)
		return
	}
	require.Len(t, pairs, entries)
	g.swapped = !g.swapped && entries > 0
}

// runsOut reports whether f panics because no blocks are free. It calls f with copies of the manager and the
// sequences, so that the real ones do not change.
func (x *traffic) runsOut(f func(m *Manager, seqs []*Seq)) (panicked bool) {
	m := *x.m
	m.gpu, m.cpu = m.gpu.Clone(), m.cpu.Clone()
	if m.prefix != nil {
		p := *m.prefix
		p.cached, p.blocks, p.touched = maps.Clone(p.cached), slices.Clone(p.blocks), slices.Clone(p.touched)
		evictor := reqtable.NewQueues(len(p.blocks), 1)[0]
		for id := range p.evictor.All() {
			evictor.PushBack(id)
		}
		p.evictor = evictor
		m.prefix = &p
	}
	var seqs []*Seq
	for s := range x.seqs {
		seqs = append(seqs, cloneSeq(s))
	}
	defer func() { panicked = recover() != nil }()
	f(&m, seqs)
	return false
}

func cloneSeq(s *Seq) *Seq {
	c := *s
	c.table, c.computed = slices.Clone(s.table), slices.Clone(s.computed)
	return &c
}

func (x *traffic) dump() string {
	text := fmt.Sprint(slices.Collect(x.m.gpu.Free()), x.m.gpu.Counts(), slices.Collect(x.m.cpu.Free()), x.m.cpu.Counts(), x.m.null, x.m.View.Evictor(), x.m.View.Cached(), x.m.logical)
	for s := range x.seqs {
		text += fmt.Sprint(s.table, s.full, s.moved)
	}
	return text
}

// Ensure that a call is refused exactly when there are too few blocks. A refused call must change nothing.
func TestBlocksAreConservedAfterEveryOperation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(drawConfig(t))
		require.NoError(t, err)
		x := &traffic{m: m}
		t.Repeat(map[string]func(*rapid.T){
			"allocate": x.allocate,
			"append":   x.appendTokens,
			"fork":     x.fork,
			"free":     x.free,
			"swap":     x.swap,
			"mark":     func(*rapid.T) { m.MarkComputed() },
			"computed": func(t *rapid.T) {
				if g := x.pick(t, false); g != nil {
					for _, id := range m.Computed(nil, g.seqs...) {
						require.True(t, m.prefix.blocks[id].computed)
					}
				}
			},
			"": func(t *rapid.T) { require.NoError(t, m.Check(x.seqs)) },
		})
	})
}

func drawScheduler(t *rapid.T) (*Scheduler, *servetest.System) {
	config := SchedulerConfig{
		Manager:     drawConfig(t),
		MaxNumSeqs:  rapid.IntRange(1, 6).Draw(t, "seqs"),
		MaxModelLen: longest,
	}
	if !config.Manager.EnablePrefixCaching {
		config.Chunked = rapid.Bool().Draw(t, "chunked")
	}
	config.MaxNumBatchedTokens = rapid.IntRange(config.MaxNumSeqs, 40).Draw(t, "tokens")
	if !config.Manager.EnablePrefixCaching && config.Manager.SlidingWindow == 0 && rapid.Bool().Draw(t, "swap") {
		config.Mode = Swap
	}
	s, err := NewScheduler(config)
	require.NoError(t, err)
	return s, &servetest.System{
		Scheduler: s, Check: s.Check, Table: func(id, _ int) []int32 { return s.Table(id) },
		BlockSize: config.Manager.BlockSize, MaxTokens: config.MaxNumBatchedTokens, Prompts: longest, Stuck: ErrNoFreeBlocks,
		Shared: config.Manager.EnablePrefixCaching, Window: config.Manager.SlidingWindow,
		// With chunked prompts a request can wait for ever. The request already has blocks for its whole prompt, but
		// CanAppend requires a free block for the next chunk if the last block is partly filled. If no block is free,
		// the request preempts itself at its second chunk, again and again.
		Live: config.Mode == Recompute && config.Manager.SlidingWindow == 0 && !config.Chunked,
	}
}

// Ensure that every sequence attends to its own tokens in each iteration, and each accepted request is answered.
func TestTheSchedulersQueuesStaySound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, system := drawScheduler(t)
		servetest.Run(t, system)
	})
}
