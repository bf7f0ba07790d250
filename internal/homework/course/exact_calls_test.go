package course

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

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

// call runs both of its parameters. The first makes a call of the library, and the second makes the same call of the
// yardstick. Sometimes an allocation fails in both the library and the yardstick. The library may ask for memory at
// most once during the call. If the library returns an error other than ErrNoMemory, it must not have asked for memory
// at all.
func (g *game) call(call func() error, want func()) error {
	if rapid.IntRange(0, 4).Draw(g.T, "inject") == 0 {
		n := rapid.IntRange(1, 4).Draw(g.T, "allocation that fails")
		g.arena.fail, g.y.fail = n, n
	}
	want()
	before := g.arena.calls
	err := call()
	require.LessOrEqual(g, g.arena.calls-before, 1, "crossings")
	if err != nil && err != ErrNoMemory {
		require.Equal(g, before, g.arena.calls, "a refused call asked for memory: %v", err)
	}
	g.arena.fail, g.y.fail = 0, 0
	return err
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
	g.make(engine, func() (*Sequence, error) { return g.library.Create(g.ours.engines[engine], id, length) },
		func() *Sequence { return g.y.create(g.theirs.engines[engine], id, length) })
}

func (g *game) fork(engine int, parent, id int32) {
	g.make(engine, func() (*Sequence, error) { return g.library.Fork(g.ours.engines[engine], parent, id) },
		func() *Sequence { return g.y.fork(g.theirs.engines[engine], parent, id) })
}

func (g *game) make(engine int, ours func() (*Sequence, error), theirs func() *Sequence) {
	if g.full() {
		return
	}
	var made, want *Sequence
	_ = g.call(func() (err error) { made, err = ours(); return err }, func() { want = theirs() })
	require.Equal(g, want == nil, made == nil)
	if made != nil {
		g.home[len(g.ours.seqs)] = engine
		g.ours.seqs = append(g.ours.seqs, made)
		g.theirs.seqs = append(g.theirs.seqs, want)
	}
}

func (g *game) append(engine int, id, data int32) {
	var want bool
	err := g.call(func() error { return g.library.Append(g.ours.engines[engine], id, data) },
		func() { want = g.y.append(g.theirs.engines[engine], id, data) })
	require.Equal(g, want, err == nil, "append: %v", err)
}

func (g *game) appendMany(engine int, id int32, times int) {
	for i := range times {
		g.append(engine, id, int32(i))
	}
}

func (g *game) free(engine int, id int32) {
	var want *Sequence
	err := g.call(func() error { return g.library.Free(g.ours.engines[engine], id) },
		func() { want = g.y.free(g.theirs.engines[engine], id) })
	require.Equal(g, want == nil, err != nil, "free: %v", err)
	if want != nil {
		i := g.theirs.name(want)
		g.ours.seqs[i], g.theirs.seqs[i] = nil, nil
	}
}

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
	g.all(engine, names, data, func(e *Engine) error { return g.library.AppendBatch(e, &pointers[0], &data[0], int32(len(data))) })
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
	g.all(engine, slices.Repeat([]int{i}, len(data)), data, func(e *Engine) error {
		return g.library.AppendRun(e, g.ours.seqs[i], &data[0], int32(len(data)))
	})
}

// all checks a call of llm_memory_ext.h. The call must have the same effect as single appends to the sequences in
// names. If one of these appends fails, the call must change nothing.
func (g *game) all(engine int, names []int, data []int32, call func(*Engine) error) {
	done := true
	err := g.call(func() error { return call(g.ours.engines[engine]) }, func() {
		e := g.theirs.engines[engine]
		trial := &model{yardstick: g.y, engine: e}
		if e.Pool != nil {
			trial.pool = g.theirs.pools[engine]
		}
		trial = trial.clone()
		linked, seqs := g.linked(engine), trial.sequences()
		for k := 0; k < len(names) && done; k++ {
			done = trial.appendTo(trial.engine, seqs[slices.Index(linked, names[k])], data[k])
		}
		for k := 0; k < len(names) && done; k++ {
			g.y.appendTo(e, g.theirs.seqs[names[k]], data[k])
		}
	})
	require.Equal(g, done, err == nil, "%v", err)
}

func (g *game) linked(engine int) []int {
	var names []int
	for _, s := range g.theirs.listed(engine) {
		names = append(names, g.theirs.name(s))
	}
	return names
}
