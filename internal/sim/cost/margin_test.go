package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a margin multiplies the times of all iterations, and that only the time to the first token includes the
// server's own work.
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

// Ensure that an answer says whose servers it rests on, and that it is less sure where there are none.
func TestTheMarginIsWiderWhereNobodyElsePublished(t *testing.T) {
	of := func(engine, gpu string) *Margin {
		fitted := engineOn(t, engine, gpu)
		return roofline(t, "llama-3-8b", gpu, 1).On(fitted).Margin()
	}
	own, none := of("vllm", "h100-80gb"), of("vllm", "b200-180gb")
	require.Contains(t, own.String(), "on h100-80gb")
	require.Contains(t, none.String(), "nobody else published anything on this one")
	require.Less(t, own.Most/own.Least, none.Most/none.Least)
	require.Positive(t, own.First.Likely)
	require.Zero(t, of("vllm-0.7.3", "h100-80gb").First.Likely, "none of its servers' first tokens are published")
	require.Nil(t, roofline(t, "llama-3-8b", "h100-80gb", 1).Margin(), "constants by hand")
}

// Ensure that the margin is wider for mixtures of experts and for weights in few bits, of which other publishers have
// nothing, and that the answer says so.
func TestTheMarginIsWiderForKindsThatNobodyElsePublished(t *testing.T) {
	fitted := engineOn(t, "vllm", "h100-80gb")
	of := func(llm, weights string) *Margin {
		s, err := roofline(t, llm, "h100-80gb", 4).On(fitted).Quantised(weights, "")
		require.NoError(t, err)
		return s.Margin()
	}
	dense := of("llama-3-70b", "")
	require.NotContains(t, dense.String(), "wider")
	for _, c := range []struct{ llm, weights, says string }{
		{"mixtral-8x7b", "", "and wider, as there are none of mixtures of experts)"},
		{"llama-3-70b", "int4", "and wider, as there are none of weights in 8 bits or fewer)"},
		{"mixtral-8x7b", "fp8", "none of mixtures of experts and of weights in 8 bits or fewer)"},
	} {
		m := of(c.llm, c.weights)
		require.Less(t, m.Least, dense.Least, c.says)
		require.Greater(t, m.Most, dense.Most, c.says)
		require.Contains(t, m.String(), c.says)
	}
}
