package memplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// The values are those of vLLM's tests/v1/core/test_kv_cache_utils.py and of RULES.md §18. Each number of blocks is
// one more than in vLLM's tests, because it includes the null block.
func TestTheLongestRequestThatFits(t *testing.T) {
	full := Layer{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: 16}, KVHeads: 8, HeadSize: 128, ElementBytes: 2}
	window, align, states, chunk, one := full, full, full, full, full
	one.BlockSize = 1
	window.Group = kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 16, Window: 1024}
	chunk.Group = kvcache.Group{Kind: kvcache.ChunkedLocal, BlockSize: 16, Chunk: 512}
	align.Group = kvcache.Group{Kind: kvcache.Mamba, BlockSize: 16, Align: true, NumSpeculativeBlocks: 1}
	states.Group = kvcache.Group{Kind: kvcache.Mamba, BlockSize: 16, NumSpeculativeBlocks: 3}
	align.StateBytes, states.StateBytes = full.pageBytes(), full.pageBytes()
	const page = 2 * 16 * 8 * 128 * 2
	for _, test := range []struct {
		name           string
		layers         []Layer
		blocks         int
		inFlight, need int // blocks, for 4,096 tokens
		longest        int
		steps          int // in flight; 0: 1
	}{
		{"full attention", []Layer{full, full}, 101, 0, 256, 1600, 0},
		{"one token too many", []Layer{full, full}, 256, 0, 256, 4080, 0},
		{"it fits", []Layer{full, full}, 257, 0, 256, 4096, 0},
		{"a window holds what is in flight, and one block more", []Layer{window}, 61, 2048, 193, 944, 0},
		{"chunks", []Layer{chunk}, 61, 2048, 160, 960, 0},
		{"full attention and a window", []Layer{full, window}, 301, 1024, 256 + 129, 2736, 0},
		{"a state is of any length", []Layer{full, align}, 21, 0, 256 + 3, 272, 0},
		{"a state for each block, and for drafts", []Layer{states}, 61, 0, 256 + 3, 912, 0},
		{"one token leaves none to generate", []Layer{one}, 2, 0, 4096, 0, 0},
		{"two tokens", []Layer{one}, 3, 0, 4096, 2, 0},
		{"nothing fits", []Layer{window}, 2, 0, 65, 0, 0},
		{"with two steps in flight a state can stay as long as the request", []Layer{full, align}, 21, 0, 256 + 3, 144, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := makeOne(test.layers, 0, Options{Blocks: test.blocks})
			require.NoError(t, err)
			require.Equal(t, test.need*p.bytesPerBlock(), p.BytesFor(4096, test.inFlight))
			longest, err := p.LongestModelLen(4096, test.inFlight, max(test.steps, 1))
			require.NoError(t, err)
			require.Equal(t, test.longest, longest)
			err = p.CheckModelLen(4096, test.inFlight, longest)
			require.Equal(t, test.longest < 4096, err != nil)
		})
	}
	p, err := makeOne([]Layer{full}, 11*page, Options{})
	require.NoError(t, err)
	longest, err := p.LongestModelLen(1<<20, 0, 1)
	require.NoError(t, err)
	require.EqualError(t, p.CheckModelLen(1<<20, 0, longest), "not enough memory: to serve one request of 1048576 tokens, 4.00 GiB are needed, "+
		"and 0.00 GiB are available without the null block; the longest that fits is 160")
}

// Ensure that the number of blocks divided by the blocks of the longest request equals vLLM's maximum concurrency. The
// values are those of vLLM's test_get_max_concurrency_for_kv_cache_config.
func TestTheNumberOfRequestsThatFit(t *testing.T) {
	full := Layer{Group: kvcache.Group{Kind: kvcache.Full, BlockSize: 16}, KVHeads: 32, HeadSize: 128, ElementBytes: 2}
	window := full
	window.Group = kvcache.Group{Kind: kvcache.SlidingWindow, BlockSize: 16, Window: 1024}
	for _, tc := range []struct {
		name   string
		layers []Layer
		blocks int
		want   float64
	}{
		{"full attention", times(32, full), 1024 * 3 / 2, 1.5},
		{"windows", times(32, window), 129 * 3, 3},
		{"both", list(times(32, full), times(32, window)), (1024 + 129) * 3, 3},
		{"both, in groups of different lengths", list(times(4, full), times(3, window)), 1153 * 3, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := makeOne(tc.layers, 0, Options{Blocks: tc.blocks})
			require.NoError(t, err)
			require.Equal(t, tc.want, float64(p.NumGPUBlocks*p.bytesPerBlock())/float64(p.BytesFor(16384, 1024)))
		})
	}
}
