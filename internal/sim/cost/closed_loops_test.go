package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// v1Point returns a closed loop on vLLM V1.
func v1Point(clients, prompt, output int) measurement {
	return measurement{Published: Published{
		Engine: "vllm", Release: v1Release, Version: "0.12.0", Model: "llama-3-8b", GPU: "h100-80gb", Workers: 1,
		DType: "bf16",
		Batch: clients, Prompt: prompt, Output: output, Metric: "closed_request_ms", Value: 1, Budget: 8192,
	}, Median: prompt, Longest: output}
}

// Ensure that a closed loop of V1 takes longer with more clients and longer prompts, less long with cached
// prompts, and that its prompts are computed beside decodes: faster than in iterations that only have prompts.
func TestClosedLoopsOfV1(t *testing.T) {
	seconds := func(p measurement) float64 {
		t.Helper()
		f, err := OpenEngine("vllm", p.GPU)
		require.NoError(t, err)
		s, err := p.Predict(f.Engine)
		require.NoError(t, err)
		return s
	}
	few := v1Point(16, 1000, 200)
	for _, more := range []measurement{v1Point(17, 1000, 200), v1Point(16, 1100, 200), v1Point(16, 1000, 210)} {
		require.Greater(t, seconds(more), seconds(few), more)
	}
	cached := few
	cached.Computed = 9
	require.Less(t, seconds(cached), seconds(few))
	apart := few
	apart.Budget = 0
	apart.Metric = "closed_tokens_per_s"
	require.Less(t, seconds(few), seconds(apart))
	crowded := v1Point(256, 4000, 4) // prompts alone fill the iterations
	m := 256 * 4000.0 / (8192 - 256)
	one := v1Point(1, 8192, 1)
	one.Metric = "first_token_ms"
	require.InEpsilon(t, m*seconds(one), seconds(crowded), 0.2)
}

// Ensure that a request takes its first token and all others, where these are published.
func TestARequestOfV1(t *testing.T) {
	for _, p := range publishedPoints() {
		if p.Metric == "closed_request_ms" {
			require.InEpsilon(t, p.TTFT+float64(p.Output-1)*p.TPOT, p.Value, 1e-12)
			require.InEpsilon(t, p.Value, 1e3*p.Seconds(), 1e-12)
			require.Positive(t, p.Budget)
		}
	}
}
