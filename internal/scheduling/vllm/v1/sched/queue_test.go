package sched

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAQueueForgetsRequestsThatLeft(t *testing.T) {
	for i := range orders {
		q := queue{order: &orders[i]}
		for i := range 10_000 {
			q.push(&request{seq: uint64(i)})
			if i >= 3 {
				require.EqualValues(t, i-3, q.head().seq)
				q.remove(q.head())
			}
		}
		require.Less(t, cap(q.list), 32)
	}
}

func TestTheOthersStayWhenARequestReturnsToTheFront(t *testing.T) {
	for i := range orders {
		q := queue{order: &orders[i]}
		for i := range 3 {
			q.push(&request{seq: uint64(i)})
		}
		was := slices.Clone(q.list)
		for range 2 {
			r := q.head()
			q.remove(r)
			q.pushFront(r)
		}
		require.Equal(t, was, q.list)
	}
}

func TestManyRequestsAtTheFrontMoveTheOthersSeldom(t *testing.T) {
	q := queue{order: &orders[FCFS]}
	last := &request{}
	q.push(last)
	moves, at := 0, 0
	for i := range 10_000 {
		q.pushFront(&request{seq: uint64(i)})
		if now := slices.Index(q.list, last); now != at {
			moves, at = moves+1, now
		}
	}
	require.Len(t, q.all(), 10_001)
	require.Same(t, last, q.all()[10_000])
	require.Less(t, moves, 30)
}

func TestARequestThatLeavesMovesNoOther(t *testing.T) {
	q := queue{order: &orders[FCFS]}
	var all []*request
	for i := range 1000 {
		r := &request{seq: uint64(i)}
		q.push(r)
		all = append(all, r)
	}
	for i := 998; i > 0; i -= 2 {
		q.remove(all[i])
		require.Same(t, all[999], q.list[999])
	}
	for i := range 500 {
		require.Same(t, all[max(0, 2*i-1)], q.head(), "request %d", i)
		q.remove(q.head())
	}
	require.Same(t, all[999], q.head())
}

func TestAQueueKeepsItsOrder(t *testing.T) {
	byPriorityOnly := order{less: func(r, o *request) bool { return r.priority < o.priority }}
	for _, o := range append(orders[:], byPriorityOnly) {
		r := rand.New(rand.NewPCG(1, 2))
		q, want := queue{order: &o}, []*request{}
		for i := range 20_000 {
			x := &request{seq: uint64(i), priority: r.IntN(5), arrival: float64(r.IntN(3))}
			switch n := r.IntN(9); {
			case len(want) > 0 && n < 4+i/5000%2:
				at := r.IntN(len(want)) * r.IntN(2)
				q.remove(want[at])
				want = slices.Delete(want, at, at+1)
			case n < 7:
				q.push(x)
				want = append(want, x)
			default:
				q.pushFront(x)
				want = slices.Insert(want, 0, x)
			}
			slices.SortStableFunc(want, o.compare)
			if len(want) > 0 {
				require.Same(t, want[0], q.head())
			}
		}
		require.Equal(t, want, q.all())
	}
}
