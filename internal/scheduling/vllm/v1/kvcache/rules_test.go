package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
)

// Rules that no recording reaches, with numbers worked out by hand.

func newHybrid(t *testing.T, change func(c *Config), groups ...Group) *Cache {
	config := Config{NumGPUBlocks: 60, Groups: groups, EnablePrefixCaching: true, Hash: blockhash.LE{}, MaxModelLen: 64, RetentionInterval: RetainAll}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	require.NoError(t, err)
	return c
}

func prefilled(t *testing.T, c *Cache, n int) *Request {
	r := added(t, c, counting(n))
	allocate(t, c, r, Alloc{NumNewTokens: n})
	return r
}

func evict(t *testing.T, c *Cache, r *Request, group int, slots ...int) {
	for _, slot := range slots {
		require.NoError(t, c.Evict(r.Table(group)[slot]))
	}
}

// Ensure that the length of a hit is rounded down again to SchedulerBlockSize after EAGLE has dropped a block.
func TestTheEagleDropIsTrimmedAgain(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.Eagle = true }, Group{Kind: Full, BlockSize: 8}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 17})
	r := prefilled(t, c, 41)
	evict(t, c, r, 1, 3, 4, 5, 6, 7, 8, 9)
	var hit Hit
	c.Lookup(r, &hit)
	require.Zero(t, hit.NumTokens)
	require.Equal(t, 32, r.Junction, "full attention has 40 and drops 8")
}

// Ensure that with EAGLE the cached blocks of a window may end one block after a multiple of SchedulerBlockSize.
func TestAnEagleRunEndsABlockPastTheBoundary(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.Eagle = true }, Group{Kind: Full, BlockSize: 8}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5})
	r := prefilled(t, c, 33)
	var hit Hit
	c.Lookup(r, &hit)
	require.Equal(t, 24, hit.NumTokens, "32 less a block of 8")
	require.Equal(t, [][]int32{r.Table(0)[:3], {0, 0, 0, 0, 0, r.Table(1)[5]}}, hit.Blocks)
}

// Ensure that a Mamba group keeps the states at the ends of segments of two blocks. It must also keep the state at the
// end of the last full block of the prompt (vllm/v1/RULES.md §9).
func TestMambaStatesAtTheEndsOfSegmentsAreKept(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.RetentionInterval = 8 }, Group{Kind: Mamba, BlockSize: 4})
	r := prefilled(t, c, 21)
	require.Equal(t, []int{1, 3, 4}, kept(c, r, 0))
}

// Ensure that in align mode the state at the end of a prompt of whole blocks is kept. Without Config.Exact, as in vLLM,
// none is: the state that would be kept is that of the block before, which no chunk stores (vllm/v1/RULES.md §17).
func TestTheStateAtTheEndOfAPromptOfWholeBlocksIsKept(t *testing.T) {
	for exact, want := range map[bool][]int{true: {4}, false: nil} {
		c := newHybrid(t, func(c *Config) { c.Exact, c.RetentionInterval = exact, 0 }, Group{Kind: Mamba, BlockSize: 4, Align: true})
		require.Equal(t, want, kept(c, prefilled(t, c, 20), 0), "Exact: %v", exact)
	}
}

// Ensure that in each step the running state moves forward in the table by the number of new blocks. Speculative blocks
// that would be before the running state must move to the end of the table. The block of the previous running state
// must be freed one step later (vllm/v1/RULES.md §13).
func TestSpeculativeStatesMoveOn(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.EnablePrefixCaching = false }, Group{Kind: Mamba, BlockSize: 4, Align: true, NumSpeculativeBlocks: 2})
	r := added(t, c, counting(40))
	step := func(n int, want ...int32) {
		allocate(t, c, r, Alloc{NumNewTokens: n})
		r.NumComputedTokens = r.NumComputedTokens + n
		require.Equal(t, want, r.Table(0))
	}
	step(4, 1, 2, 3)                    // the state in slot 0, two speculative blocks
	step(8, 1, 0, 3, 2, 4)              // slot 2 has the state, and slot 1 comes before it
	step(4, 0, 0, 3, 2, 4, 1)           // slot 3 has the state; the block of slot 0 is freed and allocated again
	step(12, 0, 0, 0, 2, 0, 0, 4, 1, 3) // the state in slot 6; that of slot 2 is freed
	require.Equal(t, 4, c.Config.PeakBlocks(40, 1), "two states and two speculative blocks")
}

func TestAStateOfThisStepIsNotHit(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: Full, BlockSize: 4}, Group{Kind: Mamba, BlockSize: 4, Align: true})
	c.StartStep(0)
	prefilled(t, c, 4)
	other, hit := found(t, c, counting(6))
	require.Equal(t, 4, hit.NumTokens)
	require.False(t, fits(t, c, other, Alloc{NumNewTokens: 2, Hit: &hit}))
	c.StartStep(0)
	require.True(t, fits(t, c, other, Alloc{NumNewTokens: 2, Hit: &hit}))
}

// Ensure that admission counts at most as many blocks as a window can hold. 40 tokens would take 10 blocks, but a
// window of 8 tokens with 4 in flight takes at most 4 (vllm/v1/RULES.md §6).
func TestAdmissionOfALongPromptThroughAWindow(t *testing.T) {
	for blocks, want := range map[int]bool{5: true, 4: false} {
		c := newHybrid(t, func(c *Config) { c.NumGPUBlocks, c.MaxInFlightTokens = blocks, 4 }, Group{Kind: SlidingWindow, BlockSize: 4, Window: 8})
		r := added(t, c, counting(40))
		require.Equal(t, want, fits(t, c, r, Alloc{NumNewTokens: 4, FullSequenceMustFit: true}), "%d blocks", blocks)
	}
}

func TestExternalTokensGetBlocksAfterTheHit(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: Full, BlockSize: 4}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5})
	r := added(t, c, counting(18))
	allocate(t, c, r, Alloc{NumNewTokens: 2, NumExternalTokens: 16, DelayCacheBlocks: true})
	r.NumComputedTokens = 18
	require.Equal(t, []int32{1, 2, 3, 4, 6}, r.Table(0))
	require.Equal(t, []int32{0, 0, 0, 5, 7}, r.Table(1), "12 tokens are outside the window")
	require.Zero(t, c.Pool.NumKeys(), "they are not loaded yet")
	require.NoError(t, c.Store(r, 16))
	require.Equal(t, 4+1, c.Pool.NumKeys())
}
