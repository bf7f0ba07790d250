package course

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"llmmemory/internal/testkit/rapidtest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func (l *Library) check() error {
	want := map[*Sequence]named{}
	edit := func(s *Sequence, f func(*named)) {
		n := want[s]
		n.seq = s
		f(&n)
		want[s] = n
	}
	for i := range l.cores {
		c := &l.cores[i].cache
		if c.entries.used == 0 || c.epoch != l.index.epoch.Load() {
			continue
		}
		for _, h := range c.entries.slots {
			if h.empty() {
				continue
			}
			if other := want[h.seq]; other.engine != nil {
				return fmt.Errorf("two entries, for ids %d and %d, have the same sequence", other.id, h.id)
			}
			edit(h.seq, func(n *named) { n.engine, n.id = h.engine, h.id })
			for _, n := range []*Node{h.prev, h.next} {
				if n != &h.engine.Active {
					edit(sequenceOf(n), func(n *named) { n.mentions++ })
				}
			}
		}
	}
	if len(want) != l.index.table.used || int64(len(want)) != l.index.used.Load() {
		return fmt.Errorf("%d sequences are named, the index has %d and says %d", len(want), l.index.table.used, l.index.used.Load())
	}
	for s, n := range want {
		if got := l.index.table.get(named{seq: s}); got == nil || *got != n {
			return fmt.Errorf("the index has %v, not %v", got, n)
		}
	}
	return nil
}

// Ensure that the first look-up after create, fork or free finds a cache entry, because create, fork and free update
// the cache.
func TestAnEntryIsMadeByTheCallThatLinks(t *testing.T) {
	b := newBench(t)
	e, err := b.library.Init(unsafe.Pointer(&b.pool[0]), 256*BlockSize)
	require.NoError(t, err)
	cache := &b.library.cores[coreOf(e)].cache
	const first = plainNodes + nearNodes
	for id := range int32(60) {
		if id%2 == 0 || id < first {
			_, err = b.library.Create(e, id, 1)
		} else {
			_, err = b.library.Fork(e, 0, id)
		}
		require.NoError(t, err)
		require.Equal(t, max(0, int(id)+1-first), cache.entries.used)
		for known := int32(first); known <= id; known++ {
			require.NotNil(t, cache.lookup(e, known), "%d of %d", known, id)
		}
		require.NoError(t, b.library.check())
	}
	for _, id := range []int32{40, 41, 39, 59, 24, 58} {
		require.NoError(t, b.library.Free(e, id))
		require.NoError(t, b.library.check())
	}
	for id := int32(first + 1); id < 58; id++ {
		if id < 39 || id > 41 {
			require.NotNil(t, cache.lookup(e, id), "%d", id)
		}
	}
}

// Ensure that create makes no cache entry if the list is inconsistent: Prev of the head is not the last node.
func TestWhatIsLinkedBesideTheListHasNoEntry(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	e.Active.Prev = &seqs[38].Node
	used := b.library.cores[coreOf(e)].cache.entries.used
	_, err := b.library.Create(e, 100, 1)
	require.NoError(t, err)
	require.Equal(t, used, b.library.cores[coreOf(e)].cache.entries.used)
	require.True(t, b.reaches(e, 100, sequenceOf(e.Active.Prev)))
	b.misses(e, 39) // cut off by the new one
	require.NoError(t, b.library.check())

	e.Active.Prev = &seqs[3].Node
	_, err = b.library.Create(e, 101, 1)
	require.NoError(t, err)
	b.misses(e, 100)
	require.NoError(t, b.library.check())
}

// Ensure that a walk visits the same nodes whether its order is right or wrong. An order is the walk's guess of the
// order of the list.
func TestAnOrderIsOnlyAGuess(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		c := &core{lib: &Library{}}
		defer func() { c.order.release() }()
		e := &Engine{}
		seqs := make([]Sequence, 60)
		for i := range seqs {
			seqs[i].ID = int32(i)
		}
		var list []int
		for range 6 {
			for range rapid.IntRange(0, 5).Draw(t, "changes") {
				index := rapid.IntRange(0, len(list)).Draw(t, "place")
				i := rapid.IntRange(0, len(seqs)-1).Draw(t, "sequence")
				switch k := slices.Index(list, i); {
				case k < 0:
					list = slices.Insert(list, index, i)
				case index%2 == 0:
					list = slices.Delete(list, k, min(len(list), k+index%12+1))
				default:
					list = append(slices.Delete(list, k, k+1), i)
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "many") == 0 {
				list = rapid.Permutation(sequence(len(seqs))).Draw(t, "list")
			}
			n := &e.Active
			for _, i := range list {
				n.Next = &seqs[i].Node
				n = n.Next
			}
			n.Next = &e.Active
			if rapid.Bool().Draw(t, "ends in NULL") {
				n.Next = nil
			}
			id := rapid.Int32Range(0, int32(len(seqs))+20).Draw(t, "id")
			want := walk{engine: e, id: id, next: e.Active.Next}
			got := want
			want.plain()
			got.guided(c.order.forEngine(e))
			require.Equal(t, want, got)
			met := c.order.nodes
			require.GreaterOrEqual(t, len(met), got.steps)
			for k := range got.steps {
				require.Same(t, &seqs[list[k]].Node, met[k])
			}
			if !got.found {
				require.Len(t, met, len(list))
			}
		}
	})
}

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func TestAnOrderSkipsWhatIsGone(t *testing.T) {
	c := &core{lib: &Library{}}
	defer func() { c.order.release() }()
	nodes := make([]Sequence, 20)
	o := c.order.forEngine(&Engine{})
	for i := range nodes {
		require.Equal(t, i+1, o.record(i, i, &nodes[i].Node))
	}
	require.Equal(t, 0, o.distance(3, &nodes[3].Node))
	require.Equal(t, 1, o.distance(3, &nodes[4].Node))
	require.Equal(t, maxAhead-1, o.distance(3, &nodes[3+maxAhead-1].Node))
	require.Equal(t, 0, o.distance(3, &nodes[3+maxAhead].Node))
	require.Equal(t, 0, o.distance(20, &nodes[3].Node))
	o.close(2, 5)
	require.Len(t, o.nodes, 17)
	require.Same(t, &nodes[5].Node, o.nodes[2])
	require.Empty(t, c.order.forEngine(&Engine{}).nodes, "another engine has another order")
}

func TestAWalkWithoutPagesIsPlain(t *testing.T) {
	c := &core{lib: &Library{}}
	defer func() { c.order.release() }()
	e := &Engine{}
	seqs := make([]Sequence, 2*firstOrder)
	n := &e.Active
	for i := range seqs {
		seqs[i].ID = int32(i)
		n.Next = &seqs[i].Node
		n = n.Next
	}
	n.Next = &e.Active
	walkTo := func(id int32) walk {
		w := walk{engine: e, id: id, next: e.Active.Next}
		w.guided(c.order.forEngine(e))
		return w
	}
	require.True(t, walkTo(firstOrder-1).found)
	pagesFail = true
	defer func() { pagesFail = false }()
	last := int32(len(seqs) - 1)
	w := walkTo(last)
	require.True(t, w.found)
	require.EqualValues(t, last, w.steps)
	require.Same(t, &seqs[last].Node, w.next)
	require.False(t, walkTo(last+1).found)
	require.Len(t, c.order.nodes, firstOrder)
}
