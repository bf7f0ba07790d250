package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that Within multiplies the times of all iterations by its first argument. Its second argument, the time
// outside iterations until the first token, must not be a part of these times.
func TestWithinAMarginAllTimesAreMultiplied(t *testing.T) {
	s := roofline(t, "mixtral-8x7b", "h100-80gb", 4)
	m := timed(t, s)
	slow := m.Within(1.5, 0.2)
	for _, w := range []Work{
		{Seqs: 1, Context: 100}, {Seqs: 200, Context: 90_000}, {Seqs: 1, Prompt: 5, PromptContext: 15},
		{Seqs: 30, Context: 5000, Prompt: 8000, PromptContext: 32_004_000, SwapBlocks: 3, Swaps: 2, CopyBlocks: 1},
	} {
		require.InEpsilon(t, 1.5*m.Seconds(w), slow.Seconds(w), 1e-9)
	}
	require.Equal(t, 0.2, slow.FirstToken())
	require.Zero(t, m.FirstToken(), "constants by hand say nothing of a server")
}

// Ensure that the text of a margin contains the GPU's name if the margin was computed from points of this GPU. A GPU
// with too few points has the margin of all GPUs, which must be wider.
func TestTheMarginIsWiderWhereNobodyElsePublished(t *testing.T) {
	marginOf := func(gpu string) *Margin { return roofline(t, "llama-3-8b", gpu, 1).On(engineOn(t, gpu)).Margin() }
	own, none := marginOf("h100-80gb"), marginOf("b200-180gb")
	require.Contains(t, own.String(), "on h100-80gb")
	require.Contains(t, none.String(), "too little is published for this one")
	require.Less(t, own.Most/own.Least, none.Most/none.Least)
	require.Positive(t, own.First.Likely)
	require.Nil(t, roofline(t, "llama-3-8b", "h100-80gb", 1).Margin(), "constants by hand")
}
