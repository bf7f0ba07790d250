package sched

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// The prompt has 100 blocks, of which 99 can be loaded, as in vLLM's test_kv_load_failure_recovery.py and
// test_invalid_blocks_correctness.py.

func TestARowWhoseLoadFailedIsComputedAgain(t *testing.T) {
	for _, asVLLM := range []bool{true, false} {
		for _, invalid := range [][]int{{0, 98}, {50, 98}, {98}} {
			t.Run(fmt.Sprint(asVLLM, invalid), func(t *testing.T) {
				c := transferConfig(10000)
				c.AsVLLM = asVLLM
				h := newHost(t, c)
				var ids []ID
				for i := range 3 {
					ids = append(ids, h.add(1600, 20*i, Spec{External: Match{1584, false}, Stop: []int32{eos}}))
				}
				require.Len(t, h.schedule(), 3)
				table := h.table(ids[1])
				var blocks []int32
				for _, i := range invalid {
					blocks = append(blocks, table[i])
				}
				var most FailedLoad
				require.NoError(t, h.Transfers.Affected(&most, blocks...))
				require.Equal(t, FailedLoad{ids[1:2], []VoidRow{{0, 1}}}, most)
				affected := h.loadFailed(blocks...)
				require.Equal(t, ids[1:2], affected)
				require.Len(t, h.update(eos), 2)
				require.Zero(t, h.out.Kept[1])
				require.Equal(t, invalid[0]*16, h.computed(ids[1]))
				require.Equal(t, 1, h.Monitor.Load().Running)
				require.Equal(t, table, h.table(ids[1]), "it keeps its blocks")
				if !asVLLM {
					require.Equal(t, invalid[0], h.hashed(ids[1]), "what did not come cannot be hit")
				}
				rows := h.schedule()
				require.Equal(t, 1600-invalid[0]*16, rows[0].NumScheduledTokens)
				require.Equal(t, 100, h.hashed(ids[1]))
			})
		}
	}
}

func TestABlockThatFailedForTwoIsComputedOnce(t *testing.T) {
	for _, invalid := range [][]int{{0, 49}, {25, 49}, {49}} {
		for _, asVLLM := range []bool{true, false} {
			t.Run(fmt.Sprint(asVLLM, invalid), func(t *testing.T) {
				c := transferConfig(10000)
				c.AsVLLM = asVLLM
				h := newHost(t, c)
				a := h.add(1600, 1, Spec{External: Match{1584, false}})
				b := add(t, h.Scheduler, Spec{Tokens: append(tokens(800, 1), tokens(800, 50)...)})
				rows := h.schedule()
				require.Equal(t, 1584, rows[0].NumComputedTokens)
				require.Equal(t, 800, rows[1].NumComputedTokens)
				table := h.table(a)
				var blocks []int32
				for _, i := range invalid {
					blocks = append(blocks, table[i])
				}
				affected := h.loadFailed(blocks...)
				require.Equal(t, []ID{a, b}, affected)
				h.update(1)
				require.Equal(t, invalid[0]*16, h.computed(a))
				if asVLLM {
					require.Equal(t, 800, h.computed(b), "the first computes it for both")
					return
				}
				require.Zero(t, h.computed(b), "it reads the block when it is whole")
				rows = h.schedule()
				require.Equal(t, a, rows[0].ID)
				require.Equal(t, b, rows[1].ID)
				require.Equal(t, 800, rows[1].NumComputedTokens)
			})
		}
	}
}

func TestImpossibleTransferCallsAreRefused(t *testing.T) {
	h := newHost(t, transferConfig(100))
	id := h.add(40, 1, Spec{})
	for _, test := range []struct {
		name string
		call func() error
	}{
		{"received, but not loading", func() error { return h.Transfers.Received(id) }},
		{"sent, but not finished", func() error { return h.Transfers.Sent(id) }},
		{"a block outside the pool", func() error { return h.Transfers.LoadFailed(new(FailedLoad), 100) }},
		{"the null block", func() error { return h.Transfers.LoadFailed(new(FailedLoad), 0) }},
		{"a match longer than the request", func() error { return h.Transfers.SetMatch(id, Match{41, false}) }},
		{"a match of no request", func() error { return h.Transfers.SetMatch(12345, Match{1, false}) }},
		{"a prompt shorter than its match", func() error {
			_, err := h.Add(Spec{Tokens: tokens(4, 1), MaxTokens: 1, External: Match{5, true}})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) { require.ErrorIs(t, test.call(), ErrRequest) })
	}
	noConnector := newHost(t, small(20))
	for _, spec := range []Spec{{Ask: true}, {Send: true}, {External: Match{1, false}}} {
		spec.Tokens, spec.MaxTokens = tokens(4, 1), 1
		_, err := noConnector.Add(spec)
		require.ErrorIs(t, err, ErrRequest, "no connector is configured")
	}
	require.ErrorIs(t, noConnector.Transfers.SetMatch(noConnector.add(4, 1, Spec{}), Match{1, false}), ErrOrder)
	require.ErrorIs(t, noConnector.Transfers.LoadFailed(new(FailedLoad), 1), ErrOrder)
	require.ErrorIs(t, noConnector.Transfers.Affected(new(FailedLoad), 1), ErrOrder)
}

func TestLoadedRequestsDoNotWaitForEachOther(t *testing.T) {
	c := transferConfig(6)
	c.AsVLLM, c.AdmitChunks, c.Policy = false, true, Priority
	h := newHost(t, c)
	low := h.add(64, 1, Spec{External: Match{48, true}, Priority: 2, MaxTokens: 1})
	h.schedule()
	require.NoError(t, h.Transfers.Received(low))
	high := h.add(48, 2, Spec{Priority: 1, MaxTokens: 1})
	require.Equal(t, high, h.schedule()[0].ID, "the less important one gives its blocks up")
	require.Len(t, h.update(1), 1)
	require.Equal(t, low, h.schedule()[0].ID)
	require.Len(t, h.update(1), 1)
	h.empty()
}

// A request has a cache hit for tokens that a step in flight will compute, and loads the tokens after them. Ensure that
// the request computes the tokens of the hit itself if the step fails.
func TestAHitOfAStepThatFailedIsNotKeptByALoad(t *testing.T) {
	for _, tc := range []struct {
		name   string
		action func(h *host, writer, loader ID)
	}{
		{"while it loads", func(*host, ID, ID) {}},
		{"after it has received the rest", func(h *host, _, loader ID) { require.NoError(h.t, h.Transfers.Received(loader)) }},
		{"after the keys of the blocks are gone", func(h *host, writer, _ ID) { h.Abort(writer) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := transferConfig(100)
			c.AsyncScheduling, c.AsVLLM = true, false
			h := newHost(t, c)
			writer := h.add(64, 1, Spec{})
			require.Len(t, h.schedule(), 1)
			loader := h.add(64, 1, Spec{External: Match{60, true}})
			h.schedule()
			require.Equal(t, []Loading{{loader, 0, 48, 12}}, h.step.Loads)
			tc.action(h, writer, loader)
			h.fail()
			h.Abort(writer)
			if h.Monitor.Load().Loading > 0 {
				require.NoError(t, h.Transfers.Received(loader))
			}
			rows := h.schedule()
			require.Len(t, rows, 1)
			require.Equal(t, loader, rows[0].ID)
			require.Zero(t, rows[0].NumComputedTokens)
		})
	}
}

// Ensure that a request can load again after its load failed completely. After the failure it must release the blocks
// that it reserved for the load. In vLLM it keeps them reserved, and then waits for them for ever.
func TestALoadThatCameToNothingReservesNothing(t *testing.T) {
	for _, asVLLM := range []bool{true, false} {
		c := transferConfig(8)
		c.AsVLLM = asVLLM
		h := newHost(t, c)
		id := h.add(64, 1, Spec{Ask: true, MaxTokens: 1})
		h.schedule()
		require.NoError(t, h.Transfers.SetMatch(id, Match{64, true}))
		h.schedule()
		h.loadFailed(h.table(id)[0])
		require.NoError(t, h.Transfers.Received(id))
		h.schedule()
		require.Len(t, h.step.Queries, 1)
		require.NoError(t, h.Transfers.SetMatch(id, Match{64, true}))
		h.schedule()
		require.Equal(t, !asVLLM, len(h.step.Loads) == 1)
	}
}

// A load fails in part. Ensure that the tokens before the first missing block are kept only if the cache has one group
// of full attention. With a window, the blocks before the missing one may already be freed. With several groups, all
// tokens are computed again (vllm/v1/RULES.md §19).
func TestWhatIsLeftOfAFailedLoad(t *testing.T) {
	for _, tc := range []struct {
		name   string
		groups []kvcache.Group
		want   int
	}{
		{"full attention", []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}}, 8},
		{"a window", []kvcache.Group{{Kind: kvcache.SlidingWindow, BlockSize: 4, Window: 64}}, 0},
		{"two groups", []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Full, BlockSize: 8}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := small(40)
			c.Connector.Consumer, c.Cache.Groups = true, tc.groups
			h := newHost(t, c)
			id := h.add(21, 1, Spec{External: Match{16, true}})
			require.Empty(t, h.schedule())
			table := h.table(id)
			for _, at := range []int{2, 3} { // one by one; the second is behind the cut
				h.loadFailed(table[at])
			}
			require.NoError(t, h.Transfers.Received(id))
			require.Equal(t, tc.want, h.schedule()[0].NumComputedTokens)
		})
	}
}

// After the load for a waiting request is over, the host calls LoadFailed with one of the request's blocks. Usually,
// the request keeps its blocks and computes the failed block again. Ensure that the request loses its blocks if another
// request shares the failed block, because it must not write to a shared block (vllm/v1/RULES.md §19). In vLLM it
// keeps them.
func TestAWaitingRequestDoesNotComputeABlockOfAnother(t *testing.T) {
	for _, tc := range []struct {
		shared, asVLLM bool
		computed       int
		blocks         int
	}{
		{computed: 4, blocks: 2},
		{shared: true},
		{shared: true, asVLLM: true, computed: 4, blocks: 2},
	} {
		c := small(8)
		c.Policy, c.AsVLLM, c.Connector.Consumer = Priority, tc.asVLLM, true
		h := newHost(t, c)
		loaded := h.add(20, 1, Spec{External: Match{8, true}, Priority: 5})
		require.Empty(t, h.schedule())
		h.add(12, 2, Spec{})
		require.Len(t, h.schedule(), 1)
		h.update(1)
		require.NoError(t, h.Transfers.Received(loaded))
		require.Len(t, h.schedule(), 1, "3 more blocks are not free")
		h.update(1)
		if tc.shared {
			h.add(9, 1, Spec{})
			require.Equal(t, 8, h.schedule()[1].NumComputedTokens)
		}
		h.loadFailed(h.table(loaded)[1])
		require.Equal(t, tc.computed, h.computed(loaded))
		require.Len(t, h.table(loaded), tc.blocks)
	}
}

func TestAFailedStepReservesNothing(t *testing.T) {
	c := small(8)
	c.MaxNumBatchedTokens, c.Connector.Consumer = 8, true
	h := newHost(t, c)
	id := h.add(20, 1, Spec{})
	require.Equal(t, []int{8}, scheduled(h.schedule()))
	h.fail()
	require.NoError(t, h.Transfers.SetMatch(id, Match{16, true}))
	require.Empty(t, h.schedule())
	require.Len(t, h.step.Loads, 1)
}

// Two requests share a block whose load has failed, and the first request computes the block again. Ensure that the
// second request neither zeroes nor writes the block.
func TestABlockOfAFailedLoadThatOthersHaveIsNotWritten(t *testing.T) {
	c := small(40)
	c.Connector.Consumer, c.ZeroNewBlocks, c.MaxNumBatchedTokens = true, true, 40
	h := newHost(t, c)
	first := h.add(20, 1, Spec{External: Match{16, false}})
	second := add(t, h.Scheduler, Spec{Tokens: append(tokens(10, 1), tokens(4, 2)...), External: Match{12, true}})
	h.schedule()
	table := h.table(first)
	require.Equal(t, table[:2], h.table(second)[:2])
	affected := h.loadFailed(table[1])
	require.Equal(t, []ID{second, first}, affected)
	h.update(9)
	require.Len(t, h.schedule(), 1)
	h.update(9)
	require.NoError(t, h.Transfers.Received(second))
	row := h.schedule()[1]
	require.NotContains(t, h.step.ZeroBlocks, table[1])
	require.Equal(t, second, row.ID)
	require.NotContains(t, h.step.RowBlocks(1, 0)[row.NumComputedTokens/4:], table[1])
}
