package sched

import (
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
