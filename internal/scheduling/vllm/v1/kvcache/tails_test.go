package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The scenarios and their values are those of vLLM's
// tests/v1/core/prefix_cache/test_partial_prefix_cache_hits.py.

func withTail(t *testing.T) *Cache {
	return newHybrid(t, func(c *Config) { c.NumGPUBlocks, c.HandOffTails = 24, true },
		Group{Kind: Full, BlockSize: 2}, Group{Kind: Mamba, BlockSize: 4, Align: true})
}

func continued(t *testing.T, c *Cache, n int) *Request {
	r := prefilled(t, c, n)
	require.Empty(t, taken(c, 0).Tails, "the state is still the request's own")
	r.NumComputedTokens = n
	r.Append(3)
	allocate(t, c, r, Alloc{NumNewTokens: 1})
	return r
}

// test_take_partial_tail_offloads_returns_cow_target
func TestTheStateAtTheEndOfAPromptIsHandedOff(t *testing.T) {
	c := withTail(t)
	r := continued(t, c, 6)
	pending := taken(c, 0)
	tails, copies := pending.Tails, pending.Copies
	require.Len(t, copies, 1)
	require.Equal(t, []Tail{{Request: r, Group: 1, Block: copies[0].Dst, NumTokens: 6}}, tails)
	require.Equal(t, copies[0].Src, r.Table(1)[1], "the request goes on in its block")
	require.Empty(t, taken(c, 0).Tails)

	require.EqualValues(t, 1, c.Pool.Count(copies[0].Dst), "the request keeps it")
	require.NoError(t, c.Check())
	c.Release(r, UndoAdmit, 0)
	c.Release(r, UndoAdmit, 0)
	require.NoError(t, c.Check())
	require.Zero(t, c.Pool.Count(copies[0].Dst))
	require.Equal(t, 23, c.Pool.NumFree())
}

// test_partial_tail_offload_dropped_when_request_freed_before_drain
func TestAStateOfARequestThatIsGoneIsNotHandedOff(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(c *Cache, r *Request)
	}{
		{"free", func(c *Cache, r *Request) { c.Release(r, UndoAdmit, 0) }},
		{"preempt", func(c *Cache, r *Request) { c.Release(r, Preempt, 0) }},
		{"drop", func(c *Cache, r *Request) { c.Release(r, Drop, 0) }},
		{"free later", func(c *Cache, r *Request) { c.Release(r, UndoAdmit, 1) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := withTail(t)
			tc.end(c, continued(t, c, 6))
			require.Empty(t, taken(c, 0).Tails)
			require.NoError(t, c.Check())
		})
	}
}

func TestAHitOfAStateIsNotHandedOff(t *testing.T) {
	c := withTail(t)
	continued(t, c, 6)
	taken(c, 0)
	c.StartStep(0)
	r, hit := found(t, c, append(counting(6), 9, 9, 9))
	require.Equal(t, 6, hit.NumTokens)
	allocate(t, c, r, Alloc{Hit: &hit, NumNewTokens: 2})
	require.Len(t, c.copies, 1)
	require.Empty(t, taken(c, 0).Tails)
}

// Ensure that Release also frees the block of a Tail that Take has returned. While a step is in flight, Release puts
// this block and the blocks of the request's tables into one list. When the step has run, EndStep frees the blocks of
// the list from the last to the first. vLLM frees the tail's block last (pop_blocks_for_free), so the tail's block must
// be the first in the list.
func TestAHandedOffStateIsFreedWithItsRequestsBlocks(t *testing.T) {
	c := withTail(t)
	r := continued(t, c, 6)
	tail := taken(c, 0).Tails[0].Block
	c.Release(r, UndoAdmit, 5)
	require.NoError(t, c.Check())
	require.EqualValues(t, 1, c.Pool.Count(tail))
	require.Equal(t, tail, c.deferred[0].ids[0])
	c.EndStep(5)
	require.Equal(t, 23, c.Pool.NumFree())
	require.NoError(t, c.Check())
}

// Ensure that Pending.NewBlocks lists each new block of groups with keys and values once, and no blocks of states. If a
// hit ends inside a block, the copy of this block is a new block.
func TestPendingListsNewBlocksOnce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		align bool
	}{{"states at ends of blocks", true}, {"states of all blocks", false}} {
		t.Run(tc.name, func(t *testing.T) {
			c := newHybrid(t, func(c *Config) { c.HashBlockSize, c.RecordNewBlocks = 2, true },
				Group{Kind: Full, BlockSize: 4}, Group{Kind: Mamba, BlockSize: 4, Align: tc.align})
			r := prefilled(t, c, 6)
			require.Equal(t, r.Table(0), taken(c, 0).NewBlocks)
			r.NumComputedTokens = 6
			r.Append(3)
			allocate(t, c, r, Alloc{NumNewTokens: 1})
			require.Empty(t, taken(c, 0).NewBlocks)
			c.StartStep(0)
			again, hit := found(t, c, append(counting(6), 9, 9, 9))
			allocate(t, c, again, Alloc{Hit: &hit, NumNewTokens: 9 - hit.NumTokens})
			require.Equal(t, again.Table(0)[hit.NumTokens/4:], taken(c, 0).NewBlocks)
			again.NoteUnwritten(4)
			require.Equal(t, again.Table(0)[1:], taken(c, 0).NewBlocks)
		})
	}
}
