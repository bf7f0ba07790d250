package cost

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	_ "llmmemory/internal/testkit/gcpercent"
)

// eachFitted calls test with a setup of the engine on each GPU and of models of all sizes, also where none was measured.
func eachFitted(t *testing.T, test func(name string, s Setup)) {
	for _, gpu := range slices.Concat(MeasuredGPUs(), OtherGPUs()) {
		f := engineOn(t, gpu)
		for _, llm := range []string{"qwen2.5-0.5b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b"} {
			for _, workers := range []int{1, 2} {
				s := roofline(t, llm, gpu, workers)
				test(gpu+": "+llm, s.On(f))
			}
		}
	}
}

// Ensure that, whatever the constants are, more sequences, context and prompts take longer.
func TestMoreTakesLongerOnEachEngine(t *testing.T) {
	eachFitted(t, func(name string, s Setup) {
		m := s.times(16)
		for _, n := range []int{1, 8, 64, 512, 4096} {
			for _, c := range []int{0, 100, 8192, 8193, 100_000} {
				at := m.Seconds(Work{Seqs: n, Context: n * c})
				require.GreaterOrEqual(t, m.Seconds(Work{Seqs: n + 1, Context: (n + 1) * c}), at, name)
				require.GreaterOrEqual(t, m.Seconds(Work{Seqs: n, Context: n*c + n}), at, name)
				prompt := m.Seconds(Work{Seqs: n, Context: n * c, Prompt: n, PromptContext: int64(n * n)})
				require.Greater(t, prompt, at, name)
				require.GreaterOrEqual(t, m.Seconds(Work{Seqs: n, Context: n * c, Prompt: 2 * n, PromptContext: int64(4 * n * n)}),
					prompt, name)
			}
		}
	})
}

// Ensure that no engine is faster than the bandwidth and the FLOPS of its GPUs.
func TestNoEngineIsFasterThanItsRoofline(t *testing.T) {
	eachFitted(t, func(name string, s Setup) {
		m, l := s.times(16), s.LLM
		kv := float64(l.kvBytes(s.Workers, 1))
		active := l.sharedMatrices(s.Workers) + float64(l.ExpertsPerToken)*l.expertMatrices(s.Workers)
		for _, n := range []int{1, 8, 64, 512, 4096} {
			seqs, context := float64(n), 1000
			t1 := m.Seconds(Work{Seqs: n, Context: n * context})
			bytes := l.ParameterBytes*l.sharedMatrices(s.Workers) + kv*seqs*float64(context)
			require.GreaterOrEqual(t, t1, bytes/(giga*s.GPU.Bandwidth), name)
			require.GreaterOrEqual(t, t1, 2*active*seqs/(tera*s.GPU.rate(l.Computed)), name)
			require.GreaterOrEqual(t, m.Seconds(Work{Prompt: n}), 2*active*seqs/(tera*s.GPU.rate(l.Computed)), name)
		}
	})
}
