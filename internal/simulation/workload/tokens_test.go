package workload

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func inCommon(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Ensure that two requests begin with equal tokens up to the end of their shared prefix, or of their leading blocks
// with equal hashes. Ensure that their next tokens differ.
func TestRequestsShareTheTokensThatTheirHashesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := rapid.SampledFrom([]int{0, 0, 80, 600}).Draw(t, "shared")
		request := func(name string) Request {
			r := Request{Shared: shared, Output: rapid.IntRange(1, 40).Draw(t, name+" output")}
			if shared == 0 {
				r.Hashes = rapid.SliceOfN(rapid.Int64Range(0, 2), 0, 4).Draw(t, name+" hashes")
			}
			tokens := len(r.Hashes) * hashTokens
			r.Prompt = rapid.IntRange(max(1, tokens-hashTokens+1), max(tokens, 900)).Draw(t, name+" prompt")
			return r
		}
		a, b := request("a"), request("b")
		x, y := Tokens(nil, &a, 0), Tokens(nil, &b, 1)
		require.Len(t, x, a.Prompt+a.Output)
		require.Equal(t, x, Tokens(nil, &a, 0))

		blocks := 0
		for blocks < min(len(a.Hashes), len(b.Hashes)) && a.Hashes[blocks] == b.Hashes[blocks] {
			blocks++
		}
		want := min(max(blocks*hashTokens, shared), a.Prompt, b.Prompt)
		require.Equal(t, want, inCommon(x, y))
		require.GreaterOrEqual(t, min(slices.Min(x), slices.Min(y)), int32(0))
	})
}

// Ensure that the tokens of a block depend on the blocks before it. Ensure that outputs are not shared.
func TestTokensOfABlockDependOnTheBlocksBefore(t *testing.T) {
	a := Request{Prompt: 1024, Output: 600, Hashes: []int64{1, 7}}
	b := Request{Prompt: 1024, Output: 600, Hashes: []int64{2, 7}}
	x, y := Tokens(nil, &a, 0), Tokens(nil, &b, 1)
	require.Zero(t, inCommon(x, y))
	require.NotEqual(t, x[512:1024], y[512:1024])
	y = Tokens(nil, &a, 1)
	require.Equal(t, x[:1024], y[:1024])
	for i := 1024; i < len(x); i++ {
		require.NotEqual(t, x[i], y[i])
	}
}

// Ensure that Tokens appends ids to its argument.
func TestRequestsWithNothingInCommonDifferFromTheFirstToken(t *testing.T) {
	r := Request{Prompt: 3, Output: 2}
	seen := map[int32]bool{}
	for i := range 1000 {
		ids := Tokens([]int32{5}, &r, i)
		require.Len(t, ids, 6)
		require.Equal(t, int32(5), ids[0])
		require.False(t, seen[ids[1]])
		seen[ids[1]] = true
	}
}
