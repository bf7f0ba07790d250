package course

import (
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The library and the yardstick go through the same random calls and outside
// writes; after each, every visible field must be equal (internal/README.md, decision 1).

// A kind of run: how long the lists get, and what the outside writer may do.
type kind struct {
	strict bool
	atMost int  // sequences in all lists together
	wild   bool // also what the header excludes beyond the first 16 nodes
	reuse  bool // freed memory comes back as new sequences
}

func TestShortListsAreExactWhateverIsWritten(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) { play(t, kind{atMost: plainNodes, wild: true, reuse: reuse}) })
	}
}

func TestLongListsAreExactUnderTheHeadersConditions(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) { play(t, kind{atMost: 60, reuse: reuse}) })
	}
}

func TestStrictIsExactWhateverIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { play(t, kind{strict: true, atMost: 40, wild: true}) })
}

// A game is the two worlds and what the outside writer keeps in mind.
type game struct {
	*rapid.T
	kind
	arena   testArena
	library *Library
	y       yardstick
	ours    world
	theirs  world
	loose   map[int]bool // unlinked by hand, not freed
	home    map[int]int  // the engine whose list a sequence is or was in
	migrant map[int]bool // was linked into another engine's list
}

const blocks = 48

func play(t *rapid.T, k kind) {
	g := &game{T: t, kind: k, loose: map[int]bool{}, home: map[int]int{}, migrant: map[int]bool{}}
	if k.reuse {
		g.arena = newReusingArena()
	} else {
		g.arena = newGuardedArena()
	}
	defer g.arena.state().close()
	g.library = &Library{Memory: g.arena, Strict: k.strict}
	g.begin()
	for range rapid.IntRange(0, k.atMost).Draw(t, "sequences") {
		g.create(0, int32(len(g.ours.seqs)), 1)
	}
	g.Repeat(map[string]func(*rapid.T){
		"":             func(*rapid.T) { g.compare() },
		"create":       func(*rapid.T) { g.create(g.engine(), g.newID(), g.length()) },
		"fork":         func(*rapid.T) { g.fork(g.engine(), g.id(), g.newID()) },
		"append":       func(*rapid.T) { g.append(g.engine(), g.id(), rapid.Int32().Draw(t, "data")) },
		"append again": func(*rapid.T) { g.appendMany(g.engine(), g.id(), rapid.IntRange(2, 40).Draw(t, "times")) },
		"batch":        func(*rapid.T) { g.batch(g.engine()) },
		"run":          func(*rapid.T) { g.run(g.engine()) },
		"free":         func(*rapid.T) { g.free(g.engine(), g.id()) },
		"write table":  func(*rapid.T) { g.writeTable() },
		"write count":  func(*rapid.T) { g.writeCount() },
		"write fields": func(*rapid.T) { g.writeFields() },
		"write list":   func(*rapid.T) { g.writeList() },
	})
	g.end()
}

// begin makes an engine by llm_init and one by hand, which the library never saw
// being made.
func (g *game) begin() {
	for _, w := range []*world{&g.ours, &g.theirs} {
		for i := range 2 {
			pool := make([]int32, blocks*KVPerBlock)
			for k := range pool {
				pool[k] = magic(k)
			}
			w.pools = append(w.pools, pool)
			var e *Engine
			switch {
			case w == &g.theirs:
				e = &Engine{}
			case i == 0:
				made, err := g.library.Init(unsafe.Pointer(&pool[0]), blocks*BlockSize)
				require.NoError(g, err)
				w.engines = append(w.engines, made)
				continue
			default:
				e = (*Engine)(g.arena.one(engineSize))
			}
			counts := (*[blocks]int32)(g.memoryFor(w, blocks*4))
			*counts = [blocks]int32{}
			*e = Engine{Pool: unsafe.Pointer(&pool[0]), Total: blocks, Free: blocks, RefCount: &counts[0]}
			e.Active = Node{Prev: &e.Active, Next: &e.Active}
			w.engines = append(w.engines, e)
		}
	}
	g.y.live = 4
}

func (g *game) memoryFor(w *world, size uintptr) unsafe.Pointer {
	if w == &g.theirs {
		return unsafe.Pointer(&make([]int64, size/8)[0])
	}
	return g.arena.one(size)
}

// end destroys both engines; nothing that was linked may be left.
func (g *game) end() {
	for i := range g.theirs.engines {
		for _, s := range g.theirs.listed(i) {
			g.theirs.seqs[g.theirs.name(s)] = nil
		}
		g.y.destroy(g.theirs.engines[i])
		require.NoError(g, g.library.Destroy(g.ours.engines[i]))
	}
	require.Equal(g, g.y.live, len(g.arena.state().live), "allocations left after destroying")
	require.Zero(g, g.library.Append(nil, 0, 0) == nil)
}

func (g *game) compare() {
	require.NoError(g, g.library.check())
	want, got := g.theirs.describe(g.loose), g.ours.describe(g.loose)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			require.FailNow(g, "the states differ", "handout: %v\nlibrary: %v",
				want[min(i, len(want)):min(i+3, len(want))], got[min(i, len(got)):min(i+3, len(got))])
		}
	}
	require.Equal(g, g.y.live, len(g.arena.state().live), "live allocations")
}

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

// both applies one outside write to both worlds.
func (g *game) both(write func(w *world)) {
	write(&g.ours)
	write(&g.theirs)
}

// some draws a sequence that exists, linked or loose; -1 if there is none.
func (g *game) some() int {
	var names []int
	for i, s := range g.theirs.seqs {
		if s != nil {
			names = append(names, i)
		}
	}
	if len(names) == 0 {
		return -1
	}
	return rapid.SampledFrom(names).Draw(g.T, "written sequence")
}

func (g *game) writeTable() {
	i := g.some()
	if i < 0 || g.theirs.seqs[i].BlockTable == nil {
		return
	}
	engine := g.home[i]
	from := rapid.IntRange(0, L1Size-1).Draw(g.T, "L1")
	for k := 0; k < L1Size && g.theirs.seqs[i].BlockTable[from] == nil; k++ {
		from = (from + 1) % L1Size
	}
	to := rapid.IntRange(0, L1Size-1).Draw(g.T, "L1 to")
	slot := rapid.IntRange(0, L2Size-1).Draw(g.T, "L2")
	if g.theirs.seqs[i].BlockTable[from] == nil {
		return
	}
	what := rapid.IntRange(0, 6).Draw(g.T, "table write")
	value := rapid.SampledFrom([]int32{-1, 0, 5, blocks - 1, blocks, blocks + 9, -2, -1 << 31, 1<<31 - 1}).Draw(g.T, "entry")
	g.both(func(w *world) {
		e, table := w.engines[engine], w.seqs[i].BlockTable
		entry := &table[from][slot]
		switch what {
		case 0: // another L1 slot
			table[from], table[to] = table[to], table[from]
		case 1, 2: // a hole, with the counts adjusted
			if id := *entry; id >= 0 && id < blocks {
				if *e.count(id)--; *e.count(id) == 0 {
					e.Free++
				}
			}
			*entry = -1
		case 3: // a hole, without
			*entry = -1
		case 4: // far away
			to := &table[from][(slot+7)%L2Size]
			*entry, *to = *to, *entry
		case 5:
			*entry = value
		case 6: // a table freed by hand
			g.dropFrom(w, unsafe.Pointer(table[from]))
			table[from] = nil
		}
	})
}

// dropFrom is the tester's free.
func (g *game) dropFrom(w *world, p unsafe.Pointer) {
	if w == &g.ours {
		g.arena.drop(p)
	} else {
		g.y.live--
	}
}

func (g *game) writeCount() {
	engine := g.engine()
	id := rapid.Int32Range(0, blocks-1).Draw(g.T, "block")
	value := rapid.SampledFrom([]int32{0, 0, 1, 2, 3, -1, -1 << 31}).Draw(g.T, "count")
	step := rapid.SampledFrom([]int32{0, 1, -1}).Draw(g.T, "step")
	g.both(func(w *world) {
		if e := w.engines[engine]; step != 0 {
			*e.count(id) += step
		} else {
			*e.count(id) = value
		}
	})
}

func (g *game) writeFields() {
	engine, i := g.engine(), g.some()
	small := rapid.Int32Range(-3, 50).Draw(g.T, "value")
	position := rapid.SampledFrom([]int32{0, 15, 16, 255, 256, 4094, 4095, 4096, -1, -1 << 31, 1<<31 - 1}).Draw(g.T, "kv_count")
	switch what := rapid.IntRange(0, 6).Draw(g.T, "field"); what {
	case 0:
		g.both(func(w *world) { w.engines[engine].Free = small })
	case 1:
		g.both(func(w *world) { w.engines[engine].Free += small % 2 })
	case 2:
		total := rapid.SampledFrom([]int32{blocks, blocks, blocks - 5, 1, 0, -1}).Draw(g.T, "total")
		g.both(func(w *world) { w.engines[engine].Total = total })
	case 3, 4:
		if i >= 0 {
			g.both(func(w *world) { w.seqs[i].KVCount = position })
		}
	case 5:
		if i >= 0 {
			g.rename(i)
		}
	case 6:
		if i >= 0 && rapid.IntRange(0, 9).Draw(g.T, "drop table") == 0 {
			g.both(func(w *world) {
				if s := w.seqs[i]; s.BlockTable != nil {
					for _, l2 := range s.BlockTable {
						if l2 != nil {
							g.dropFrom(w, unsafe.Pointer(l2))
						}
					}
					g.dropFrom(w, unsafe.Pointer(s.BlockTable))
					s.BlockTable = nil
				}
			})
		}
	}
}

// rename keeps ids unique among all sequences, and those of loose ones as they
// are, unless the writer is wild.
func (g *game) rename(i int) {
	id := g.newID()
	if g.wild {
		id = g.id()
	}
	if !g.wild && (g.loose[i] || g.taken(id)) {
		return
	}
	g.both(func(w *world) { w.seqs[i].ID = id })
}

func (g *game) taken(id int32) bool {
	return slices.ContainsFunc(g.theirs.seqs, func(s *Sequence) bool { return s != nil && s.ID == id })
}

func (g *game) writeList() {
	i := g.some()
	if i < 0 {
		return
	}
	switch what := rapid.IntRange(0, 5).Draw(g.T, "list write"); {
	case g.loose[i] && what <= 3:
		g.relink(i)
	case g.loose[i]:
		g.dispose(i)
	case what == 5 && g.wild:
		g.cut(i)
	default:
		g.unlink(i, what)
	}
}

// unlink takes one sequence out, as list_del or list_del_init does.
func (g *game) unlink(i, what int) {
	if n := &g.theirs.seqs[i].Node; n.Prev == nil || n.Next == nil {
		return
	}
	g.both(func(w *world) {
		n := &w.seqs[i].Node
		n.Prev.Next, n.Next.Prev = n.Next, n.Prev
		switch what {
		case 0, 1:
			n.Prev, n.Next = n, n
		case 2:
			n.Prev, n.Next = nil, nil
		}
	})
	g.loose[i] = true
}

// relink puts a loose sequence anywhere in either list. Two that came from the
// other list are not put side by side unless the writer is wild: a stretch that
// moves as a whole is what the header excludes.
func (g *game) relink(i int) {
	engine := g.engine()
	if !g.wild && slices.ContainsFunc(g.theirs.listed(engine), func(s *Sequence) bool { return s.ID == g.theirs.seqs[i].ID }) {
		return
	}
	position := rapid.IntRange(0, len(g.theirs.listed(engine))).Draw(g.T, "position")
	if !g.wild && engine != g.home[i] {
		list := g.linked(engine)
		if position > 0 && g.migrant[list[position-1]] || position < len(list) && g.migrant[list[position]] {
			return
		}
		g.migrant[i] = true
	}
	g.both(func(w *world) {
		before := &w.engines[engine].Active
		if list := w.listed(engine); position < len(list) {
			before = &list[position].Node
		}
		n := &w.seqs[i].Node
		n.Prev, n.Next = before.Prev, before
		before.Prev.Next = n
		before.Prev = n
	})
	delete(g.loose, i)
	g.home[i] = engine
}

// dispose frees a loose sequence by hand, once its id has been looked up, and
// those of the loose ones that stood beside it.
func (g *game) dispose(i int) {
	node := &g.theirs.seqs[i].Node
	for _, k := range slices.Sorted(maps.Keys(g.loose)) {
		if s := g.theirs.seqs[k]; s != nil && (k == i || s.Node.Prev == node || s.Node.Next == node) {
			g.append(0, s.ID, 1)
			g.append(1, s.ID, 1)
		}
	}
	g.both(func(w *world) {
		s := w.seqs[i]
		if s.BlockTable != nil {
			for _, l2 := range s.BlockTable {
				if l2 != nil {
					g.dropFrom(w, unsafe.Pointer(l2))
				}
			}
			g.dropFrom(w, unsafe.Pointer(s.BlockTable))
		}
		g.dropFrom(w, unsafe.Pointer(s))
		w.seqs[i] = nil
	})
	delete(g.loose, i)
}

// cut takes a stretch out as a whole.
func (g *game) cut(i int) {
	length := rapid.IntRange(1, 6).Draw(g.T, "stretch")
	engine := -1
	for e := range g.theirs.engines {
		if slices.Contains(g.linked(e), i) {
			engine = e
		}
	}
	if engine < 0 {
		return
	}
	list := g.linked(engine)
	at := slices.Index(list, i)
	stretch := list[at:min(at+length, len(list))]
	g.both(func(w *world) {
		first, last := &w.seqs[stretch[0]].Node, &w.seqs[stretch[len(stretch)-1]].Node
		first.Prev.Next, last.Next.Prev = last.Next, first.Prev
	})
	for _, k := range stretch {
		g.loose[k] = true
	}
}
