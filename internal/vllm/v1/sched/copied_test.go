package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/vllm/v1/kvcache"
)

// Ensure that no hit ends inside a block that is loaded in the same step, because copies are
// made before anything is loaded: such a request is admitted later. If the block is computed in the
// same step, so is the state there, and no such state is hit.
func TestABlockIsCopiedOnlyWhenItIsWritten(t *testing.T) {
	prompt := tokens(15, 1) // its last hash ends inside block 2, after token 12
	for _, test := range []struct {
		name   string
		asVLLM bool
		late   bool
	}{
		{name: "correct", late: true},
		{name: "as vLLM", asVLLM: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := small(40)
			c.AsVLLM, c.Connector = test.asVLLM, Connector{Consumer: true}
			c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 8}, {Kind: kvcache.Mamba, BlockSize: 8, Align: true}}
			c.Cache.HashBlockSize = 4
			s := newSmall(t, c)
			leaveState(t, s, prompt)
			writer := add(t, s, Spec{Tokens: prompt, External: Match{NumTokens: 13}})
			reader := add(t, s, Spec{Tokens: prompt})

			var step Step
			one(t, s, &step)
			require.Equal(t, writer, step.Rows[0].ID)
			require.Equal(t, 5, step.Rows[0].NumExternalTokens)
			ofReader := func(r Row) bool { return r.ID == reader }
			require.Equal(t, test.late, !slices.ContainsFunc(step.Rows, ofReader))
			for !slices.ContainsFunc(step.Rows, ofReader) {
				one(t, s, &step)
				require.NotEmpty(t, step.Rows)
			}
			require.Equal(t, 12, step.Rows[slices.IndexFunc(step.Rows, ofReader)].NumComputedTokens)
		})
	}
}

// Ensure that a worker, which drops the tables of preempted requests first, has the table in
// which a copy goes: a request copies a shared block and is preempted in the same step.
func TestACopyOfAPreemptedRequestHasNoPlace(t *testing.T) {
	c := small(6)
	c.Policy = Priority
	s := newSmall(t, c)
	var step Step
	parent := add(t, s, Spec{Tokens: tokens(6, 1), Priority: 5, Arrival: 5})
	one(t, s, &step)
	other := add(t, s, Spec{Tokens: tokens(8, 2), Arrival: 1})
	one(t, s, &step)
	child, err := s.Fork(parent, Child{Last: -1})
	require.NoError(t, err)
	require.NoError(t, s.Schedule(&step))
	require.Equal(t, []ID{parent, child}, step.Preempted)
	require.Len(t, step.Rows, 1)
	require.Equal(t, other, step.Rows[0].ID)
	require.Len(t, step.Copies, 1)
	require.Equal(t, parent, step.Copies[0].ID)
	require.Equal(t, -1, step.Copies[0].Index)
}

// leaveState leaves the state after 12 tokens in the cache, but not their keys and values. No request
// can hit a block that a row should have written and did not.
func leaveState(t *testing.T, s *Scheduler, prompt []int32) {
	id := add(t, s, Spec{Tokens: prompt})
	var step Step
	one(t, s, &step)
	one(t, s, &step)
	require.NoError(t, s.Schedule(&step))
	require.Equal(t, 12, step.Rows[0].NumComputedTokens)
	var out Outcome
	require.NoError(t, s.Update([]int32{0}, nil, &out))
	require.Equal(t, 1, s.Abort(id, id, 0))
}
