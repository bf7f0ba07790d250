package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func TestImpossibleConfigurationsAreRefused(t *testing.T) {
	full := []Group{{Kind: Full, BlockSize: 4}}
	good := Config{NumGPUBlocks: 9, Groups: full, MaxModelLen: 64, EnablePrefixCaching: true, Hash: blockhash.LE{}}
	_, err := New(good)
	require.NoError(t, err)
	for _, tc := range []struct {
		name, wantErr string
		change        func(c *Config)
	}{
		{"no groups", "0 groups of layers", func(c *Config) { c.Groups = nil }},
		{"too many groups", "65 groups", func(c *Config) { c.Groups = make([]Group, 65) }},
		{"an empty block", "blocks of 0", func(c *Config) { c.Groups = []Group{{}} }},
		{"an empty window", "a window of 0", func(c *Config) { c.Groups = []Group{{Kind: SlidingWindow, BlockSize: 4}} }},
		{"empty chunks", "chunks of 0", func(c *Config) { c.Groups = []Group{{Kind: ChunkedLocal, BlockSize: 4}} }},
		{"a negative number of speculative blocks", "speculative", func(c *Config) { c.Groups = []Group{{Kind: Mamba, BlockSize: 4, NumSpeculativeBlocks: -1}} }},
		{"an unknown kind", "kind 9", func(c *Config) { c.Groups = []Group{{Kind: 9, BlockSize: 4}} }},
		{"a length beyond 2^31", "too long", func(c *Config) { c.MaxModelLen = 1<<31 - 1 }},
		{"no length", "the longest sequence has 0", func(c *Config) { c.MaxModelLen = 0 }},
		{"no hash", "needs a hash", func(c *Config) { c.Hash = nil }},
		{"a negative watermark", "watermark", func(c *Config) { c.Watermark = -1 }},
		{"an empty pool", "a pool of 0 blocks", func(c *Config) { c.NumGPUBlocks = 0 }},
		{"a hash block that does not divide", "a divisor", func(c *Config) { c.HashBlockSize = 3 }},
		{"a hash block other than the block", "want the same", func(c *Config) { c.HashBlockSize = 2 }},
		{"a scheduler block that is no multiple", "must be a multiple", func(c *Config) { c.SchedulerBlockSize = 6 }},
		{"a retention interval with full attention", "has no effect", func(c *Config) { c.RetentionInterval = 8 }},
		{"a retention interval that is no multiple", "or a multiple of the scheduler's block of 4", func(c *Config) {
			c.RetentionInterval, c.Groups = 6, []Group{{Kind: SlidingWindow, BlockSize: 4, Window: 4}}
		}},
		{"a retention interval below -1", "retention_interval is -2", func(c *Config) { c.RetentionInterval = -2 }},
		{"EAGLE with chunked local attention", "no EAGLE lookup", func(c *Config) {
			c.Eagle, c.Groups = true, []Group{{Kind: ChunkedLocal, BlockSize: 4, Chunk: 8}}
		}},
		{"chunked local attention with two block sizes", "with blocks of 4 needs scheduler_block_size 4, it is 8", func(c *Config) {
			c.Groups = []Group{{Kind: ChunkedLocal, BlockSize: 4, Chunk: 8}, {BlockSize: 8}}
		}},
		{"blocks whose least common multiple is no number", "multiple of the blocks of the first 2 groups", func(c *Config) {
			c.Groups = []Group{{BlockSize: 65521}, {BlockSize: 65536}, {BlockSize: 65519}}
		}},
	} {
		c := good
		tc.change(&c)
		_, err := New(c)
		require.ErrorIs(t, err, ErrConfig, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
}

func TestMisuseOfTheCacheIsRefused(t *testing.T) {
	c := newFull(t, 12)
	_, err := c.Add(Spec{})
	require.ErrorIs(t, err, ErrRequest)
	_, err = c.Add(Spec{Tokens: counting(3), Extras: blockhash.Extras{Items: []blockhash.Item{{Identifier: "i"}}}})
	require.ErrorIs(t, err, ErrRequest)
	r := computed(t, c, counting(6))
	var hit Hit
	c.Lookup(r, &hit)
	require.Equal(t, 4, hit.NumTokens)
	for _, tc := range []struct {
		name, wantErr string
		alloc         Alloc
	}{
		{"no tokens", "nothing to allocate for", Alloc{}},
		{"a negative number of tokens", "a negative number", Alloc{NumNewTokens: -1}},
		{"external tokens for a request with blocks", "has blocks already", Alloc{NumNewTokens: 1, NumExternalTokens: 4}},
	} {
		_, err := c.Allocate(r, &tc.alloc)
		require.ErrorIs(t, err, ErrRequest, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
	_, err = c.Allocate(r, &Alloc{NumNewTokens: 1, Hit: &hit})
	require.ErrorContains(t, err, "has blocks already")
	require.ErrorIs(t, c.Store(r, 7), ErrRequest)
	require.ErrorIs(t, c.Evict(-1), ErrRequest)
	require.ErrorIs(t, c.Evict(12), ErrRequest)
	require.NoError(t, c.Check())
}

func lookedUp(t *testing.T, c *Cache) (r *Request, hit Hit) {
	t.Helper()
	c.Release(computed(t, c, counting(9)), Drop, 0)
	r, hit = found(t, c, counting(9))
	require.Equal(t, 8, hit.NumTokens)
	return r, hit
}

// Ensure that a hit is refused if a key was removed after the lookup, or if the lookup was for another request.
func TestAStaleHitIsRefused(t *testing.T) {
	c := newFull(t, 12)
	r, hit := lookedUp(t, c)
	other := added(t, c, counting(9))
	_, err := c.Allocate(other, &Alloc{NumNewTokens: 1, Hit: &hit})
	require.ErrorIs(t, err, ErrStale, "it is of another request")
	require.NoError(t, c.Evict(hit.Blocks[0][1]))
	_, err = c.Allocate(r, &Alloc{NumNewTokens: 1, Hit: &hit})
	require.ErrorIs(t, err, ErrStale)
	c.Lookup(r, &hit)
	require.Equal(t, 4, hit.NumTokens)
	allocate(t, c, r, Alloc{NumNewTokens: 5, Hit: &hit})

	c = newFull(t, 12)
	r, hit = lookedUp(t, c)
	require.True(t, c.Reset())
	_, err = c.Allocate(r, &Alloc{NumNewTokens: 1, Hit: &hit})
	require.ErrorIs(t, err, ErrStale, "after a reset")
}

// Ensure that an allocation fails if fewer than ReservedBlocks blocks would stay free, even if it needs no block.
func TestReservedBlocksAreLeftToOthers(t *testing.T) {
	c := newFull(t, 6)
	r := computed(t, c, counting(7)) // two of five blocks
	r.Append(7)
	require.False(t, fits(t, c, r, Alloc{NumNewTokens: 1, ReservedBlocks: 4}), "nothing is needed")
	require.True(t, fits(t, c, r, Alloc{NumNewTokens: 1, ReservedBlocks: 3}))
	r.NumComputedTokens = 8
	r.Append(8)
	require.False(t, fits(t, c, r, Alloc{NumNewTokens: 1, ReservedBlocks: 3}), "one block is needed")
	require.True(t, fits(t, c, r, Alloc{NumNewTokens: 1, ReservedBlocks: 2}))
}

func TestEagleDropsOnceForEachLength(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.Eagle = true },
		Group{Kind: Full, BlockSize: 4}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 5}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 6})
	r := prefilled(t, c, 33)
	evict(t, c, r, 1, 5)
	evict(t, c, r, 2, 6, 7)
	var hit Hit
	c.Lookup(r, &hit)
	require.Equal(t, 20, hit.NumTokens)
	require.Equal(t, 28, r.Junction, "full attention had more")
	require.Equal(t, r.Table(0)[:5], hit.Blocks[0])
	require.Equal(t, []int32{0, 0, 0, 0, r.Table(1)[4]}, hit.Blocks[1])
	require.Equal(t, []int32{0, 0, 0, r.Table(2)[3], r.Table(2)[4]}, hit.Blocks[2])
}

// Ensure that a request adds its blocks to the cache even if it does not read the cache (vllm/v1/RULES.md §5).
func TestARequestThatDoesNotReadTheCacheStillWritesIt(t *testing.T) {
	c := newFull(t, 12)
	r, err := c.Add(Spec{Tokens: counting(9), NoRead: true})
	require.NoError(t, err)
	var hit Hit
	c.Lookup(r, &hit)
	require.Zero(t, hit.NumTokens)
	allocate(t, c, r, Alloc{NumNewTokens: 9, Hit: &hit})
	c.record(r, 0)
	require.Zero(t, c.Stats)
	c.Lookup(r, &hit)
	require.Zero(t, hit.NumTokens)
	_, hit = found(t, c, counting(9))
	require.Equal(t, 8, hit.NumTokens)
}

// Ensure that a lookup with Spec.Report records an event with the hashes of the reused blocks (vllm/v1/RULES.md §12).
func TestAReportOfHitsSaysWhatWasReused(t *testing.T) {
	c := newHybrid(t, func(c *Config) { c.EnableEvents = true }, Group{Kind: Full, BlockSize: 4})
	computed(t, c, counting(9))
	var events pool.Events
	c.Pool.TakeEvents(&events)
	r, err := c.Add(Spec{Tokens: counting(9), Report: true})
	require.NoError(t, err)
	var hit Hit
	c.Lookup(r, &hit)
	c.Pool.TakeEvents(&events)
	require.Len(t, events.List, 1)
	require.Equal(t, Hashes(r), events.Hashes(&events.List[0]))
}

func TestCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(c *Cache, r *Request){
		"table entries name it": func(c *Cache, r *Request) { r.tables[0].ids = r.tables[0].ids[:1] },
		"owners":                func(c *Cache, r *Request) { c.groups[0].owners++ },
		"has no owner":          func(c *Cache, r *Request) { r.tables[0].owns = false },
		"are registered":        func(c *Cache, r *Request) { r.tables[0].registered = 9 },
		"somewhere else":        func(c *Cache, r *Request) { r.tables[0].ids[1] = 1; c.pool.Touch([]int32{1}); c.pool.Free([]int32{2}) },
		"has the key of other":  func(c *Cache, r *Request) { r.content.Tokens[0]++; r.content.Hashes = nil; r.hash() },
		"has a key of group": func(c *Cache, r *Request) {
			r.tables[0].ids[0], r.tables[0].ids[1] = r.tables[0].ids[1], r.tables[0].ids[0]
		},
		"the hashes are not those": func(c *Cache, r *Request) { r.content.Hashes[0][3]++ },
		"of 4":                     func(c *Cache, r *Request) { r.content.Hashes = r.content.Hashes[:1] },
		"9 tokens, -1 computed":    func(c *Cache, r *Request) { r.NumComputedTokens = -1 },
	} {
		c := newFull(t, 12)
		r := computed(t, c, counting(9))
		require.NoError(t, c.Check())
		damage(c, r)
		require.ErrorContains(t, c.Check(), name)
	}
}
