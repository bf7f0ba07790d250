package reqtable

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Ensure that two queues over the same places are two lists, under all
// operations, and that places keep what is in them until it is removed.
func TestTwoQueuesOverOneTableStayTwoLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Table[int]
		queues := []*Queue{p.Queue(), p.Queue()}
		lists := [2][]int32{}
		idle := []int32{} // in no queue
		next := 0
		which := func(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "queue") }
		enter := func(f func(q *Queue, list []int32, at int32) []int32) func(*rapid.T) {
			return func(t *rapid.T) {
				if len(idle) == 0 {
					return
				}
				w := which(t)
				at := idle[0]
				idle = idle[1:]
				lists[w] = f(queues[w], lists[w], at)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				at := p.Add(next)
				*p.At(at) = next
				require.Equal(t, None, p.Add(next))
				idle = append(idle, at)
				next++
			},
			"back":  enter(func(q *Queue, l []int32, at int32) []int32 { q.PushBack(at); return append(l, at) }),
			"front": enter(func(q *Queue, l []int32, at int32) []int32 { q.PushFront(at); return slices.Insert(l, 0, at) }),
			"after": enter(func(q *Queue, l []int32, at int32) []int32 {
				i := rapid.IntRange(0, len(l)).Draw(t, "position")
				if i == 0 {
					q.InsertAfter(at, None)
				} else {
					q.InsertAfter(at, l[i-1])
				}
				return slices.Insert(l, i, at)
			}),
			"remove": func(t *rapid.T) {
				w := which(t)
				if len(lists[w]) == 0 {
					return
				}
				i := rapid.IntRange(0, len(lists[w])-1).Draw(t, "position")
				at := lists[w][i]
				queues[w].Remove(at)
				lists[w] = slices.Delete(lists[w], i, i+1)
				p.Remove(*p.At(at))
			},
			"marked": func(t *rapid.T) {
				all := slices.Concat(lists[0], lists[1])
				var ids []int
				var want []int32
				for _, at := range all {
					if rapid.Bool().Draw(t, "mark") {
						ids, want = append(ids, *p.At(at)), append(want, at)
					}
				}
				var got []int32
				collect := func(at int32) { got = append(got, at) }
				require.Error(t, p.Check(append(slices.Clone(ids), -1)...))
				require.Error(t, p.TakeAll(append(slices.Clone(ids), -1), queues, collect))
				if len(ids) > 0 {
					require.Error(t, p.Check(append(slices.Clone(ids), ids[0])...))
				}
				require.Empty(t, got)
				slices.Reverse(ids)
				require.NoError(t, p.Check(ids...))
				require.NoError(t, p.TakeAll(ids, queues, collect))
				require.Equal(t, want, got)
				for w := range lists {
					lists[w] = slices.DeleteFunc(lists[w], func(at int32) bool { return slices.Contains(want, at) })
				}
				idle = append(idle, want...)
				// What is in no queue is passed over, and no mark stays.
				if len(idle) > 0 {
					require.NoError(t, p.TakeAll([]int{*p.At(idle[0])}, queues, func(int32) { t.Fatal("taken") }))
					require.NoError(t, p.Check(*p.At(idle[0])))
				}
			},
			"": func(t *rapid.T) {
				n := len(idle)
				for w, q := range queues {
					n += q.Len()
					require.Equal(t, len(lists[w]), q.Len())
					require.Equal(t, lists[w], append(lists[w][:0:0], slices.Collect(q.All())...))
					before, end := None, None
					for at := range q.All() {
						require.True(t, q.Has(at) && !queues[1-w].Has(at))
						require.Equal(t, before, q.Prev(at))
						before, end = at, at
					}
					require.Equal(t, end, q.Tail())
				}
				require.Equal(t, n, p.Len())
				for id, at := range p.All() {
					require.Equal(t, id, *p.At(at))
					require.Equal(t, at, p.Find(id))
				}
			},
		})
	})
}

// Ensure that a place in two queues, and one that is taken from the wrong one,
// are found at once.
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
