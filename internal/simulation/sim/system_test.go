package sim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that Complete leaves a complete Server as it is: a scenario calls it before Run does.
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
