package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// OPT-13B: 40 layers, 40 heads of 128, fp16.
var opt13B = cacheShape{Layers: 40, KVHeads: 40, HeadSize: 128, ElemBytes: 2}

// Ensure that the paper's figures come out: 800 KiB for a token of OPT-13B, and
// 983 blocks of 16 on an A100 with 40 GB (sim/PAPER.md §1). Grouped-query attention
// makes Llama-3-8B's 128 KiB.
func TestABlocksBytesAreThePapers(t *testing.T) {
	require.EqualValues(t, 819_200, opt13B.blockBytes(1))
	require.EqualValues(t, 13_107_200, opt13B.blockBytes(16))
	require.EqualValues(t, 128<<10, cacheShape{Layers: 32, KVHeads: 8, HeadSize: 128, ElemBytes: 2}.blockBytes(1))

	a100 := profile{Total: 42_298_834_944, Utilization: 0.95, TorchPeak: 25_706_905_600 + 514_785_280 + 1<<30,
		Swap: 20 << 30}
	gpu, cpu := a100.blocks(opt13B.blockBytes(16))
	require.Equal(t, 983, gpu)
	require.Equal(t, 1638, cpu)
}

// Ensure that what others have allocated counts, a negative measurement of it
// does not, nothing fits where nothing is left, and stages share.
func TestBlocksOfAProfiledGPU(t *testing.T) {
	for name, c := range map[string]struct {
		memory   profile
		gpu, cpu int
	}{
		"rounded down":    {profile{Total: 1000, Utilization: 0.9, TorchPeak: 100, Swap: 299}, 8, 2},
		"others":          {profile{Total: 1000, Utilization: 0.9, TorchPeak: 100, NonTorch: 1}, 7, 0},
		"negative others": {profile{Total: 1000, Utilization: 0.9, TorchPeak: 100, NonTorch: -500}, 8, 0},
		"nothing left":    {profile{Total: 1000, Utilization: 0.5, TorchPeak: 700}, 0, 0},
	} {
		gpu, cpu := c.memory.blocks(100)
		require.Equal(t, [2]int{c.gpu, c.cpu}, [2]int{gpu, cpu}, name)
	}
}
