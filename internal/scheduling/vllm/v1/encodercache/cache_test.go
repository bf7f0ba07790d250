package encodercache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func request(name string, sizes ...int) *Request {
	var inputs []Input
	at := 0
	for i, n := range sizes {
		inputs = append(inputs, Input{Hash: fmt.Sprint(name, i), Offset: at, Length: n, NumEmbeds: n})
		at += n
	}
	return NewRequest(inputs)
}

func allocate(t testing.TB, c *Cache, r *Request, i int) {
	require.True(t, c.Reserve(r, i, 0))
	c.Allocate(r, i, 1)
	require.NoError(t, c.Check())
}

func requireUsage(t testing.TB, c *Cache, taken, referenced int) {
	gotTaken, gotReferenced := c.Usage()
	require.Equal(t, [2]int{taken, referenced}, [2]int{gotTaken, gotReferenced}, "embeddings taken, and referenced")
	require.NoError(t, c.Check())
}

// The scenarios and numbers are those of vLLM's tests/v1/core/test_encoder_cache_manager.py. What vLLM calls free slots
// is the size of the cache minus the first result of Usage, and its freeable slots are the size minus the second
// result. The encoder cache of encoder-decoder models is not implemented.

func TestTheLongestUnreferencedOutputIsEvicted(t *testing.T) {
	c, a, b := New(10), request("a", 6), request("b", 5, 6)
	require.False(t, c.Reserve(b, 1, 5), "planned outputs take space")
	allocate(t, c, a, 0)
	require.False(t, c.Reserve(b, 0, 0), "a is still read")
	c.Free(a)
	allocate(t, c, b, 0)
	require.Equal(t, []string{"a0"}, c.TakeEvicted(nil))
	require.Empty(t, c.TakeEvicted(nil))
	require.False(t, c.Use(a, 0))
	requireUsage(t, c, 5, 5)
}

// test_reallocated_hash_is_not_reported_as_freed
func TestOnlyOutputsThatAreGoneAreReportedAsEvicted(t *testing.T) {
	c, a, b, d := New(8), request("a", 4), request("b", 4), request("c", 4)
	allocate(t, c, a, 0)
	allocate(t, c, b, 0)
	c.Free(a)
	c.Free(b)
	allocate(t, c, d, 0)
	allocate(t, c, a, 0)
	require.Equal(t, []string{"b0"}, c.TakeEvicted(nil))
}

// test_encoder_cache_with_is_embed_mask, test_encoder_cache_mask_based_retrieval
func TestOnlySomeTokensOfAnItemTakeEmbeddings(t *testing.T) {
	in := Input{Hash: "a", Offset: 2, Length: 5}
	in.Mask([]byte{0, 0, 0, 1, 0, 1, 1, 0})
	for _, tc := range []struct{ start, end, want int }{{0, 9, 3}, {5, 7, 2}, {2, 3, 0}, {4, 5, 0}, {3, 4, 1}, {7, 9, 0}} {
		require.Equal(t, tc.want, in.Embeds(tc.start, tc.end), "tokens %d to %d", tc.start, tc.end)
	}
	c, r := New(3), NewRequest([]Input{in})
	allocate(t, c, r, 0)
	requireUsage(t, c, 3, 3)
}

// test_free_request_with_duplicate_mm_hashes
func TestARequestCanHaveAnItemTwice(t *testing.T) {
	c, r := New(20), NewRequest([]Input{{Hash: "imgA", Length: 4, NumEmbeds: 4}, {Hash: "imgA", Offset: 4, Length: 4, NumEmbeds: 4}})
	allocate(t, c, r, 0)
	require.True(t, c.Use(r, 1))
	requireUsage(t, c, 4, 4)
	c.Free(r)
	require.Empty(t, r.held)
	requireUsage(t, c, 4, 0)
}

func TestAWindowHasTheItemsOfItsTokens(t *testing.T) {
	r := request("a", 4, 3, 5) // tokens 0 to 3, 4 to 6, 7 to 11
	for _, tc := range []struct{ start, end, lo, hi int }{
		{0, 4, 0, 1}, {0, 5, 0, 2}, {3, 7, 0, 2}, {4, 7, 1, 2}, {4, 8, 1, 3}, {6, 7, 1, 2}, {11, 12, 2, 3}, {12, 20, 3, 3},
	} {
		lo, hi := r.Window(tc.start, tc.end)
		require.Equal(t, [2]int{tc.lo, tc.hi}, [2]int{lo, hi}, "%+v", tc)
	}
}

// Ensure that a failed step loses its outputs, because they were not computed. Older outputs must stay.
func TestAFailedStepLosesItsOutputs(t *testing.T) {
	c, r := New(10), request("a", 2, 3)
	c.Allocate(r, 0, 4)
	c.Allocate(r, 1, 5)
	c.EvictSince(5)
	requireUsage(t, c, 2, 2)
	require.Equal(t, []string{"a1"}, c.TakeEvicted(nil))
}

// test_reset_clears_all_state, test_reset_allows_fresh_allocations
func TestResetForgetsAll(t *testing.T) {
	c, first, second, third := New(20), request("img", 5, 3), request("img3", 4), request("img4", 10)
	allocate(t, c, first, 0)
	allocate(t, c, first, 1)
	allocate(t, c, second, 0)
	c.Free(first)
	c.Free(second)
	allocate(t, c, third, 0)
	requireUsage(t, c, 17, 10)
	c.Reset()
	requireUsage(t, c, 0, 0)
	require.Empty(t, c.TakeEvicted(nil))
	require.Empty(t, third.held)
	require.False(t, c.Use(first, 0))
	allocate(t, c, request("large", 20), 0)
}

// Ensure that an output stays in the cache as long as a request has a reference to it. The counters must be right.
func TestCountsAreRightAfterAnyOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(12)
		var requests []*Request
		for range 4 {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			requests = append(requests, request(name, 5, 3, 4))
		}
		step := uint64(1)
		used := map[*Request]map[int]bool{}
		for _, r := range requests {
			used[r] = map[int]bool{}
		}
		t.Repeat(map[string]func(*rapid.T){
			"use": func(t *rapid.T) {
				r, i := rapid.SampledFrom(requests).Draw(t, "of"), rapid.IntRange(0, 2).Draw(t, "input")
				if !c.Use(r, i) && c.Reserve(r, i, 0) {
					c.Allocate(r, i, step)
				} else if !c.Use(r, i) {
					return
				}
				used[r][i] = true
			},
			"free": func(t *rapid.T) {
				r := rapid.SampledFrom(requests).Draw(t, "of")
				c.Free(r)
				clear(used[r])
			},
			"pass": func(t *rapid.T) {
				r, end := rapid.SampledFrom(requests).Draw(t, "of"), rapid.IntRange(0, 12).Draw(t, "end")
				c.FreePassed(r, end)
				for i, in := range r.Inputs() {
					if in.Offset+in.Length <= end {
						delete(used[r], i)
					}
				}
			},
			"step": func(*rapid.T) { step++ },
			"fail": func(*rapid.T) {
				c.EvictSince(step)
				for _, r := range requests {
					for i, in := range r.inputs {
						if c.entries[in.Hash] == nil {
							delete(used[r], i)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				require.NoError(t, c.Check())
				for r, inputs := range used {
					for i := range inputs {
						require.NotNil(t, c.entries[r.inputs[i].Hash])
					}
				}
			},
		})
	})
}
