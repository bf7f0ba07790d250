package memplan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

func makeOne(layers []Layer, bytes int, options Options) (*Plan, error) {
	all := make([]int, len(layers))
	for i := range all {
		all[i] = i
	}
	plans, err := Make(layers, []Worker{{bytes, all}}, options)
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

func full(heads int) Layer {
	return Layer{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: 16}, KVHeads: heads, HeadSize: 64, ElementBytes: 4}
}

func window(heads int) Layer {
	l := full(heads)
	l.Kind, l.Window = kvcache.SlidingWindow, 1
	return l
}

func mamba(bytes int) Layer {
	return Layer{Group: kvcache.Group{Kind: kvcache.Mamba, BlockSize: 16, Align: true}, StateBytes: bytes}
}

func keyed(l Layer) Layer {
	l.KeysOnly = true
	return l
}

func strided(l Layer) Layer {
	l.Strided = true
	return l
}

func tensors(bytes int, layers ...[]int) (list []Tensor) {
	for _, l := range layers {
		list = append(list, Tensor{Bytes: bytes, Layers: l})
	}
	return list
}

func times(n int, l Layer) []Layer { return slices.Repeat([]Layer{l}, n) }

func list(parts ...[]Layer) []Layer { return slices.Concat(parts...) }

// page is what a block of full(2) takes.
const page = 16 * 2 * 64 * 4 * 2

// The cases and their values are those of vLLM's test_get_kv_cache_configs in tests/v1/core/test_kv_cache_utils.py,
// and of the examples in the comments of kv_cache_utils.py.
func TestPlansAreThoseOfVLLMsTests(t *testing.T) {
	big := full(2)
	big.HeadSize = 128
	wide := kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 32, Window: 1}
	f, w, m := full(2).Group, window(2).Group, mamba(1).Group
	for _, test := range []struct {
		name    string
		layers  []Layer
		bytes   int
		blocks  int // override
		want    int // blocks
		groups  []Group
		tensors []Tensor
	}{
		{"no layers", nil, 100, 0, 1, nil, nil},
		{"all alike", times(2, full(2)), page * 2 * 32, 0, 32, []Group{{f, []int{0, 1}}}, tensors(page*32, []int{0}, []int{1})},
		{"all alike, another number of blocks", times(2, full(2)), page * 2 * 32, 10, 10, []Group{{f, []int{0, 1}}}, tensors(page*10, []int{0}, []int{1})},
		{"a negative number of blocks is none", times(2, full(2)), page * 2 * 32, -10, 32, []Group{{f, []int{0, 1}}}, tensors(page*32, []int{0}, []int{1})},
		{"one of each", list(times(1, full(2)), times(1, window(2))), page * 2 * 32, 0, 64, []Group{{f, []int{0}}, {w, []int{1}}}, tensors(page*64, []int{0, 1})},
		{"2 full and 4 windows", list(times(2, full(2)), times(4, window(2))), page * 2 * 32, 0, 32,
			[]Group{{f, []int{0, 1}}, {w, []int{2, 4}}, {w, []int{3, 5}}},
			tensors(page*32, []int{0, 2, 3}, []int{1, 4, 5})},
		{"3 full and 7 windows", list(times(3, full(2)), times(7, window(2))), page * 3 * 32, 0, 32,
			[]Group{{f, []int{0, 1, 2}}, {w, []int{3, 6, 9}}, {w, []int{4, 7}}, {w, []int{5, 8}}},
			tensors(page*32, []int{0, 3, 4, 5}, []int{1, 6, 7, 8}, []int{2, 9})},
		{"nearly as many: the larger number", list(times(4, full(2)), times(5, window(2))), page * 5 * 10, 0, 10,
			[]Group{{f, []int{0, 1, 2, 3}}, {w, []int{4, 5, 6, 7, 8}}},
			tensors(page*10, []int{0, 4}, []int{1, 5}, []int{2, 6}, []int{3, 7}, []int{8})},
		{"half as many again: the smaller number", list(times(2, full(2)), times(3, window(2))), page * 2 * 10, 0, 10,
			[]Group{{f, []int{0, 1}}, {w, []int{2, 4}}, {w, []int{3}}}, tensors(page*10, []int{0, 2, 3}, []int{1, 4})},
		{"one kind with larger heads", []Layer{big, full(2)}, page * 3 * 32, 0, 32,
			[]Group{{f, []int{0, 1}}}, []Tensor{{Bytes: 2 * page * 32, Layers: []int{0}}, {Bytes: page * 32, Layers: []int{1}}}},
		{"windows with smaller pages get larger blocks", []Layer{big, window(2)}, page * 2 * 32, 0, 32,
			[]Group{{f, []int{0}}, {wide, []int{1}}}, tensors(2*page*32, []int{0, 1})},
		{"a page that is stated grows with the block", []Layer{{Group: w, Page: page / 2}, full(2)}, page * 32, 0, 32,
			[]Group{{wide, []int{0}}, {f, []int{1}}}, tensors(page*32, []int{0, 1})},
		{"states are padded", []Layer{full(2), mamba(100)}, page * 32, 0, 32, []Group{{f, []int{0}}, {m, []int{1}}}, tensors(page*32, []int{0, 1})},
		{"pages that do not divide are padded", []Layer{strided(full(2)), strided(window(3))}, page * 2 * 32, 0, 42,
			[]Group{{f, []int{0}}, {w, []int{1}}}, tensors(page*3/2*42, []int{0, 1})},
		{"no memory", times(2, full(2)), -5, 0, 0, []Group{{f, []int{0, 1}}}, tensors(0, []int{0}, []int{1})},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := makeOne(test.layers, test.bytes, Options{Blocks: test.blocks})
			require.NoError(t, err)
			require.Equal(t, &Plan{test.want, test.groups, test.tensors}, p)
		})
	}
	keys := full(2)
	keys.KeysOnly = true
	require.Equal(t, page/2, keys.pageBytes())
}

func TestLayersThatCannotBePlannedAreRefused(t *testing.T) {
	odd := window(3)
	hidden, large, state := full(1), full(2), mamba(100)
	hidden.Hidden, hidden.Kind, hidden.Window = true, kvcache.SlidingWindow, 8
	large.Hidden, large.HeadSize = true, 1<<14
	state.Page = 200
	strange := full(1)
	strange.Kind = 9
	none := full(1)
	none.BlockSize = 0
	windowed, retained, wide := full(1), window(1), full(2)
	wide.BlockSize = 32
	longer := window(2)
	longer.Window = 8
	no, f := Options{}, full(1).Group
	windowed.Window = 8
	retained.Window, retained.Retained = 8, -1
	for _, test := range []struct {
		name    string
		layers  []Layer
		options Options
		wantErr string
	}{
		{"pages that do not divide", []Layer{full(2), odd}, no, "a block of layer 0 takes 16384 bytes, which do not divide the 24576 of the largest"},
		{"a kind", []Layer{strange}, no, "layer 0: kind 9"},
		{"a block", []Layer{full(1), none}, no, "layer 1: blocks of 0 tokens"},
		{"heads", []Layer{full(0)}, no, "layer 0 has 0 heads"},
		{"a state", []Layer{mamba(0)}, no, "states of 0 bytes"},
		{"a window", []Layer{{Group: kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 4}, KVHeads: 1, HeadSize: 1, ElementBytes: 1}}, no, "a window of 0 tokens"},
		{"retained tokens", []Layer{retained}, no, "layer 0: a window of 8 tokens and -1 retained"},
		{"a window of full attention", []Layer{windowed}, no, "layer 0: a window of 8 tokens and 0 retained, which only a group of kind 1 (sliding window) can have"},
		{"a page of a state", []Layer{state}, no, "layer 0, of kind 3, has a page of 200 bytes"},
		{"hidden states of a window", []Layer{hidden}, no, "layer 0 keeps hidden states"},
		{"a hidden state larger than a block", []Layer{full(2), window(2), large}, no, "a hidden state of layer 2 takes 131072 bytes, and a block 16384"},
		{"full allocation without full attention", []Layer{window(2), mamba(page)}, Options{FullAllocation: true}, "windows and chunks as full attention do not"},
		{"chunks whose pages cannot be made alike",
			[]Layer{keyed(full(2)), odd, {Group: kvcache.Group{Kind: kvcache.ChunkedLocal, BlockSize: 16, Chunk: 4}, Page: 100}}, no, "cannot be padded"},
		{"a window of keys and values among those of keys only", []Layer{keyed(full(2)), keyed(odd), window(2)}, no, "layer 2 is not of keys only"},
		{"windows of keys only without full attention", []Layer{keyed(odd), keyed(longer)}, no, "and no full attention"},
		{"full attention with blocks of two sizes", []Layer{keyed(full(2)), keyed(odd), keyed(wide)}, no, "layer 2 has blocks of 32 tokens, and one before it of 16"},
		{"more bytes than a number holds", []Layer{{Group: f, Page: 1 << 40}}, Options{Blocks: 1 << 24}, "16777216 blocks of 1099511627776 bytes do not fit into the address space"},
		{"one layer more of one page size", []Layer{keyed(full(2)), keyed(odd), keyed(odd), keyed(odd), keyed(window(1))}, no,
			"3 layers like layer 1 have pages of 12288 bytes, and 1 like layer 4 of 4096"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := makeOne(test.layers, 1<<30, test.options)
			require.ErrorIs(t, err, ErrLayers)
			require.ErrorContains(t, err, test.wantErr)
		})
	}
}
