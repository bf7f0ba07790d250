package memplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

func TestHiddenStatesHaveAGroupOfTheirOwn(t *testing.T) {
	attention := Layer{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: 544}, KVHeads: 1, HeadSize: 512, ElementBytes: 2}
	state := Layer{Group: kvcache.Group{Kind: kvcache.Mamba, BlockSize: 544, Align: true}, StateBytes: 557056 * 2}
	hidden := Layer{Group: attention.Group, KVHeads: 3, HeadSize: 1024, ElementBytes: 2, Hidden: true}
	p, err := makeOne([]Layer{attention, hidden, state}, state.StateBytes*10, Options{})
	require.NoError(t, err)
	require.Equal(t, []Group{
		{attention.Group, []int{0}}, {state.Group, []int{2}}, {kvcache.Group{Kind: kvcache.Full, BlockSize: 136}, []int{1}},
	}, p.Groups)
	require.Equal(t, tensors(state.StateBytes*10, []int{0, 2, 1}), p.Tensors)

	// The other groups have blocks of 48 and 32 tokens. The block of the hidden states has 16 tokens, a divisor of
	// both.
	attention.BlockSize, state.BlockSize, state.StateBytes, hidden.HeadSize = 48, 32, 48*2048, 1
	p, err = makeOne([]Layer{attention, state, hidden}, state.StateBytes*20, Options{})
	require.NoError(t, err)
	require.Equal(t, 16, p.Groups[2].BlockSize)
	attention.BlockSize, hidden.HeadSize = 544, 1024

	// If all other layers have one type, the hidden states share the block table of these layers, and each layer
	// has pages of its own size.
	p, err = makeOne([]Layer{attention, hidden}, (544*2048+544*6144)*10, Options{})
	require.NoError(t, err)
	require.Equal(t, []Group{{attention.Group, []int{0, 1}}}, p.Groups)
	require.Equal(t, []Tensor{{Bytes: 544 * 2048 * 10, Layers: []int{0}}, {Bytes: 544 * 6144 * 10, Layers: []int{1}}}, p.Tensors)
}

func mla(block, size, elementBytes int) Layer {
	return Layer{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: block}, KVHeads: 1, HeadSize: size, ElementBytes: elementBytes, KeysOnly: true}
}

// Ensure that the window layers of a draft model keep their windows if their pages can be made as large as the pages of
// the other layers. Otherwise they must become full attention. (vLLM:
// test_mla_draft_prefers_standard_layout_when_pages_can_be_unified and
// test_mla_with_incompatible_swa_uses_one_full_allocation_group.)
func TestADraftModelsWindowStaysIfPagesCanBeMadeAlike(t *testing.T) {
	draft := window(1)
	draft.HeadSize = 288
	p, err := makeOne([]Layer{mla(16, 576, 4), draft}, 1<<30, Options{})
	require.NoError(t, err)
	require.Len(t, p.Groups, 2)

	layers := []Layer{mla(64, 576, 4), mla(64, 132, 1), window(2)}
	p, err = makeOne(layers, (147456+8448+65536)*3, Options{})
	require.NoError(t, err)
	require.Equal(t, []Group{{kvcache.Group{Kind: kvcache.Full, BlockSize: 64}, []int{0, 1, 2}}}, p.Groups)
	require.Equal(t, []Tensor{{Bytes: 147456 * 3, Layers: []int{0}}, {Bytes: 8448 * 3, Layers: []int{1}}, {Bytes: 65536 * 3, Layers: []int{2}}}, p.Tensors)
	require.Equal(t, window(2), layers[2], "the caller's layers stay")
}

// The values are those of test_unify_hybrid_kv_cache_specs.
func TestFullAllocationIsThatOfVLLMsTests(t *testing.T) {
	wide := full(2)
	wide.BlockSize = 64
	padded, chunk := window(2), full(2)
	padded.Page, padded.Window = 32<<10, 1024
	chunk.Group, chunk.Page = kvcache.Group{Kind: kvcache.ChunkedLocal, BlockSize: 16, Chunk: 512}, 32<<10
	compressed := window(2)
	compressed.Page = page / 4
	for _, tc := range []struct {
		name   string
		layers []Layer
		block  int
		pages  []int
	}{
		{"a window gets larger blocks", []Layer{wide, padded}, 64, []int{64 << 10, 64 << 10}},
		{"chunks keep their page", []Layer{full(2), chunk}, 16, []int{16 << 10, 32 << 10}},
		{"windows and chunks", []Layer{full(2), padded, chunk}, 16, []int{16 << 10, 32 << 10, 32 << 10}},
		{"a page smaller than the numbers grows with the block", []Layer{wide, compressed}, 64, []int{64 << 10, page}},
		{"nothing to do", []Layer{window(2), window(3)}, 16, []int{16 << 10, 24 << 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := makeOne(tc.layers, 0, Options{Blocks: 1, FullAllocation: true})
			require.NoError(t, err)
			require.Len(t, p.Groups, 1)
			require.Equal(t, tc.block, p.Groups[0].BlockSize)
			for i := range tc.pages {
				require.Equal(t, tc.pages[i], p.Tensors[i].Bytes)
			}
		})
	}
}

// Ensure that a layer of a draft model is in a group with layers of the same kind, wherever it is in the list.
func TestADraftModelsLayerIsInAGroupOfItsKind(t *testing.T) {
	draft, own := window(2), full(2)
	draft.Eagle, own.Eagle = true, true
	f, w, d := full(2).Group, window(2).Group, draft.Group
	for _, tc := range []struct {
		name   string
		layers []Layer
		want   []Group
	}{
		{"the last of its kind", list(times(2, full(2)), times(3, window(2)), []Layer{draft}), []Group{{f, []int{0, 1}}, {w, []int{2, 4}}, {d, []int{3, 5}}}},
		{"the first of its kind", list(times(2, full(2)), []Layer{draft}, times(3, window(2))), []Group{{f, []int{0, 1}}, {d, []int{2, 4}}, {w, []int{3, 5}}}},
		{"all of one type", []Layer{full(2), own}, []Group{{own.Group, []int{0, 1}}}},
	} {
		p, err := makeOne(tc.layers, page*2*10, Options{})
		require.NoError(t, err)
		require.Equal(t, tc.want, p.Groups, tc.name)
	}
}
