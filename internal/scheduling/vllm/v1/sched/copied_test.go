package sched

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Ensure that no hit ends inside a block loaded in the same step, because a step makes its copies before its loads.
func TestABlockIsCopiedOnlyWhenItIsWritten(t *testing.T) {
	prompt := tokens(15, 1) // its last hash ends inside the second block, after 12 tokens
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
			h := newHost(t, c)
			leaveState(h, prompt)
			writer := add(t, h.Scheduler, Spec{Tokens: prompt, External: Match{NumTokens: 13}})
			reader := add(t, h.Scheduler, Spec{Tokens: prompt})
			h.run(1)
			require.Equal(t, writer, h.step.Rows[0].ID)
			require.Equal(t, 5, h.step.Rows[0].NumExternalTokens)
			require.Equal(t, test.late, h.rowOf(reader) < 0)
			for h.rowOf(reader) < 0 {
				h.run(1)
			}
			require.Equal(t, 12, h.step.Rows[h.rowOf(reader)].NumComputedTokens)
		})
	}
}

// A request is preempted while a step is scheduled. Ensure that the step has no copy of this request, because other
// rows of the step can get its blocks.
func TestAPreemptedRequestCopiesNothing(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		t.Run(fmt.Sprintf("AsVLLM %v", asVLLM), func(t *testing.T) {
			c := small(6)
			c.Policy, c.AsVLLM = Priority, asVLLM
			h := newHost(t, c)
			parent := h.add(6, 1, Spec{Priority: 5, Arrival: 5})
			h.run(1)
			other := h.add(8, 2, Spec{Arrival: 1})
			h.run(1)
			child := h.fork(parent, Child{Last: -1})
			h.schedule()
			require.Equal(t, other, h.step.Rows[0].ID)
			if !asVLLM {
				require.Equal(t, []ID{parent}, h.step.Preempted)
				require.Len(t, h.step.Rows, 2)
				require.Equal(t, child, h.step.Rows[1].ID, "it has the block that the parent was to copy")
				require.Empty(t, h.step.Copies)
				return
			}
			require.Equal(t, []ID{parent, child}, h.step.Preempted)
			require.Len(t, h.step.Rows, 1)
			require.Len(t, h.step.Copies, 1)
			require.Equal(t, parent, h.step.Copies[0].ID)
			require.Equal(t, -1, h.step.Copies[0].Index)
		})
	}
}

// A step has a copy for a request. While the step is scheduled, the request is preempted. Ensure that the copy is
// withdrawn, so that another request gets a row with the freed blocks. With AsVLLM the copy is not withdrawn and keeps
// its two blocks. The other request then gets no blocks, and the step has the copy but no rows.
func TestAWithdrawnCopyFreesItsBlocks(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		t.Run(fmt.Sprintf("AsVLLM %v", asVLLM), func(t *testing.T) {
			c := large(7)
			c.MaxNumSeqs, c.MaxNumBatchedTokens, c.Policy, c.AsVLLM = 4, 64, Priority, asVLLM
			c.Cache.EnablePrefixCaching, c.Cache.MaxModelLen = false, 96
			h := newHost(t, c)
			parent := h.add(2, 1, Spec{MaxTokens: 30, Priority: 1, Arrival: 1})
			h.run(1)
			long := h.add(61, 2, Spec{MaxTokens: 30, Arrival: 2})
			for range 4 {
				h.run(1)
			}
			child := h.fork(parent, Child{Last: -1, Arrival: 3})
			h.schedule() // long needs its fifth block of six
			if asVLLM {
				require.Empty(t, h.step.Rows)
				require.Len(t, h.step.Copies, 1)
				return
			}
			require.Len(t, h.step.Rows, 1)
			require.Equal(t, long, h.step.Rows[0].ID)
			require.Equal(t, []ID{child, parent}, h.step.Preempted)
			require.Empty(t, h.step.Copies)
		})
	}
}

// leaveState puts a Mamba state into the cache: the state after the first 12 tokens of a prompt. It runs a request
// until these tokens are computed, and aborts it after the next step.
func leaveState(h *host, prompt []int32) {
	id := add(h.t, h.Scheduler, Spec{Tokens: prompt})
	h.run(1)
	h.run(1)
	h.schedule()
	require.Equal(h.t, 12, h.step.Rows[0].NumComputedTokens)
	h.end([]int32{0})
	require.Equal(h.t, 1, h.Abort(id, id, 0))
}
