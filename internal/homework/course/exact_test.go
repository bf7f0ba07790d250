package course

import (
	"testing"
	"unsafe"

	"llmmemory/internal/testkit/rapidtest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The test makes the same random calls with the library and with the handout's plain algorithm (yardstick). It also
// writes to the structs of both, as a grader does. After each call or write, all fields that llm_memory.h shows must
// be equal in both (internal/README.md, decision 1).

type kind struct {
	name   string
	strict bool
	atMost int  // sequences in all lists together
	writes bool // from outside; without them, every state is consistent
	wild   bool // also writes that llm_memory.h does not allow beyond the first 16 nodes
	reuse  bool // freed memory comes back as new sequences
}

// kinds are also the kinds of FuzzCalls.
var kinds = []kind{
	{name: "short lists, whatever is written", atMost: plainNodes, writes: true, wild: true},
	{name: "short lists in memory that is reused", atMost: plainNodes, writes: true, wild: true, reuse: true},
	{name: "long lists under the header's conditions", atMost: 60, writes: true},
	{name: "long lists in memory that is reused", atMost: 60, writes: true, reuse: true},
	{name: "a strict library, whatever is written", strict: true, atMost: 40, writes: true, wild: true},
	{name: "without an outside writer every engine is consistent", atMost: 40, reuse: true},
}

func TestEveryCallIsExact(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			rapidtest.Check(t, func(t *rapid.T) { play(t, k) })
		})
	}
}

type game struct {
	*rapid.T
	kind
	arena   *testArena
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
	g := &game{T: t, kind: k, arena: newArena(k.reuse), loose: map[int]bool{}, home: map[int]int{}, migrant: map[int]bool{}}
	defer g.arena.close()
	g.library = &Library{Memory: g.arena, Strict: k.strict}
	g.begin()
	for range rapid.IntRange(0, k.atMost).Draw(t, "sequences") {
		g.create(0, int32(len(g.ours.seqs)), 1)
	}
	actions := map[string]func(*rapid.T){
		"":             func(*rapid.T) { g.compare() },
		"create":       func(*rapid.T) { g.create(g.engine(), g.newID(), g.length()) },
		"fork":         func(*rapid.T) { g.fork(g.engine(), g.id(), g.newID()) },
		"append":       func(*rapid.T) { g.append(g.engine(), g.id(), rapid.Int32().Draw(t, "data")) },
		"append again": func(*rapid.T) { g.appendMany(g.engine(), g.id(), rapid.IntRange(2, 40).Draw(t, "times")) },
		"batch":        func(*rapid.T) { g.batch(g.engine()) },
		"run":          func(*rapid.T) { g.run(g.engine()) },
		"free":         func(*rapid.T) { g.free(g.engine(), g.id()) },
	}
	if k.writes {
		actions["write table"] = func(*rapid.T) { g.writeTable() }
		actions["write count"] = func(*rapid.T) { g.writeCount() }
		actions["write fields"] = func(*rapid.T) { g.writeFields() }
		actions["write list"] = func(*rapid.T) { g.writeList() }
	}
	g.Repeat(actions)
	g.end()
}

// begin makes two engines for the library and two for the yardstick. Library.Init makes the library's first engine.
// begin itself builds the library's second engine, so that the library has never seen it.
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
	require.Equal(g, g.y.live, len(g.arena.live), "allocations left after destroying")
	require.Zero(g, g.library.Append(nil, 0, 0) == nil)
}

func (g *game) compare() {
	require.NoError(g, g.library.check())
	for _, e := range g.ours.engines {
		require.True(g, g.writes || e.Check() == nil)
	}
	want, got := g.theirs.describe(g.loose), g.ours.describe(g.loose)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			require.FailNow(g, "the states differ", "handout: %v\nlibrary: %v",
				want[min(i, len(want)):min(i+3, len(want))], got[min(i, len(got)):min(i+3, len(got))])
		}
	}
	require.Equal(g, g.y.live, len(g.arena.live), "live allocations")
}
