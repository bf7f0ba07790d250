package course

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The calls of the game, in both worlds.

func (g *game) engine() int { return rapid.IntRange(0, 1).Draw(g.T, "engine") }

// id prefers ids that live somewhere.
func (g *game) id() int32 {
	var ids []int32
	for _, s := range g.theirs.seqs {
		if s != nil {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) == 0 || rapid.IntRange(0, 9).Draw(g.T, "any id") == 0 {
		return g.newID()
	}
	return rapid.SampledFrom(ids).Draw(g.T, "id")
}

func (g *game) newID() int32 {
	switch rapid.IntRange(0, 20).Draw(g.T, "id kind") {
	case 0:
		return rapid.SampledFrom([]int32{-1, 0, -1 << 31, 1<<31 - 1}).Draw(g.T, "edge id")
	case 1, 2:
		return rapid.Int32Range(0, 60).Draw(g.T, "used id")
	}
	return rapid.Int32().Draw(g.T, "new id")
}

func (g *game) length() int32 {
	switch rapid.IntRange(0, 9).Draw(g.T, "length kind") {
	case 0:
		return rapid.SampledFrom([]int32{0, -5, 4096, 4097, 1<<31 - 1, 1<<31 - 16, -1 << 31}).Draw(g.T, "edge length")
	case 1:
		return rapid.Int32Range(1, 900).Draw(g.T, "long")
	}
	return rapid.Int32Range(1, 40).Draw(g.T, "length")
}

// inject makes the n-th allocation of the next call fail, in both worlds.
func (g *game) inject() {
	if rapid.IntRange(0, 4).Draw(g.T, "inject") == 0 {
		n := rapid.IntRange(1, 4).Draw(g.T, "allocation that fails")
		g.arena.state().fail, g.y.fail = n, n
	}
}

// called checks what holds for every call: it used Memory at most once, and not
// at all if it failed for another reason than memory.
func (g *game) called(err error, before guardedArena) {
	a := g.arena.state()
	require.LessOrEqual(g, a.calls-before.calls, 1, "crossings")
	if err != nil && err != ErrNoMemory {
		require.Equal(g, before.calls, a.calls, "a refused call asked for memory: %v", err)
	}
	a.fail, g.y.fail = 0, 0
}

func (g *game) full() bool {
	n := 0
	for _, s := range g.theirs.seqs {
		if s != nil {
			n++
		}
	}
	return n >= g.atMost
}

func (g *game) create(engine int, id, length int32) {
	if g.full() {
		return
	}
	g.inject()
	before := *g.arena.state()
	s, err := g.library.Create(g.ours.engines[engine], id, length)
	want := g.y.create(g.theirs.engines[engine], id, length)
	g.called(err, before)
	g.made(engine, s, want)
}

func (g *game) fork(engine int, parent, id int32) {
	if g.full() {
		return
	}
	g.inject()
	before := *g.arena.state()
	s, err := g.library.Fork(g.ours.engines[engine], parent, id)
	want := g.y.fork(g.theirs.engines[engine], parent, id)
	g.called(err, before)
	g.made(engine, s, want)
}

func (g *game) made(engine int, s, want *Sequence) {
	require.Equal(g, want == nil, s == nil)
	if s != nil {
		g.home[len(g.ours.seqs)] = engine
		g.ours.seqs = append(g.ours.seqs, s)
		g.theirs.seqs = append(g.theirs.seqs, want)
	}
}

func (g *game) append(engine int, id, data int32) {
	g.inject()
	before := *g.arena.state()
	err := g.library.Append(g.ours.engines[engine], id, data)
	want := g.y.append(g.theirs.engines[engine], id, data)
	g.called(err, before)
	require.Equal(g, want, err == nil, "append: %v", err)
}

func (g *game) appendMany(engine int, id int32, times int) {
	for i := range times {
		g.append(engine, id, int32(i))
	}
}

func (g *game) free(engine int, id int32) {
	before := *g.arena.state()
	err := g.library.Free(g.ours.engines[engine], id)
	want := g.y.free(g.theirs.engines[engine], id)
	g.called(err, before)
	require.Equal(g, want == nil, err != nil, "free: %v", err)
	if want != nil {
		i := g.theirs.name(want)
		g.ours.seqs[i], g.theirs.seqs[i] = nil, nil
	}
}

// batch must do what the single appends do, or nothing.
func (g *game) batch(engine int) {
	var pointers []*Sequence
	var names []int
	var data []int32
	live := g.linked(engine)
	if len(live) == 0 {
		return
	}
	for range rapid.IntRange(1, 30).Draw(g.T, "n") {
		i := rapid.SampledFrom(live).Draw(g.T, "sequence")
		names = append(names, i)
		pointers = append(pointers, g.ours.seqs[i])
		data = append(data, rapid.Int32().Draw(g.T, "data"))
	}
	g.inject()
	restore, liveBefore := g.theirs.snapshot(), g.y.live
	all := true
	for k, i := range names {
		if all = g.y.appendTo(g.theirs.engines[engine], g.theirs.seqs[i], data[k]); !all {
			break
		}
	}
	if !all {
		restore()
		g.y.live = liveBefore
	}
	before := *g.arena.state()
	err := g.library.AppendBatch(g.ours.engines[engine], &pointers[0], &data[0], int32(len(data)))
	g.called(err, before)
	require.Equal(g, all, err == nil, "batch: %v", err)
}

func (g *game) run(engine int) {
	live := g.linked(engine)
	if len(live) == 0 {
		return
	}
	i := rapid.SampledFrom(live).Draw(g.T, "sequence")
	data := make([]int32, rapid.SampledFrom([]int{1, 3, 16, 17, 40, 300, 4097}).Draw(g.T, "n"))
	for k := range data {
		data[k] = int32(k + 1)
	}
	g.inject()
	restore, liveBefore := g.theirs.snapshot(), g.y.live
	all := true
	for _, d := range data {
		if all = g.y.appendTo(g.theirs.engines[engine], g.theirs.seqs[i], d); !all {
			break
		}
	}
	if !all {
		restore()
		g.y.live = liveBefore
	}
	before := *g.arena.state()
	err := g.library.AppendRun(g.ours.engines[engine], g.ours.seqs[i], &data[0], int32(len(data)))
	g.called(err, before)
	require.Equal(g, all, err == nil, "run: %v", err)
}

// linked names the sequences in an engine's list.
func (g *game) linked(engine int) []int {
	var names []int
	for _, s := range g.theirs.listed(engine) {
		names = append(names, g.theirs.name(s))
	}
	return names
}
