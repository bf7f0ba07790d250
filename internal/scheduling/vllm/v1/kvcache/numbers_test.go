package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that running requests, and a waiting request if nothing else is scheduled, may use the watermark's blocks
// (vllm/v1/RULES.md §6.2).
func TestTheWatermarkIsForWaitingRequestsBesideOthers(t *testing.T) {
	for _, tc := range []struct {
		name        string
		tokens      int
		nothingElse bool
		want        bool
	}{
		{"8 blocks", 32, false, true},
		{"9 blocks", 33, false, false},
		{"9 blocks and nothing else", 33, true, true},
	} {
		c := newHybrid(t, func(c *Config) { c.NumGPUBlocks, c.Watermark = 11, 0.2 }, Group{Kind: Full, BlockSize: 4})
		r := added(t, c, counting(tc.tokens))
		require.Equal(t, tc.want, fits(t, c, r, Alloc{NumNewTokens: tc.tokens, NothingScheduled: tc.nothingElse}), tc.name)
		if tc.want { // it runs now, and takes the last blocks
			r.NumComputedTokens = tc.tokens
			allocate(t, c, r, Alloc{NumNewTokens: 40 - tc.tokens})
		}
	}
}

// Ensure that no slots are allocated beyond MaxModelLen, here 64 tokens (vllm/v1/RULES.md §6.4).
func TestLookaheadEndsAtTheLongestSequence(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: Full, BlockSize: 4})
	r := added(t, c, counting(62))
	allocate(t, c, r, Alloc{NumNewTokens: 62, NumLookaheadTokens: 8})
	require.Len(t, r.Table(0), 16)
}

// vllm/v1/RULES.md §8.
func TestTokensThatAGroupDoesNotReadAnyMore(t *testing.T) {
	for _, tc := range []struct {
		name  string
		group Group
		want  map[int]int // by computed tokens
	}{
		{"all are read", Group{Kind: Full, BlockSize: 4}, map[int]int{0: 0, 100: 0}},
		{"a window of 5", Group{Kind: SlidingWindow, BlockSize: 4, Window: 5}, map[int]int{0: 0, 4: 0, 5: 1, 8: 4}},
		{"a window of 5, and 3 retained", Group{Kind: SlidingWindow, BlockSize: 4, Window: 5, Retained: 3}, map[int]int{4: 0, 7: 0, 8: 1}},
		{"chunks of 8", Group{Kind: ChunkedLocal, BlockSize: 4, Chunk: 8}, map[int]int{7: 0, 8: 8, 15: 8, 16: 16}},
		{"a state", Group{Kind: Mamba, BlockSize: 4}, map[int]int{0: 0, 1: 0, 8: 7}},
	} {
		for computed, want := range tc.want {
			require.Equal(t, want, tc.group.skipped(computed), "%s, %d tokens computed", tc.name, computed)
		}
	}
}

// Ensure that MaxBlocks returns vLLM's limit for the blocks that a request of 64 tokens has in a group if 6 of the
// tokens are in flight. Admission does not require more free blocks than this for the group (vllm/v1/RULES.md §6). The
// keys of the map are the expected results.
func TestAdmissionCountsWhatAGroupCanHold(t *testing.T) {
	for want, g := range map[int]Group{
		4:  {Kind: SlidingWindow, BlockSize: 4, Window: 7},              // 12 tokens, and one block more
		5:  {Kind: SlidingWindow, BlockSize: 4, Window: 7, Retained: 1}, // 13
		3:  {Kind: ChunkedLocal, BlockSize: 4, Chunk: 6},                // 12
		17: {Kind: SlidingWindow, BlockSize: 4, Window: 100},
		16: {Kind: ChunkedLocal, BlockSize: 4, Chunk: 100},
	} {
		require.Equal(t, want, g.MaxBlocks(64, 6), "%+v", g)
	}
}

// Ensure that no block is freed while a step in flight reads it (vllm/v1/RULES.md §15). The window has 5 tokens, and
// the last 8 computed tokens are in flight.
//
// With 16 computed tokens, the first token in flight is at position 8 and reads no token before position 4. So only the
// first block, with tokens 0 to 3, may be freed. The new token needs another block.
//
// With 17 computed tokens, again only the first block may be freed. The last block of the table has space for the new
// token.
func TestWindowsWaitForTokensInFlight(t *testing.T) {
	for _, tokens := range []int{16, 17} {
		c := newHybrid(t, nil, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5})
		r := prefilled(t, c, tokens)
		r.NumComputedTokens = tokens
		allocate(t, c, r, Alloc{NumNewTokens: 1, NumInFlightTokens: 8})
		require.Equal(t, []int32{0, 2, 3, 4, 5}, r.Table(0))
	}
}

// Ensure that only groups of full attention have common prefix blocks (vllm/v1/RULES.md §11).
func TestTheCommonPrefixIsOfAllRequests(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: Full, BlockSize: 4}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 64})
	first := prefilled(t, c, 9)
	second, hit := found(t, c, counting(9))
	allocate(t, c, second, Alloc{NumNewTokens: 1, Hit: &hit})
	require.Equal(t, []int32{2, 0}, first.NumCommonPrefixBlocks(nil))
	third := added(t, c, []int32{7, 7, 7})
	allocate(t, c, third, Alloc{NumNewTokens: 3})
	require.Equal(t, []int32{0, 0}, first.NumCommonPrefixBlocks(nil), "another request shares nothing")
	c.Release(third, Drop, 0)
	c.Release(second, Drop, 0)
	require.Equal(t, []int32{3, 0}, first.NumCommonPrefixBlocks(nil), "it is alone, and its last block counts as well")
}

// A request that is admitted again counts apart (vllm/v1/RULES.md §12).
func TestAdmissionsAreCountedOnce(t *testing.T) {
	c := newFull(t, 12)
	r := computed(t, c, counting(9))
	c.record(r, 4)
	c.Release(r, Preempt, 0)
	c.record(r, 8)
	require.Equal(t, Stats{Requests: 1, Queries: 9, Hits: 4, Preempted: 1, PreemptedQueries: 9, Rehits: 8}, c.Stats)
}

func kept(c *Cache, r *Request, group int) (slots []int) {
	for slot, id := range r.Table(group) {
		if _, _, ok := c.Pool.Primary(id); ok {
			slots = append(slots, slot)
		}
	}
	return slots
}

// Ensure that after a Rewind, the blocks of the tokens to compute again cannot be hit until they are registered again
// (vllm/v1/RULES.md §17).
func TestTokensThatGoBackCannotBeHit(t *testing.T) {
	for _, tokens := range []int{5, 7, 8} {
		c := newFull(t, 12)
		r := computed(t, c, counting(12))
		require.Equal(t, []int{0, 1, 2}, kept(c, r, 0))
		require.True(t, r.Rewind(tokens))
		want := []int{0, 1}[:tokens/4]
		require.Equal(t, want, kept(c, r, 0), "the block of token %d", tokens)
		allocate(t, c, r, Alloc{NumNewTokens: 12 - tokens})
		require.Equal(t, []int{0, 1, 2}, kept(c, r, 0))
	}
}

// Ensure that a window group keeps the blocks that hits need: the last blocks before the end of each segment or, if
// RetentionInterval is 0, before the last multiple of SchedulerBlockSize in the prompt without its last token. With
// RetainAll, a segment has SchedulerBlockSize tokens. With EAGLE, the group also keeps the block after each of these
// ends, because a lookup drops the last block that it finds (vllm/v1/RULES.md §9).
func TestWindowBlocksInFrontOfBoundariesAreKept(t *testing.T) {
	for _, tc := range []struct {
		name      string
		tokens    int
		retention int
		eagle     bool
		want      []int
	}{
		{"every segment", 33, RetainAll, false, []int{3, 7}},
		{"every segment, with EAGLE", 37, RetainAll, true, []int{3, 4, 7, 8}},
		{"the end of the prompt", 37, 0, false, []int{7}},
		{"the end of the prompt, with EAGLE", 37, 0, true, []int{7, 8}},
		{"a prompt that ends with a segment", 32, 0, false, []int{3}},
	} {
		c := newHybrid(t, func(c *Config) { c.RetentionInterval, c.Eagle = tc.retention, tc.eagle },
			Group{Kind: Full, BlockSize: 16}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5})
		require.Equal(t, tc.want, kept(c, prefilled(t, c, tc.tokens), 1), tc.name)
	}
}

// Ensure that with Config.Exact a hit has only blocks of its own tokens in every group of full attention. Without
// Exact, as in vLLM, this is so in the first set of groups only. The second group of full attention then has two more
// blocks.
func TestAHitEndsInEveryGroup(t *testing.T) {
	for exact, blocks := range map[bool]int{true: 2, false: 4} {
		c := newHybrid(t, func(c *Config) { c.Exact = exact },
			Group{Kind: Full, BlockSize: 4}, Group{Kind: Full, BlockSize: 8}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5})
		r := prefilled(t, c, 33)
		evict(t, c, r, 2, 4, 5, 6, 7)
		var hit Hit
		c.Lookup(r, &hit)
		require.Equal(t, 16, hit.NumTokens)
		require.Equal(t, [][]int32{r.Table(0)[:4], r.Table(1)[:blocks], {0, 0, 0, r.Table(2)[3]}}, hit.Blocks)
	}
}

// Ensure that only references of requests make a block shared. Here one request has the block. The other reference is
// of a released request, and is kept for a step in flight.
func TestABlockThatWaitsForAStepIsNotShared(t *testing.T) {
	c := newFull(t, 12)
	parent := computed(t, c, counting(6))
	child := forked(t, c, parent)
	c.Release(parent, UndoAdmit, 3)
	child.Append(6)
	allocate(t, c, child, Alloc{NumNewTokens: 1})
	require.Equal(t, []int32{1, 2}, child.Table(0))
	require.Empty(t, taken(c, 0).Copies)
	c.EndStep(2)
	require.Equal(t, 2, c.NumDeferred(), "the step before")
	c.EndStep(3)
	require.Zero(t, c.NumDeferred())
	require.NoError(t, c.Check())
}

// requireNeed ensures that the allocation needs n blocks: it succeeds if n blocks may be taken and fails if only n-1
// may be taken (vllm/v1/RULES.md §6).
func requireNeed(t *testing.T, c *Cache, r *Request, a Alloc, n int) {
	t.Helper()
	free := c.Pool.NumFree()
	for _, reserved := range []int{free - n + 1, free - n} {
		a.ReservedBlocks = reserved
		require.Equal(t, reserved == free-n, fits(t, c, r, a), "%d of %d blocks are left", free-reserved, free)
	}
}

func TestTheCopyOfAHitTakesABlock(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.HashBlockSize = 4 }, Group{Kind: Full, BlockSize: 8}, Group{Kind: Mamba, BlockSize: 8, Align: true})
	first := prefilled(t, c, 12)
	first.NumComputedTokens = 12
	first.Append(12, 13)
	allocate(t, c, first, Alloc{NumNewTokens: 1})
	taken(c, 0)
	c.StartStep(0)
	r, hit := found(t, c, counting(14))
	require.Equal(t, 12, hit.NumTokens)
	// As vLLM counts, the allocation needs four free blocks. Two are for copies, because the hit ends inside a block of
	// each group: a copy of the attention block, and a copy of the Mamba state. One is for a new running Mamba state.
	// One is the free block of the hit: it leaves the free queue when the request adopts it.
	requireNeed(t, c, r, Alloc{NumNewTokens: 2, Hit: &hit}, 4)
}

func TestAHitOutsideTheWindowTakesNoBlock(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5})
	c.Release(prefilled(t, c, 9), Drop, 0)
	r, hit := found(t, c, counting(29))
	require.Equal(t, 8, hit.NumTokens)
	requireNeed(t, c, r, Alloc{NumNewTokens: 4, NumExternalTokens: 16, Hit: &hit}, 2)
	require.Len(t, r.Table(0), 7)
}

func TestAFirstStateTakesItsSpeculativeBlocks(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: Mamba, BlockSize: 4, Align: true, NumSpeculativeBlocks: 2})
	r := added(t, c, counting(20))
	requireNeed(t, c, r, Alloc{NumNewTokens: 4}, 3)
	r.NumComputedTokens = 4
	requireNeed(t, c, r, Alloc{NumNewTokens: 4}, 1)
}

// Ensure that a Mamba state is kept while a step in flight reads it (vllm/v1/RULES.md §13).
func TestAStateWaitsForTokensInFlight(t *testing.T) {
	for inFlight, want := range map[int]int32{4: 1, 0: 0} {
		c := newHybrid(t, func(c *Config) { c.EnablePrefixCaching = false }, Group{Kind: Mamba, BlockSize: 4, Align: true})
		r := added(t, c, counting(20))
		for step := range 3 {
			allocate(t, c, r, Alloc{NumNewTokens: 4, NumInFlightTokens: min(inFlight, 4*step)})
			r.NumComputedTokens = 4 + 4*step
		}
		require.Equal(t, want, r.Table(0)[0], "%d of 8 tokens in flight", inFlight)
	}
}
