package course

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// These tests break each condition for the validity of a cache entry with one write from outside, which random tests
// seldom do. They look at kv_count to see which sequence an append has reached.

type bench struct {
	*testing.T
	arena   *testArena
	library *Library
	pool    []int32
}

func newBench(t *testing.T) *bench { return newBenchIn(t, newArena(false)) }

func newBenchIn(t *testing.T, arena *testArena) *bench {
	t.Cleanup(arena.close)
	return &bench{T: t, arena: arena, library: &Library{Memory: arena}, pool: make([]int32, 256*KVPerBlock)}
}

// engine makes an engine with the sequences 0 to n-1 and looks up each of them once. Each sequence then has a cache
// entry, except for the sequences near the head of the list.
func (b *bench) engine(n int) (*Engine, []*Sequence) {
	e, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	require.NoError(b, err)
	return e, b.fill(e, n)
}

func (b *bench) fill(e *Engine, n int) []*Sequence {
	seqs := make([]*Sequence, n)
	for i := range seqs {
		var err error
		seqs[i], err = b.library.Create(e, int32(i), 1)
		require.NoError(b, err)
	}
	for i := range seqs {
		require.True(b, b.reaches(e, int32(i), seqs[i]))
	}
	return seqs
}

func (b *bench) reaches(e *Engine, id int32, s *Sequence) bool {
	before := s.KVCount
	err := b.library.Append(e, id, 1)
	return err == nil && s.KVCount == before+1
}

func (b *bench) misses(e *Engine, id int32) {
	require.ErrorIs(b, b.library.Append(e, id, 1), ErrNotFound)
}

// otherCore makes an engine that belongs to another core than e. The two engines share neither a lock nor a cache.
func (b *bench) otherCore(e *Engine) *Engine {
	for {
		f, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
		require.NoError(b, err)
		if coreOf(f) != coreOf(e) {
			return f
		}
	}
}

func TestAnEntrySurvivesOrdinaryUse(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	for range 3 {
		for i, s := range seqs {
			require.True(t, b.reaches(e, int32(i), s))
		}
	}
	core := &b.library.cores[coreOf(e)]
	require.Equal(t, 40-plainNodes-nearNodes, core.cache.entries.used)
	require.True(t, b.library.index.nonEmpty())
	require.NoError(t, b.library.Destroy(e))
	require.Zero(t, core.cache.entries.used)
	require.False(t, b.library.index.nonEmpty(), "destroying the engine leaves no entry")
}

func TestARenamedSequenceIsFoundUnderItsNewIDOnly(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	seqs[30].ID = 1000
	b.misses(e, 30)
	require.True(t, b.reaches(e, 1000, seqs[30]))
}

func TestAnIDAmongTheFirstSixteenWinsOverAnEntry(t *testing.T) {
	for _, position := range []int{0, 11, 12, 15} {
		b := newBench(t)
		e, seqs := b.engine(40)
		seqs[position].ID = 30
		require.True(t, b.reaches(e, 30, seqs[position]), "position %d", position)
	}
}

// poison sets a link to an invalid address. A program that overwrites freed memory does the same.
func poison(link **Node) { *(*uintptr)(unsafe.Pointer(link)) = 0x100 }

func TestABackLinkIsNotFollowed(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		b := newBench(t)
		n := 40
		e, seqs := b.engine(0)
		if when == "after" {
			seqs = b.fill(e, n)
		} else {
			for i := range n {
				s, err := b.library.Create(e, int32(i), 1)
				require.NoError(t, err)
				seqs = append(seqs, s)
			}
		}
		for _, s := range seqs {
			poison(&s.Node.Prev)
		}
		for range 2 {
			for i, s := range seqs {
				require.True(t, b.reaches(e, int32(i), s), "poisoned %s entries, %d", when, i)
			}
		}
		b.misses(e, 1000)
		require.Zero(t, b.library.cores[coreOf(e)].cache.entries.used, "poisoned %s entries", when)
	}
}

func TestAListThatEndsInNullHasNoEntryForItsLast(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	seqs[39].Node.Next = nil
	for range 3 {
		require.True(t, b.reaches(e, 39, seqs[39]))
		require.True(t, b.reaches(e, 38, seqs[38]))
	}
}

func TestNothingIsReadBehindAMatchAmongTheFirstSixteen(t *testing.T) {
	for position := range plainNodes {
		b := newBench(t)
		e, seqs := b.engine(40)
		poison(&seqs[position].Node.Next)
		for i, s := range seqs[:position+1] {
			require.True(t, b.reaches(e, int32(i), s))
		}
	}
}

func TestBothEndsOfAStretchCutOutAreNoticed(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	first, last := &seqs[30].Node, &seqs[33].Node
	first.Prev.Next, last.Next.Prev = last.Next, first.Prev
	b.misses(e, 30)
	b.misses(e, 33)
}

// Ensure that a look-up does not find a sequence in its old engine if it was moved to another engine's list together
// with its predecessor.
func TestASequenceThatMovedAlongWithItsPredecessorIsNoticed(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	f := b.otherCore(e)
	for _, s := range seqs[30:32] {
		unlink(&s.Node)
		linkTail(&f.Active, &s.Node)
	}
	b.misses(e, 31)
	require.True(t, b.reaches(f, 31, seqs[31]))
}

func TestTwoEnginesMayHaveTheSameIDs(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	c := &b.library.cores[coreOf(e)]
	// The test needs an engine f for which id 30 has the same slot of the hash table as it has for e.
	f := unsafe.Pointer(b.arena.one(1 << 16))
	for hashID((*Engine)(f), 30)>>c.cache.entries.shift != hashID(e, 30)>>c.cache.entries.shift {
		f = unsafe.Add(f, 8)
	}
	require.Same(t, seqs[30], c.cache.lookup(e, 30))
	require.Nil(t, c.cache.lookup((*Engine)(f), 30))
}

// byHand unlinks and frees a sequence without the library, as a tester may do. It requires that a look-up does not
// find the id, neither before nor after the memory is freed.
func (b *bench) byHand(e *Engine, s *Sequence) {
	unlink(&s.Node)
	id := s.ID
	b.misses(e, id)
	b.arena.drop(unsafe.Pointer(s))
	b.misses(e, id)
}

// Ensure that a new engine at the address of a destroyed one does not use the old entries, although the ids are the
// same.
func TestEntriesEndWithTheirEngine(t *testing.T) {
	arena := newArena(true)
	b := newBenchIn(t, arena)
	e, _ := b.engine(40)
	require.NoError(t, b.library.Destroy(e))
	for arena.freed[engineSize][len(arena.freed[engineSize])-1] != unsafe.Pointer(e) {
		arena.one(engineSize)
	}
	second, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	require.NoError(t, err)
	require.Equal(t, unsafe.Pointer(e), unsafe.Pointer(second))
	b.misses(second, 30)
}

// Ensure that llm_init removes the entries of an older engine at the same address. The older engine was freed by hand.
func TestInitForgetsWhatItsAddressMeant(t *testing.T) {
	arena := newArena(true)
	b := newBenchIn(t, arena)
	e, _ := b.engine(40)
	table := &b.library.cores[coreOf(e)].cache.entries
	for id := int32(40); table.slots[0].empty(); id++ { // the first slot is used, too
		if hashID(e, id)>>table.shift == 0 {
			_, err := b.library.Create(e, id, 1)
			require.NoError(t, err)
		}
	}
	arena.drop(unsafe.Pointer(e))
	second, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	require.NoError(t, err)
	require.Equal(t, unsafe.Pointer(e), unsafe.Pointer(second))
	require.Zero(t, b.library.cores[coreOf(e)].cache.entries.used)
}

func TestStrictRemembersNothing(t *testing.T) {
	b := newBench(t)
	b.library.Strict = true
	e, seqs := b.engine(40)
	require.False(t, b.library.index.nonEmpty())
	first, last := &seqs[20].Node, &seqs[35].Node
	first.Prev.Next, last.Next.Prev = last.Next, first.Prev
	for id := int32(20); id <= 35; id++ {
		b.misses(e, id)
	}
}

// Without memory for entries everything is found all the same.
func TestNoEntryWithoutPages(t *testing.T) {
	defer func() { pagesFail = false }()
	for n := 25; n < 60; n++ { // with each, another table is the first that cannot grow
		pagesFail = false
		b := newBench(t)
		e, seqs := b.engine(n)
		pagesFail = true
		for id := int32(100); id < 140; id++ {
			_, err := b.library.Create(e, id, 1)
			require.NoError(t, err)
			require.NoError(t, b.library.check())
			require.NoError(t, b.library.Append(e, id, 1))
			require.NoError(t, b.library.check())
		}
		require.True(t, b.reaches(e, int32(n-1), seqs[n-1]))
		require.NoError(t, b.library.Free(e, int32(n-1)))
		require.NoError(t, b.library.check())
		require.ErrorIs(t, b.library.AppendRun(e, seqs[0], &[]int32{1}[0], 1), ErrNoMemory)
	}
}

func TestTheTableKeepsWhatItHolds(t *testing.T) {
	var table table[named]
	defer table.clear()
	in := map[*Sequence]bool{}
	seqs := make([]Sequence, 3000)
	for round := range 30000 {
		s := &seqs[(round*7919+round/17)%len(seqs)]
		if in[s] {
			table.remove(named{seq: s})
			delete(in, s)
		} else {
			require.NotNil(t, table.add(named{seq: s, mentions: 1}))
			in[s] = true
		}
		require.Equal(t, len(in), table.used)
	}
	for i := range seqs {
		require.Equal(t, in[&seqs[i]], table.get(named{seq: &seqs[i]}) != nil)
		table.remove(named{seq: &seqs[i]}) // or it is not there, and nothing happens
		delete(in, &seqs[i])
		require.Equal(t, len(in), table.used)
	}
	table.remove(named{seq: &seqs[0]})
	require.Zero(t, table.used)
}

func TestAnEmptyTableGivesBackWhatIsMuch(t *testing.T) {
	seqs := make([]Sequence, keptSlots)
	for _, c := range []struct{ records, slots int }{{keptSlots / 2, keptSlots}, {keptSlots/2 + 1, 0}} {
		var table table[named]
		for i := range c.records {
			require.NotNil(t, table.add(named{seq: &seqs[i], mentions: 1}))
		}
		for i := range c.records {
			table.remove(named{seq: &seqs[i]})
		}
		require.Len(t, table.slots, c.slots)
		table.clear()
	}
}
