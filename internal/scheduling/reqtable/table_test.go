package reqtable

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// twoQueues compares two queues over one table with two lists.
type twoQueues struct {
	table  Table[int]
	queues []*Queue
	lists  [2][]int32
	idle   []int32 // indexes in no queue
	next   int
}

func TestTwoQueuesOverOneTableStayTwoLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &twoQueues{}
		m.queues = []*Queue{m.table.Queue(), m.table.Queue()}
		t.Repeat(rapid.StateMachineActions(m))
	})
}

func (m *twoQueues) Add(t *rapid.T) {
	index := m.table.Add(m.next)
	*m.table.At(index) = m.next
	require.Equal(t, None, m.table.Add(m.next))
	m.idle = append(m.idle, index)
	m.next++
}

func (m *twoQueues) drawQueue(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "queue") }

func (m *twoQueues) enter(t *rapid.T, f func(q *Queue, list []int32, index int32) []int32) {
	if len(m.idle) == 0 {
		return
	}
	w, index := m.drawQueue(t), m.idle[0]
	m.idle = m.idle[1:]
	m.lists[w] = f(m.queues[w], m.lists[w], index)
}

func (m *twoQueues) Back(t *rapid.T) {
	m.enter(t, func(q *Queue, l []int32, index int32) []int32 { q.PushBack(index); return append(l, index) })
}

func (m *twoQueues) Front(t *rapid.T) {
	m.enter(t, func(q *Queue, l []int32, index int32) []int32 { q.PushFront(index); return slices.Insert(l, 0, index) })
}

func (m *twoQueues) After(t *rapid.T) {
	m.enter(t, func(q *Queue, l []int32, index int32) []int32 {
		i := rapid.IntRange(0, len(l)).Draw(t, "position")
		if i == 0 {
			q.InsertAfter(index, None)
		} else {
			q.InsertAfter(index, l[i-1])
		}
		return slices.Insert(l, i, index)
	})
}

func (m *twoQueues) Remove(t *rapid.T) {
	w := m.drawQueue(t)
	if len(m.lists[w]) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.lists[w])-1).Draw(t, "position")
	index := m.lists[w][i]
	m.queues[w].Remove(index)
	m.lists[w] = slices.Delete(m.lists[w], i, i+1)
	m.table.Remove(*m.table.At(index))
}

func (m *twoQueues) TakeAll(t *rapid.T) {
	var ids []int
	var want []int32
	for _, index := range slices.Concat(m.lists[0], m.lists[1]) {
		if rapid.Bool().Draw(t, "mark") {
			ids, want = append(ids, *m.table.At(index)), append(want, index)
		}
	}
	var got []int32
	collect := func(index int32) { got = append(got, index) }
	require.Error(t, m.table.Check(append(slices.Clone(ids), -1)...))
	require.Error(t, m.table.TakeAll(append(slices.Clone(ids), -1), m.queues, collect))
	if len(ids) > 0 {
		require.Error(t, m.table.Check(append(slices.Clone(ids), ids[0])...))
	}
	require.Empty(t, got)
	slices.Reverse(ids)
	require.NoError(t, m.table.Check(ids...))
	require.NoError(t, m.table.TakeAll(ids, m.queues, collect))
	require.Equal(t, want, got)
	for w := range m.lists {
		m.lists[w] = slices.DeleteFunc(m.lists[w], func(index int32) bool { return slices.Contains(want, index) })
	}
	m.idle = append(m.idle, want...)
	if len(m.idle) > 0 { // ids in no queue are ignored, and no mark remains
		id := *m.table.At(m.idle[0])
		require.NoError(t, m.table.TakeAll([]int{id}, m.queues, func(int32) { t.Fatal("taken") }))
		require.NoError(t, m.table.Check(id))
	}
}

func (m *twoQueues) Check(t *rapid.T) {
	n := len(m.idle)
	for w, q := range m.queues {
		n += q.Len()
		require.Equal(t, len(m.lists[w]), q.Len())
		require.Equal(t, m.lists[w], append(m.lists[w][:0:0], slices.Collect(q.All())...))
		before := None
		for index := range q.All() {
			require.True(t, q.Has(index) && !m.queues[1-w].Has(index))
			require.Equal(t, before, q.Prev(index))
			before = index
		}
		require.Equal(t, before, q.Tail())
	}
	require.Equal(t, n, m.table.Len())
	for id, index := range m.table.All() {
		require.Equal(t, id, *m.table.At(index))
		require.Equal(t, index, m.table.Find(id))
	}
}

func TestAPlaceInTwoQueuesIsFound(t *testing.T) {
	var p Table[int]
	a, b := p.Queue(), p.Queue()
	at := p.Add(1)
	a.PushBack(at)
	require.Panics(t, func() { b.PushBack(at) })
	require.Panics(t, func() { b.Remove(at) })
	require.Panics(t, func() { p.Remove(1) })
	require.Panics(t, func() { p.Remove(2) })
}
