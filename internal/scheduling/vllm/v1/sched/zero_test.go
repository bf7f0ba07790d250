package sched

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// The rules are those of vLLM's new_block_ids_to_zero, and the scenarios those of
// tests/v1/core/test_single_type_kv_cache_manager.py and of the zeroing tests in
// tests/v1/kv_connector/unit/test_nixl_connector_hma.py.

func zeroingConfig(blocks int, groups ...kvcache.Group) Config {
	c := transferConfig(blocks)
	c.ZeroNewBlocks = true
	if len(groups) > 0 {
		c.Cache.Groups = groups
	}
	return c
}

// test_sliding_window_records_new_blocks_for_zeroing,
// test_chunked_local_attention_records_new_blocks_for_zeroing
func TestNewBlocksAreZeroedOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		groups []kvcache.Group
		want   []int32
	}{
		{"full attention", []kvcache.Group{{Kind: kvcache.Full, BlockSize: 2}}, []int32{1, 2}},
		{"a window", []kvcache.Group{{Kind: kvcache.SlidingWindow, BlockSize: 2, Window: 4}}, []int32{1, 2}},
		{"chunks", []kvcache.Group{{Kind: kvcache.ChunkedLocal, BlockSize: 2, Chunk: 4}}, []int32{1, 2}},
		{"states are not", []kvcache.Group{{Kind: kvcache.Mamba, BlockSize: 2, Align: true}, {Kind: kvcache.Full, BlockSize: 2}}, []int32{2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := zeroingConfig(10, tc.groups...)
			c.Cache.EnablePrefixCaching = false
			h := newHost(t, c)
			h.add(4, 1, Spec{})
			h.schedule()
			require.Equal(t, tc.want, h.step.ZeroBlocks)
			h.update(1)
			h.schedule()
			require.Len(t, h.step.ZeroBlocks, 1)
			h.update(1)
			h.schedule()
			require.Empty(t, h.step.ZeroBlocks, "the second token of the block")
		})
	}
	h := newHost(t, transferConfig(10))
	h.add(4, 1, Spec{})
	h.schedule()
	require.Empty(t, h.step.ZeroBlocks, "it is not configured")
}

// Ensure that loaded blocks are not zeroed (vLLM: test_zeroing_block_ids_cover_only_loaded_attention_blocks and
// test_scheduler_filters_connector_loaded_blocks_from_zeroing).
func TestBlocksThatAreBeingLoadedAreNotZeroed(t *testing.T) {
	h := newHost(t, zeroingConfig(20))
	h.add(17, 1, Spec{})
	h.run(1)
	id := h.add(90, 1, remote(56))
	other := h.add(20, 2, Spec{})
	h.schedule()
	require.Equal(t, []Loading{{ID: id, NumComputedTokens: 16, NumExternalTokens: 40}}, h.step.Loads)
	require.Equal(t, h.table(other), h.step.ZeroBlocks)
	h.update(1)
	require.NoError(t, h.Transfers.Received(id))
	h.schedule()
	require.Equal(t, h.table(id)[4:], h.step.ZeroBlocks, "those that nothing is loaded into")
}

// test_failed_load_rezeroes_unwritten_skipped_blocks: of 6 blocks the first 3 have come.
func TestBlocksOfAFailedLoadAreZeroed(t *testing.T) {
	h := newHost(t, zeroingConfig(20))
	id := h.add(96, 1, remote(96))
	h.schedule()
	require.Empty(t, h.step.ZeroBlocks)
	table := h.table(id)
	require.Len(t, table, 6)
	affected := h.loadFailed(table[3])
	require.Equal(t, []ID{id}, affected)
	require.NoError(t, h.Transfers.Received(id))
	require.Equal(t, 48, h.schedule()[0].NumComputedTokens)
	require.Equal(t, table[3:], h.step.ZeroBlocks)
}

func TestAfterAFailedStepBlocksAreZeroedAgain(t *testing.T) {
	c := zeroingConfig(7)
	c.AsVLLM, c.MaxConcurrentBatches, c.AsyncScheduling = false, 2, true
	c.Connector = Connector{Consumer: true}
	h := newHost(t, c)
	h.add(40, 1, Spec{})
	h.schedule()
	want := append([]int32{}, h.step.ZeroBlocks...)
	require.Len(t, want, 3)
	loads := h.add(40, 2, remote(40))
	h.schedule()
	require.Len(t, h.step.Loads, 1)
	h.fail()
	h.schedule()
	require.Equal(t, want, h.step.ZeroBlocks[:3])
	require.NotContains(t, h.step.ZeroBlocks, h.table(loads)[0])
	h.update(1)
	h.schedule()
	require.Empty(t, h.step.ZeroBlocks)
}

// Ensure that a block of a failed step is not zeroed again if a load into this block began before the step failed.
func TestABlockThatIsBeingLoadedIsNotZeroedAgain(t *testing.T) {
	c := zeroingConfig(9, kvcache.Group{Kind: kvcache.Full, BlockSize: 16}, kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 16, Window: 200})
	c.AsVLLM, c.MaxConcurrentBatches, c.AsyncScheduling, c.AdmitChunks = false, 2, true, true
	c.Policy = Priority
	h := newHost(t, c)
	first := h.add(40, 1, Spec{External: Match{NumTokens: 32}, Priority: 1})
	h.schedule()
	zeroed := append([]int32{}, h.step.ZeroBlocks...)
	require.Len(t, zeroed, 6, "also those that the row loads")
	h.loadFailed(h.table(first)[0])
	spec := remote(40)
	spec.MaxTokens = 8
	loads := h.add(40, 2, spec)
	h.schedule()
	require.Len(t, h.step.Loads, 1)
	require.Subset(t, zeroed, h.table(loads)[1:], "it has got their blocks")
	h.fail()
	h.schedule()
	require.NoError(t, h.Transfers.Received(loads))
	for range 2 { // before and after the step in which it runs
		for _, id := range h.table(loads)[:2] {
			require.NotContains(t, h.step.ZeroBlocks, id)
		}
		h.schedule()
	}
	require.Contains(t, []ID{h.step.Rows[0].ID, h.step.Rows[len(h.step.Rows)-1].ID}, loads)
}

func TestBlocksOfALoadThatFailsLateAreZeroed(t *testing.T) {
	c := zeroingConfig(7)
	c.AsVLLM, c.AdmitChunks = false, true
	h := newHost(t, c)
	h.add(40, 1, Spec{Stop: []int32{eos}})
	id := h.add(90, 2, Spec{External: Match{48, true}, MaxTokens: 6})
	h.run(1)
	require.NoError(t, h.Transfers.Received(id))
	h.schedule()
	require.Equal(t, 1, h.Monitor.Load().Waiting, "there are no blocks for the rest of its prompt")
	h.update(1)
	table := h.table(id)
	h.loadFailed(table[1])
	require.Equal(t, 16, h.computed(id))
	h.schedule()
	require.Empty(t, h.step.ZeroBlocks, "it has no row yet")
	h.update(eos)
	require.Equal(t, []int{1, 0}, []int{h.Monitor.Load().Waiting, h.Monitor.Load().Running})
	require.Equal(t, 16, h.schedule()[0].NumComputedTokens)
	require.Subset(t, h.step.ZeroBlocks, table[1:])
	require.Len(t, h.step.ZeroBlocks, 5)
}

// A request gets and loses a block while a step is scheduled. Ensure that the step does not zero this block, because a
// load can get it while the step is in flight.
func TestABlockThatWasLostInTheStepIsNotZeroed(t *testing.T) {
	c := zeroingConfig(8, kvcache.Group{Kind: kvcache.Full, BlockSize: 4})
	c.AsVLLM, c.AdmitChunks, c.Policy, c.LongPrefillTokenThreshold = false, true, Priority, 8
	h := newHost(t, c)
	h.add(24, 1, Spec{Priority: 1, MaxTokens: 4})
	h.run(1)
	id := h.add(4, 2, Spec{})
	h.run(1)
	h.zero.held[6] = true // as an earlier step could leave it
	require.Len(t, h.schedule(), 1, "the first one got two blocks and lost them to the second, which took one")
	require.Len(t, h.step.Preempted, 1)
	require.Equal(t, h.table(id)[1:], h.step.ZeroBlocks)
}

// A step copies the Mamba state at the end of a prompt to another block. Ensure that step.Tails has this block if the
// scheduler is a producer.
func TestAProducerGetsTheBlockOfTheStateAtTheEndOfAPrompt(t *testing.T) {
	c := transferConfig(24)
	c.Connector = Connector{Producer: true}
	c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 2}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}}
	for _, tc := range []struct {
		name     string
		producer bool
	}{{"producer", true}, {"none", false}} {
		t.Run(tc.name, func(t *testing.T) {
			c.Connector.Producer = tc.producer
			h := newHost(t, c)
			id := h.add(6, 1, Spec{Send: tc.producer, UserData: 7, MaxTokens: 2})
			var tails []Tail
			var copied []int32
			for len(tails) == 0 && h.unfinished() > 0 {
				h.schedule()
				tails = append(tails, h.step.Tails...)
				for _, p := range h.step.Copies {
					copied = append(copied, p.Dst)
				}
				h.update(1)
			}
			require.Len(t, copied, 1)
			if !tc.producer {
				require.Empty(t, tails)
				return
			}
			require.Equal(t, []Tail{{ID: id, UserData: 7, Group: 1, Block: copied[0], NumTokens: 6}}, tails)
			require.Equal(t, 1, h.Monitor.Load().Parked)
			h.Monitor.Inspect(func(c *kvcache.Cache) { require.EqualValues(t, 1, c.Pool.Count(copied[0])) })
			require.NoError(t, h.Transfers.Sent(id))
			h.empty()
		})
	}
}

// Ensure that a step does not zero a block after a Mamba state was loaded into it.
func TestAStateThatIsLoadedIsNotZeroedForAFailedStep(t *testing.T) {
	c := transferConfig(7)
	c.AsVLLM, c.ZeroNewBlocks = false, true
	c.MaxNumSeqs, c.MaxNumBatchedTokens = 1, 4
	c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}}
	h := newHost(t, c)
	asks := h.add(3, 1, Spec{MaxTokens: 1, Ask: true})
	h.add(3, 1, Spec{MaxTokens: 1})
	h.schedule()
	zeroed := h.step.ZeroBlocks[0]
	h.fail()
	require.NoError(t, h.Transfers.SetMatch(asks, Match{1, true}))
	h.schedule()
	require.Len(t, h.step.Loads, 1)
	states := h.tableOf(asks, 1)
	require.Equal(t, []int32{zeroed}, states, "the case is the one that is meant")
	require.NoError(t, h.Transfers.Received(asks))
	h.update(1)
	require.Equal(t, asks, h.schedule()[0].ID)
	require.NotContains(t, h.step.ZeroBlocks, zeroed)
}

// test_zeroing_block_ids_cover_only_loaded_attention_blocks of tests/v1/kv_connector/unit/test_nixl_connector_hma.py
func TestTheBlocksOfTokens(t *testing.T) {
	table := []int32{1, 2, 3, 4, 5, 6}
	require.Equal(t, table[1:4], blocksOf(table, 16, 16, 56))
	require.Equal(t, table[1:4], blocksOf(table, 16, 20, 64), "parts of blocks count")
	require.Equal(t, table[5:], blocksOf(table, 16, 80, 200))
	require.Empty(t, blocksOf(table, 16, 96, 200))
}
