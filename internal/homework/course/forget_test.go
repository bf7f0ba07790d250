package course

import (
	"fmt"
	"math"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that a search along the list makes a new cache entry after the index was reset.
func TestAnEntryIsMadeByTheWalkThatFinds(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	cache := &b.library.cores[coreOf(e)].cache
	for _, id := range []int32{30, 39, 25} {
		b.library.index.reset()
		require.Nil(t, cache.lookup(e, id), "what was forgotten is not believed")
		require.True(t, b.reaches(e, id, seqs[id]))
		require.Same(t, seqs[id], cache.lookup(e, id))
		require.Equal(t, 1, cache.entries.used)
		require.NoError(t, b.library.check())
	}
}

// Ensure that a cache entry from before a reset of the index can be removed, although the index no longer knows it.
func TestAForgottenEntryIsNotStruckFromTheIndex(t *testing.T) {
	b := newBench(t)
	e, _ := b.engine(40)
	f := b.otherCore(e)
	b.library.index.reset()
	b.fill(f, 40)
	cache := &b.library.cores[coreOf(e)].cache
	require.NotZero(t, cache.entries.used)
	cache.removeEngine(e)
	require.Zero(t, cache.entries.used)
	require.NoError(t, b.library.check())
}

// Ensure that removing the entries of an engine keeps those of another engine on the same core.
func TestRemovingAnEngineKeepsTheOthersEntries(t *testing.T) {
	b := newBench(t)
	e, _ := b.engine(40)
	f, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	for require.NoError(t, err); coreOf(f) != coreOf(e); require.NoError(t, err) {
		f, err = b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	}
	b.fill(f, 40)
	cache := &b.library.cores[coreOf(e)].cache
	used := cache.entries.used
	cache.removeEngine(e)
	require.Equal(t, used/2, cache.entries.used)
	require.NotNil(t, cache.lookup(f, 30))
	require.NoError(t, b.library.check())
}

// Ensure that a cache entry keeps its old neighbour if the index is full and cannot grow, because the index could not
// record the new neighbour.
func TestAnEntryGetsNoNeighbourWithoutAnIndexForIt(t *testing.T) {
	defer func() { pagesFail = false }()
	for _, gone := range []int32{39, 70} { // before the first with an entry, and after the last
		pagesFail = false
		b := newBench(t)
		e, seqs := b.engine(90)
		b.library.index.reset()
		for id := 40; id < 70; id++ {
			require.True(t, b.reaches(e, int32(id), seqs[id]))
		}
		index := &b.library.index.table
		require.Equal(t, len(index.slots), 2*index.used, "the index is full")
		pagesFail = true
		b.library.cores[coreOf(e)].cache.unlinking(e, seqs[gone])
		require.NoError(t, b.library.check())
	}
}

func addressSpace(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var pages int64
	_, err = fmt.Sscan(string(text), &pages)
	require.NoError(t, err)
	return pages * pageSize
}

// Ensure that pages are unmapped: the address space is no larger after many rounds. The test takes the least of five
// measurements, because other parts of the process also map memory.
func TestPagesAreGivenBack(t *testing.T) {
	level.SkipQuick(t)
	seqs := make([]Sequence, 9000)
	e := &Engine{}
	n := &e.Active
	for i := range seqs {
		seqs[i].ID = int32(i)
		n.Next = &seqs[i].Node
		n = n.Next
	}
	n.Next = &e.Active
	for _, c := range []struct {
		name  string
		round func()
	}{
		{"a journal that grows", func() {
			var j journal
			require.True(t, j.open(&Engine{}, 1))
			require.True(t, j.open(&Engine{}, 3*keptBytes/int(bytesPerStep)))
			j.close()
			require.Zero(t, j.size)
		}},
		{"an order that grows", func() {
			var o order
			w := walk{engine: e, id: -1, next: e.Active.Next}
			w.guided(o.forEngine(e))
			require.Len(t, o.nodes, len(seqs))
			require.Same(t, &seqs[0].Node, o.nodes[0])
			require.Same(t, &seqs[len(seqs)-1].Node, o.nodes[len(seqs)-1])
			o.release()
			require.Nil(t, o.nodes)
			o.release() // a second time there is nothing
		}},
		{"a table that grows", func() {
			var table table[named]
			for i := range seqs[:1000] {
				table.add(named{seq: &seqs[i], mentions: 1})
			}
			require.Equal(t, 1000, table.used)
			table.clear()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.round()
			minimum := int64(math.MaxInt64)
			for range 5 {
				before := addressSpace(t)
				for range 100 {
					c.round()
				}
				minimum = min(minimum, addressSpace(t)-before)
			}
			require.Less(t, minimum, int64(1<<20))
		})
	}
}

func TestTheArraysOfAJournalFitItsMemory(t *testing.T) {
	for _, n := range []int{1, 100, keptBytes/int(bytesPerStep) + 1, 100_000} {
		var j journal
		require.True(t, j.open(&Engine{}, n))
		steps, tables, chunks := unsafe.Pointer(unsafe.SliceData(j.steps)), unsafe.Pointer(unsafe.SliceData(j.tables)), unsafe.Pointer(unsafe.SliceData(j.chunks))
		require.Equal(t, j.memory, steps)
		require.Len(t, j.steps, n)
		require.Equal(t, n, cap(j.tables))
		require.Equal(t, n, cap(j.chunks))
		require.Equal(t, unsafe.Add(steps, n*int(unsafe.Sizeof(step{}))), tables)
		require.Equal(t, unsafe.Add(tables, n*int(unsafe.Sizeof(L2Table{}))), chunks)
		end := uintptr(n)*unsafe.Sizeof(Chunk{}) + uintptr(chunks) - uintptr(steps)
		require.LessOrEqual(t, end, j.size)
		j.release()
	}
}
