package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a queue takes memory for the requests that are in it, not for those that were.
func TestAQueueForgetsRequestsThatLeft(t *testing.T) {
	for _, policy := range []Policy{FCFS, Priority} {
		q := queue{policy: policy}
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

// Ensure that a request which returns to the front takes its old place, so that the others need not move.
func TestTheOthersStayWhenARequestReturnsToTheFront(t *testing.T) {
	for _, policy := range []Policy{FCFS, Priority} {
		q := queue{policy: policy}
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

// Ensure that requests which are put at the front one after the other do not move all others each time.
func TestManyRequestsAtTheFrontMoveTheOthersSeldom(t *testing.T) {
	q := queue{policy: FCFS}
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
