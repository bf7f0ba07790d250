package encodercache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// request has inputs of these sizes one after the other, named by name and index.
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

// The scenarios of vLLM's tests of its encoder cache manager.

func TestAnOutputIsFoundAgainWhileNobodyNeedsItsRoom(t *testing.T) {
	c, r := New(10), request("a", 4)
	require.False(t, c.Use(r, 0))
	allocate(t, c, r, 0)
	require.True(t, c.Use(r, 0))
	requireUsage(t, c, 4, 4)
	c.freeInput(r, 0)
	requireUsage(t, c, 4, 0)
	require.True(t, c.Use(request("a", 4), 0))
	requireUsage(t, c, 4, 4)
}

func TestFreeEndsAllReferences(t *testing.T) {
	c, r := New(10), request("a", 2, 3)
	allocate(t, c, r, 0)
	allocate(t, c, r, 1)
	c.Free(r)
	requireUsage(t, c, 5, 0)
	c.Free(r)
	require.Empty(t, c.TakeEvicted(nil))
}

func TestTheLongestUnreferencedOutputIsEvicted(t *testing.T) {
	c, a, b := New(10), request("a", 6), request("b", 5)
	allocate(t, c, a, 0)
	require.False(t, c.Reserve(b, 0, 0), "a is still read")
	c.Free(a)
	allocate(t, c, b, 0)
	require.Equal(t, []string{"a0"}, c.TakeEvicted(nil))
	require.Empty(t, c.TakeEvicted(nil))
	require.False(t, c.Use(a, 0))
	requireUsage(t, c, 5, 5)
}

func TestPlannedOutputsTakeRoom(t *testing.T) {
	c, r := New(10), request("a", 5, 6)
	require.True(t, c.Reserve(r, 0, 0))
	require.False(t, c.Reserve(r, 1, 5))
}

func TestAnOutputThatIsComputedAgainIsNotDropped(t *testing.T) {
	c, a, b := New(10), request("a", 6), request("b", 6)
	allocate(t, c, a, 0)
	c.Free(a)
	allocate(t, c, b, 0)
	c.Free(b)
	allocate(t, c, a, 0)
	require.Equal(t, []string{"b0"}, c.TakeEvicted(nil))
}

func TestOnlySomeTokensOfAnItemTakeEmbeddings(t *testing.T) {
	in := Input{Hash: "a", Offset: 2, Length: 5}
	in.Mask([]byte{0, 0, 0, 1, 0, 1, 1, 0})
	require.Equal(t, 3, in.NumEmbeds)
	for _, tc := range []struct{ start, end, want int }{{0, 9, 3}, {5, 7, 2}, {2, 3, 0}, {4, 5, 0}, {3, 4, 1}, {7, 9, 0}} {
		require.Equal(t, tc.want, in.Embeds(tc.start, tc.end), "tokens %d to %d", tc.start, tc.end)
	}
	c, r := New(3), NewRequest([]Input{in})
	allocate(t, c, r, 0)
	requireUsage(t, c, 3, 3)
}

// Ensure that tokens need the items of which they have a token, and no others.
func TestAWindowHasTheItemsOfItsTokens(t *testing.T) {
	r := request("a", 4, 3, 5) // tokens 0 to 3, 4 to 6, 7 to 11
	for _, tc := range []struct{ start, end, lo, hi int }{
		{0, 4, 0, 1}, {0, 5, 0, 2}, {3, 7, 0, 2}, {4, 7, 1, 2}, {4, 8, 1, 3}, {6, 7, 1, 2}, {11, 12, 2, 3}, {12, 20, 3, 3},
	} {
		lo, hi := r.Window(tc.start, tc.end)
		require.Equal(t, [2]int{tc.lo, tc.hi}, [2]int{lo, hi}, "%+v", tc)
	}
}

// Ensure that a failed step loses the outputs that it should have computed, and no older ones.
func TestAFailedStepLosesItsOutputs(t *testing.T) {
	c, r := New(10), request("a", 2, 3)
	c.Allocate(r, 0, 4)
	c.Allocate(r, 1, 5)
	c.EvictSince(5)
	requireUsage(t, c, 2, 2)
	require.Equal(t, []string{"a1"}, c.TakeEvicted(nil))
}

func TestResetForgetsAll(t *testing.T) {
	c, a, b := New(10), request("a", 4), request("b", 4)
	allocate(t, c, a, 0)
	allocate(t, c, b, 0)
	c.Free(b)
	c.Reset()
	requireUsage(t, c, 0, 0)
	require.False(t, c.Use(a, 0))
	require.Empty(t, c.TakeEvicted(nil))
}

// Ensure that the counts are right after any operations, and that what a request refers to
// stays.
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
