package v0

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/block"
)

// traffic is a manager under random operations. Sequences of a group are
// swapped together; their tokens are drawn from few, so prefixes meet.
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
		Block:     rapid.IntRange(1, 5).Draw(t, "block"),
		GPU:       rapid.IntRange(0, 24).Draw(t, "gpu"),
		Watermark: float64(rapid.IntRange(0, 20).Draw(t, "watermark")) / 100,
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		c.Caching = true
	case 1:
		c.Window = rapid.IntRange(1, 12).Draw(t, "window")
	default:
		c.CPU = rapid.IntRange(0, 16).Draw(t, "cpu")
	}
	return c
}

// content is a sequence's tokens: mostly one of two prompts.
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
		require.True(t, says != OK || x.m.config.Window > 0, "it was said to fit")
		return
	}
	x.groups = append(x.groups, g)
}

// pick draws a group on the GPU or the CPU, or nil.
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
			require.True(t, !says || x.m.config.Window > 0, "it was said to fit")
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
		free := x.m.FreeGPU()
		err := x.m.Fork(parent, child)
		require.Equal(t, parent.moved, err != nil)
		if err == nil {
			require.Equal(t, free, x.m.FreeGPU())
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
	room := x.m.FreeCPU()
	if g.swapped {
		move, ok = x.m.SwapIn, x.m.CanSwapIn(0, g.seqs...) == OK
		room = x.m.FreeGPU()
	}
	entries, empty := 0, false
	for _, s := range g.seqs {
		entries += len(s.table)
		empty = empty || len(s.table) > ceil(s.full, x.m.config.Block)
	}
	pairs, err := move(nil, g.seqs...)
	if err != nil {
		require.Equal(t, before, x.dump())
		refused := x.m.config.Caching || slices.ContainsFunc(g.seqs, func(s *Seq) bool { return s.moved })
		require.True(t, refused || entries > room, "%v", err)
		require.True(t, refused || !ok || empty, "it was said to fit: %v", err)
		return
	}
	require.Len(t, pairs, entries)
	g.swapped = !g.swapped && entries > 0
}

// runsOut says whether f, on a copy of everything, takes a block that there is
// not.
func (x *traffic) runsOut(f func(m *Manager, seqs []*Seq)) (out bool) {
	m := *x.m
	m.gpu, m.cpu = m.gpu.Clone(), m.cpu.Clone()
	if m.prefix != nil {
		p := *m.prefix
		p.cached, p.blocks, p.touched = maps.Clone(p.cached), slices.Clone(p.blocks), slices.Clone(p.touched)
		m.prefix = &p
	}
	var seqs []*Seq
	for s := range x.seqs {
		seqs = append(seqs, cloneSeq(s))
	}
	defer func() { out = recover() != nil }()
	f(&m, seqs)
	return false
}

func cloneSeq(s *Seq) *Seq {
	c := *s
	c.table, c.computed = slices.Clone(s.table), slices.Clone(s.computed)
	return &c
}

// dump is the whole state as text.
func (x *traffic) dump() string {
	text := fmt.Sprint(slices.Collect(x.m.gpu.Free()), x.m.gpu.Counts(), slices.Collect(x.m.cpu.Free()), x.m.cpu.Counts(), x.m.null, x.m.Evictor(), x.m.Cached(), x.m.logical)
	for s := range x.seqs {
		text += fmt.Sprint(s.table, s.full, s.moved)
	}
	return text
}

// Ensure that blocks are conserved after every operation, that a refused one
// changes nothing, and that it is refused exactly if blocks would run out.
func TestTraffic(t *testing.T) {
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

// Ensure that Check sees what it is for.
func TestCheckSeesDamage(t *testing.T) {
	damage := map[string]func(m *Manager, s *Seq){
		"a block in two places of a table":    func(_ *Manager, s *Seq) { s.table[1] = s.table[0] },
		"a block that nobody names":           func(_ *Manager, s *Seq) { s.table = s.table[:1]; s.full = 2 },
		"a reference too many":                func(m *Manager, s *Seq) { m.gpu.Ref(s.table[0]) },
		"a block in use in the stack":         func(m *Manager, s *Seq) { m.gpu.Drop(s.table[0]) },
		"a block lost":                        func(m *Manager, _ *Seq) { m.gpu.Unref(m.gpu.Take()) },
		"tokens without blocks":               func(_ *Manager, s *Seq) { s.full, s.Len = 9, 9 },
		"a key of another prefix":             func(m *Manager, s *Seq) { m.prefix.blocks[s.table[0]].tokens = 4 },
		"a cached block that cannot be found": func(m *Manager, _ *Seq) { clear(m.prefix.cached) },
		"an evictor of another length":        func(m *Manager, _ *Seq) { m.prefix.evictable++ },
		"a miscounted entry":                  func(m *Manager, _ *Seq) { m.logical++ },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			m, err := New(Config{Block: 2, GPU: 8, Caching: true})
			require.NoError(t, err)
			s := &Seq{Len: 5, Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}}
			require.NoError(t, m.Allocate(s))
			all := func(yield func(*Seq) bool) { yield(s) }
			require.NoError(t, m.Check(all))
			f(m, s)
			require.Error(t, m.Check(all))
		})
	}
}

// Ensure that misuse and what vLLM gets wrong is refused, with a reason.
func TestRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"blocks without tokens":   {GPU: 1},
		"a negative device":       {Block: 1, GPU: -1},
		"more than all":           {Block: 1, Watermark: 1.5},
		"a negative window":       {Block: 1, Window: -1},
		"a window that is cached": {Block: 1, Window: 1, Caching: true},
	} {
		_, err := New(c)
		require.ErrorIs(t, err, ErrConfig, name)
	}
	m, err := New(Config{Block: 2, GPU: 20, CPU: 20, Window: 2})
	require.NoError(t, err)
	s := &Seq{Len: 16}
	require.NoError(t, m.Allocate(s))
	require.ErrorIs(t, m.Allocate(s), ErrSequence)
	require.ErrorIs(t, m.Fork(s, s), ErrSequence)
	_, err = m.Append(nil, &Seq{}, 0, 0)
	require.ErrorIs(t, err, ErrSequence)
	_, err = m.SwapIn(nil, s)
	require.ErrorIs(t, err, ErrSequence)
	_, err = m.Append(nil, s, 0, 16)
	require.NoError(t, err)
	_, err = m.SwapOut(nil, s)
	require.ErrorIs(t, err, ErrSequence, "behind a moved window")
	require.ErrorIs(t, m.Fork(s, &Seq{Len: 16}), ErrSequence, "behind a moved window")

	child := &Seq{}
	require.NoError(t, m.Fork(&Seq{}, child), "of a parent that is unknown")
	require.False(t, child.known)
	m.Free(&Seq{}) // unknown, too
}

// Ensure that an append can do with a block that a promotion gives back in the
// middle of it: the pool is full, and both blocks that it writes are shared.
func TestPromotionHelps(t *testing.T) {
	m, err := New(Config{Block: 2, GPU: 6, Caching: true})
	require.NoError(t, err)
	tokens := []int32{1, 2, 3, 4, 5, 6}
	other := &Seq{Len: 4, Tokens: tokens}
	require.NoError(t, m.Allocate(other))
	s := &Seq{Len: 3, Tokens: tokens}
	require.NoError(t, m.Allocate(s))
	_, err = m.Append(nil, s, 1, 3) // an empty block behind the partial one
	require.NoError(t, err)
	_, err = m.Append(nil, s, 3, 3)
	require.NoError(t, err)
	child := &Seq{Len: 3, Tokens: tokens}
	require.NoError(t, m.Fork(s, child))
	for m.FreeGPU() > 1 {
		require.NoError(t, m.Allocate(&Seq{Len: 1, Tokens: []int32{9}}))
	}
	s.Len = 6
	require.Len(t, s.table, 3)
	require.Equal(t, 2, m.copies(s))
	copies, err := m.Append(nil, s, 0, 3)
	require.NoError(t, err)
	require.Equal(t, block.Pair{Src: child.table[2], Dst: s.table[2]}, copies[1])
	require.Equal(t, other.table[1], s.table[1])
}

// Ensure that blocks count as computed when the batch that computes them is
// made, the last one of a table never does, and a sequence that was scheduled
// before keeps the answer it got then.
func TestComputed(t *testing.T) {
	m, err := New(Config{Block: 2, GPU: 20, Caching: true})
	require.NoError(t, err)
	tokens := []int32{1, 2, 3, 4, 5, 6, 7}
	with := func(n int) *Seq {
		s := &Seq{Len: n, Tokens: tokens}
		require.NoError(t, m.Allocate(s))
		return s
	}
	first := with(7)
	require.Empty(t, m.Computed(nil, first))
	same := with(7)
	require.Empty(t, m.Computed(nil, same), "in the same batch")
	m.MarkComputed()
	require.Empty(t, m.Computed(nil, first), "behind a gap")
	later, short := with(7), with(6)
	require.Equal(t, first.table[:3], m.Computed(nil, later))
	require.Equal(t, first.table[:2], m.Computed(nil, short))
	require.Equal(t, first.table[:2], m.Computed(nil, first, later, short), "the common beginning of those that have any")
	queries, hits := m.Hits()
	require.Equal(t, [2]int{12, 9}, [2]int{queries, hits})

	for _, s := range []*Seq{first, same, later, short} {
		m.Free(s)
	}
	require.Equal(t, 20, m.FreeGPU())
	again := with(7)
	require.Len(t, m.Computed(nil, again), 3, "restored blocks are computed")
}

// Ensure that a sequence gets the block that holds the same prefix when its own
// becomes full, without a copy, and its own is free.
func TestPromotionToTheSamePrefix(t *testing.T) {
	m, err := New(Config{Block: 2, GPU: 4, Caching: true})
	require.NoError(t, err)
	a, b := &Seq{Len: 1, Tokens: []int32{1, 2}}, &Seq{Len: 1, Tokens: []int32{1, 2}}
	require.NoError(t, m.Allocate(a))
	require.NoError(t, m.Allocate(b))
	for _, s := range []*Seq{a, b} {
		s.Len = 2
		copies, err := m.Append(nil, s, 0, 1)
		require.NoError(t, err)
		require.Empty(t, copies)
	}
	require.Equal(t, []int32{0}, a.table)
	require.Equal(t, []int32{0}, b.table)
	require.Equal(t, 3, m.FreeGPU())
	require.Equal(t, []int32{1, 2, 3}, slices.Collect(m.gpu.Free()))
}
