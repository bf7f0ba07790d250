package sched

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Ensure that no hit ends inside a block that is loaded in the same step, because copies are made before loads. The
// request with such a hit is admitted later. If the block is computed in the same step, so is its state, and
// requests do not hit such a state.
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

// Ensure that if a request that copies a shared block is preempted in the same step, the step does not have the
// copy, because other rows get the request's blocks immediately. With vLLM's rules, the step has the copy. The copy
// then names no place in a table, because a worker drops the tables of preempted requests first.
func TestAPreemptedRequestCopiesNothing(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		t.Run(fmt.Sprintf("AsVLLM %v", asVLLM), func(t *testing.T) {
			c := small(6)
			c.Policy, c.AsVLLM = Priority, asVLLM
			s := newSmall(t, c)
			var step Step
			parent := add(t, s, Spec{Tokens: tokens(6, 1), Priority: 5, Arrival: 5})
			one(t, s, &step)
			other := add(t, s, Spec{Tokens: tokens(8, 2), Arrival: 1})
			one(t, s, &step)
			child, err := s.Fork(parent, Child{Last: -1})
			require.NoError(t, err)
			require.NoError(t, s.Schedule(&step))
			require.Equal(t, other, step.Rows[0].ID)
			if !asVLLM {
				require.Equal(t, []ID{parent}, step.Preempted)
				require.Len(t, step.Rows, 2)
				require.Equal(t, child, step.Rows[1].ID, "it has the block that the parent was to copy")
				require.Empty(t, step.Copies)
				return
			}
			require.Equal(t, []ID{parent, child}, step.Preempted)
			require.Len(t, step.Rows, 1)
			require.Len(t, step.Copies, 1)
			require.Equal(t, parent, step.Copies[0].ID)
			require.Equal(t, -1, step.Copies[0].Index)
		})
	}
}

// Ensure that a step without rows has no copies, although a pending copy keeps its two blocks allocated. In this
// test the request long, for which the others are preempted, would then lack a block and be preempted itself.
func TestAStepWithoutRowsCopiesNothing(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		t.Run(fmt.Sprintf("AsVLLM %v", asVLLM), func(t *testing.T) {
			c := large(7)
			c.MaxNumSeqs, c.MaxNumBatchedTokens, c.Policy, c.AsVLLM = 4, 64, Priority, asVLLM
			c.Cache.EnablePrefixCaching, c.Cache.MaxModelLen = false, 96
			s := newSmall(t, c)
			var step Step
			parent := add(t, s, Spec{Tokens: tokens(2, 1), MaxTokens: 30, Priority: 1, Arrival: 1})
			one(t, s, &step)
			long := add(t, s, Spec{Tokens: tokens(61, 2), MaxTokens: 30, Arrival: 2})
			for range 4 {
				one(t, s, &step)
			}
			child, err := s.Fork(parent, Child{Last: -1, Arrival: 3})
			require.NoError(t, err)
			require.NoError(t, s.Schedule(&step)) // long needs its fifth block of six
			if asVLLM {
				require.Empty(t, step.Rows)
				require.Len(t, step.Copies, 1)
				return
			}
			require.Len(t, step.Rows, 1)
			require.Equal(t, long, step.Rows[0].ID)
			require.Equal(t, []ID{child, parent}, step.Preempted)
			require.Empty(t, step.Copies)
		})
	}
}

// leaveState leaves the state after 12 tokens in the cache, but not the keys and values of these tokens: the
// request is aborted before its row writes them, so their block cannot be hit.
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
