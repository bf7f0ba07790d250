package sim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that without a watermark (-1) a prompt may have all blocks, and with the watermark 0.01 it may not. A scenario
// calls Complete, and Run calls it again. The test does the same, because the second call must not change the Server.
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
