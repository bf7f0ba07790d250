package memplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// keys returns a layer that stores only keys, with pages of the given number of bytes. A window of 0 means full
// attention.
func keys(block, window, bytes int) Layer {
	l := Layer{Group: kvcache.Group{BlockSize: block, Window: window}, KeysOnly: true, Page: bytes}
	if window > 0 {
		l.Kind = kvcache.SlidingWindow
	}
	return l
}

func offsets(p *Plan) map[int]int {
	at := map[int]int{}
	for _, t := range p.Tensors {
		for _, l := range t.Layers {
			at[l] = t.Offset
		}
	}
	return at
}

// The values are those of test_compact_cache_overlays_fp32_state_group in
// tests/v1/core/test_contiguous_kv_packing.py.
func TestGroupsWithDifferentPagesLieOverEachOther(t *testing.T) {
	layers := list(
		[]Layer{keys(256, 0, 32768), keys(256, 0, 4608), keys(256, 0, 32768), keys(256, 0, 4608)},
		[]Layer{keys(4, 8, 32768), keys(4, 8, 8192), keys(4, 8, 32768), keys(4, 8, 8192)})
	const stride = 2 * (32768 + 8192)
	p, err := makeOne(layers, stride*32, Options{})
	require.NoError(t, err)
	require.Equal(t, 32, p.NumGPUBlocks)
	require.Equal(t, []Group{{layers[0].Group, []int{0, 1, 2, 3}}, {layers[4].Group, []int{4, 5, 6, 7}}}, p.Groups)
	for _, tensor := range p.Tensors {
		require.Equal(t, stride, tensor.Stride)
		require.Equal(t, stride*32, tensor.Bytes)
	}
	require.Equal(t, map[int]int{0: 0, 1: 32768, 2: 37376, 3: 70144, 4: 0, 5: 32768, 6: 40960, 7: 73728}, offsets(p))
	require.Equal(t, stride, p.bytesPerBlock())
}

// The expected number of layers, their pages and the stride are those of vLLM's test_deepseek_v4_pro_stride.
func TestThePlanOfDeepSeekV4Pro(t *testing.T) {
	var layers []Layer
	for range 30 {
		layers = append(layers, keys(256, 0, 32768), keys(256, 0, 4608))
	}
	layers = append(layers, times(31, keys(256, 0, 1024))...)
	for range 30 {
		layers = append(layers, keys(4, 8, 32768), keys(4, 8, 8192))
	}
	layers = append(layers, times(31, keys(8, 128, 32768))...)
	layers = append(layers, times(61, keys(64, 128, 32768))...)
	layers[len(layers)-1].Eagle = true // vLLM marks the group of the last layer

	const stride = 1_228_800
	p, err := makeOne(layers, stride*32, Options{})
	require.NoError(t, err)
	require.Equal(t, 32, p.NumGPUBlocks)
	var lengths []int
	var eagle []bool
	for _, g := range p.Groups {
		lengths, eagle = append(lengths, len(g.Layers)), append(eagle, g.Eagle)
	}
	require.Equal(t, []int{91, 60, 31, 31, 30}, lengths)
	require.Equal(t, []bool{false, false, false, true, false}, eagle)
	require.Equal(t, stride, p.bytesPerBlock())
	require.Len(t, offsets(p), len(layers))
}

// The values are those of vLLM's test_hma_attention_groups_use_packed_backing_with_enable_cross_layers and the tests
// next to it.
func TestBlocksOfAGroupsLayersLieSideBySide(t *testing.T) {
	layers := list(times(2, full(2)), times(4, window(2)))
	p, err := makeOne(layers, page*2*32, Options{CrossLayers: true})
	require.NoError(t, err)
	require.Equal(t, 32, p.NumGPUBlocks)
	require.Equal(t, []Tensor{
		{Bytes: page * 2 * 32, Layers: []int{0, 2, 3}, Offset: 0, Stride: page * 2},
		{Bytes: page * 2 * 32, Layers: []int{1, 4, 5}, Offset: page, Stride: page * 2},
	}, p.Tensors)

	p, err = makeOne(times(2, full(2)), page*2*32, Options{CrossLayers: true})
	require.NoError(t, err)
	require.Equal(t, tensors(page*32, []int{0}, []int{1}), p.Tensors, "one group is not packed")
}

func TestEqualPagesAreNotPacked(t *testing.T) {
	p, err := makeOne([]Layer{keys(16, 0, 36864), keys(16, 0, 36864), keys(16, 128, 36864)}, 36864*10, Options{})
	require.NoError(t, err)
	require.Equal(t, tensors(36864*10, []int{0, 1, 2}), p.Tensors)
}

// The expected results are those of vLLM's _approximate_gcd. If several numbers of layers need the least padding, it
// returns the largest.
func TestTheNumberOfLayersThatPadsLeast(t *testing.T) {
	for _, tc := range []struct {
		name    string
		counts  []int
		minimum int
		want    int
	}{
		{"it divides all", []int{2, 4, 6}, 2, 2},
		{"of equals the larger", []int{2, 3}, 2, 3},
		{"not below the first", []int{3, 4}, 3, 4},
		{"nothing is as large", []int{1, 2}, 5, 5},
		{"DeepSeek V4 Pro", []int{31, 30, 31, 61}, 31, 31},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, leastPadding(tc.counts, tc.minimum)) })
	}
}
