package v0

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// OPT-13B: 40 layers, 40 heads of 128, fp16.
var opt13B = Model{Layers: 40, KVHeads: 40, HeadSize: 128, ElemBytes: 2}

// Ensure that the paper's figures come out: 800 KiB for a token of OPT-13B, and
// 983 blocks of 16 on an A100 with 40 GB (paper §1). Grouped-query attention
// makes Llama-3-8B's 128 KiB.
func TestBlockBytes(t *testing.T) {
	require.EqualValues(t, 819_200, opt13B.BlockBytes(1))
	require.EqualValues(t, 13_107_200, opt13B.BlockBytes(16))
	require.EqualValues(t, 128<<10, Model{Layers: 32, KVHeads: 8, HeadSize: 128, ElemBytes: 2}.BlockBytes(1))

	a100 := Memory{Total: 42_298_834_944, Utilization: 0.95, TorchPeak: 25_706_905_600 + 514_785_280 + 1<<30, Swap: 20 << 30}
	gpu, cpu := a100.Blocks(opt13B.BlockBytes(16))
	require.Equal(t, 983, gpu)
	require.Equal(t, 1638, cpu)
}

// Ensure that what others have allocated counts, a negative measurement of it
// does not, nothing fits where nothing is left, and stages share.
func TestMemoryBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		memory   Memory
		gpu, cpu int
	}{
		"rounded down":      {Memory{Total: 1000, Utilization: 0.9, TorchPeak: 100, Swap: 299}, 8, 2},
		"others":            {Memory{Total: 1000, Utilization: 0.9, TorchPeak: 100, NonTorch: 1}, 7, 0},
		"negative others":   {Memory{Total: 1000, Utilization: 0.9, TorchPeak: 100, NonTorch: -500}, 8, 0},
		"nothing left":      {Memory{Total: 1000, Utilization: 0.5, TorchPeak: 700}, 0, 0},
		"two stages, 7 / 2": {Memory{Total: 1000, Utilization: 0.8, TorchPeak: 100, Pipeline: 2, Swap: 500}, 3, 2},
	} {
		gpu, cpu := c.memory.Blocks(100)
		require.Equal(t, [2]int{c.gpu, c.cpu}, [2]int{gpu, cpu}, name)
	}
}

// Ensure that keys and values of all blocks have places of their own, a block's
// are one range in each half, and x elements of a key are neighbours.
func TestLayout(t *testing.T) {
	model := Model{Layers: 1, KVHeads: 2, HeadSize: 16, ElemBytes: 2}
	l, err := NewLayout(model, 3, 4)
	require.NoError(t, err)
	require.EqualValues(t, 2*3*4*2*16, l.Elements())
	seen := map[int64]bool{}
	for block := range 3 {
		start, end := l.BlockElements(block)
		for head := range 2 {
			for token := range 4 {
				for element := range 16 {
					k, v := l.Key(block, head, token, element), l.Value(block, head, token, element)
					require.False(t, seen[k] || seen[v])
					seen[k], seen[v] = true, true
					require.True(t, start <= k && k < end)
					require.True(t, start <= v-l.Elements()/2 && v-l.Elements()/2 < end)
				}
			}
		}
	}
	require.Len(t, seen, int(l.Elements()))
	require.Equal(t, l.Key(1, 1, 2, 0)+7, l.Key(1, 1, 2, 7), "8 elements of 2 bytes are a vector")
	require.Equal(t, l.Key(1, 1, 2, 0)+4*8, l.Key(1, 1, 2, 8), "and then come those of the other tokens")
	require.Equal(t, l.Value(1, 1, 2, 0)+4, l.Value(1, 1, 2, 1))
	require.Equal(t, l.Value(1, 1, 2, 0)+1, l.Value(1, 1, 3, 0))
	_, err = NewLayout(Model{HeadSize: 12, ElemBytes: 2}, 1, 1)
	require.ErrorIs(t, err, ErrConfig)
}

// Ensure that the kernel is the one vLLM takes. Its second source document
// drops the parenthesis (paper §5).
func TestChooseKernel(t *testing.T) {
	for _, c := range []struct {
		sequences, heads, context int
		kernel                    Kernel
	}{
		{1, 40, 512, KernelV1},
		{1, 40, 513, KernelV2},
		{12, 40, 513, KernelV2}, // 480 are not more than 512
		{13, 40, 513, KernelV1},
		{13, 40, 8192, KernelV1},
		{13, 40, 8193, KernelV2},
		{1, 512, 513, KernelV2},
	} {
		kernel, err := ChooseKernel(c.sequences, c.heads, c.context, 16)
		require.NoError(t, err)
		require.Equal(t, c.kernel, kernel, "%+v", c)
	}
	_, err := ChooseKernel(1, 1, 1, 48)
	require.ErrorIs(t, err, ErrConfig)
}

// Ensure that slots follow the table, with padding in front of a window's start,
// and for a profile run.
func TestSlots(t *testing.T) {
	table := []int32{7, 2}
	require.Equal(t, []int64{28, 29, 30, 31, 8}, AppendSlots(nil, table, 4, 0, 5, 0))
	require.Equal(t, []int64{31, 8}, AppendSlots(nil, table, 4, 3, 5, 0))
	require.Equal(t, []int64{Pad, Pad, Pad, 31, 8}, AppendSlots(nil, table, 4, 0, 5, 3))
	require.Equal(t, []int64{Pad, 31, 8}, AppendSlots(nil, table, 4, 2, 5, 3))
	require.Equal(t, []int64{Pad, Pad}, AppendSlots(nil, nil, 4, 1, 2, 0))
	require.Equal(t, 3, SlotStart(true, 5, 2))
	require.Equal(t, 0, SlotStart(true, 2, 5))
	require.Equal(t, 0, SlotStart(false, 5, 2))
	require.Equal(t, 0, SlotStart(true, 5, 0))
}

// Ensure that admission and swapping in leave the watermark free, and that the
// watermark makes a prompt impossible, but not a swap.
func TestWatermark(t *testing.T) {
	m, err := New(Config{Block: 1, GPU: 10, CPU: 10, Watermark: 0.29})
	require.NoError(t, err)
	require.Equal(t, 2, m.Watermark())
	require.Equal(t, OK, m.CanAllocate(8, 0))
	require.Equal(t, Never, m.CanAllocate(9, 0))
	require.Equal(t, Never, m.CanAllocate(8, 1))
	require.NoError(t, m.Allocate(&Seq{Len: 1}))
	require.Equal(t, Later, m.CanAllocate(8, 0))

	s := &Seq{Len: 8}
	require.NoError(t, m.Allocate(s))
	require.True(t, m.CanAppend(0, &Seq{}, s))
	s.Len = 10
	require.False(t, m.CanAppend(0, s), "two more tokens, one free block")
	s.Len = 8
	require.True(t, m.CanSwapOut(s))
	_, err = m.SwapOut(nil, s)
	require.NoError(t, err)
	require.Equal(t, Later, m.CanSwapIn(0, s), "8 and the watermark are not free")
	s.Len = 10
	require.Equal(t, Later, m.CanSwapIn(0, s), "10 are not more than there are: vLLM waits for ever")
	s.Len = 11
	require.Equal(t, Never, m.CanSwapIn(0, s))
}
