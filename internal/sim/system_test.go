package sim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsCompleteStays(t *testing.T) {
	for _, name := range Systems() {
		for _, watermark := range []float64{-1, 0, 0.05} {
			once := Server{System: name, Watermark: watermark}.Complete()
			require.Equal(t, once, once.Complete(), "%s, %v", name, watermark)
		}
	}
}

// Ensure that without a watermark a prompt may have all blocks. A scenario and
// Run both complete a server, so this is about the second time, too.
func TestWithoutAWatermarkAPromptMayHaveAllBlocks(t *testing.T) {
	for _, name := range []string{"sosp", "vllm-v0"} {
		for watermark, served := range map[float64]int{-1: 1, 0.01: 0} {
			s := Server{System: name, NumGPUBlocks: 100, Watermark: watermark}.Complete()
			r, err := Run(context.Background(), Config{Server: s, Cost: paperCost(t)}, &list{{Prompt: 100*16 - 1, Output: 1}})
			require.NoError(t, err)
			require.Equal(t, served, r.Answered, "%s, %v: %s", name, watermark, r.Refusal)
		}
	}
}

func TestDecodingIsCheckedAhead(t *testing.T) {
	require.NoError(t, Decoding{}.Check("sosp"))
	require.NoError(t, Decoding{Samples: 2, Beam: true}.Check("sosp"))
	require.ErrorIs(t, Decoding{Samples: 2, Beam: true}.Check("vllm-v1"), ErrConfig)
	require.ErrorIs(t, Decoding{Samples: -1}.Check("sosp"), ErrConfig)
	require.ErrorIs(t, Decoding{}.Check("vllm-v2"), ErrConfig)
}
