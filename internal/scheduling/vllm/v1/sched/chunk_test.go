package sched

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Ensure that a prompt is admitted only if the whole prompt or, with AdmitChunks, its first chunk fits into the free
// blocks.
func TestWhatAPromptNeedsToBeAdmitted(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(c *Config)
		prompts []int
		want    []int // tokens of the rows
	}{
		{"6 blocks of 5", func(*Config) {}, []int{12, 24, 1}, []int{12}},
		{"6 blocks of 5, of which the chunk takes 1", func(c *Config) { c.AdmitChunks = true }, []int{12, 24, 1}, []int{12, 4}},
		{"as many blocks as there are", func(*Config) {}, []int{12, 20, 1}, []int{12, 4}},
		{"a part of the tokens", func(c *Config) { c.MaxNumBatchedTokens = 64 }, []int{12, 4, 4}, []int{12, 4, 4}},
		{"more tokens than are left", func(c *Config) { c.MaxNumBatchedTokens, c.DisableChunkedPrefill, c.Cache.NumGPUBlocks = 64, true, 40 },
			[]int{40, 25, 4}, []int{40}},
		{"as many tokens as are left", func(c *Config) { c.MaxNumBatchedTokens, c.DisableChunkedPrefill, c.Cache.NumGPUBlocks = 64, true, 40 },
			[]int{40, 24, 4}, []int{40, 24}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := small(9)
			tc.change(&c)
			h := newHost(t, c)
			for i, n := range tc.prompts {
				h.add(n, 1+i, Spec{MaxTokens: 1})
			}
			require.Equal(t, tc.want, scheduled(h.schedule()))
		})
	}
}

// Ensure that with EAGLE a chunk ends one block earlier. A hit loses its last block with EAGLE, so a later hit needs
// the Mamba state that is one block earlier (vllm/v1/RULES.md §13).
func TestWithEagleAChunkEndsABlockEarlier(t *testing.T) {
	for eagle, want := range map[bool][]int{true: {16, 5}, false: {20, 1}} {
		c := small(40)
		c.MaxNumBatchedTokens, c.Cache.Eagle = 64, eagle
		c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}}
		h := newHost(t, c)
		h.add(21, 1, Spec{MaxTokens: 1})
		for _, n := range want {
			require.Equal(t, []int{n}, scheduled(h.schedule()))
			h.update(1)
		}
	}
}

// Ensure that a chunk of a prompt of whole blocks ends before the last block, so that the same prompt finds a state. In
// vLLM it does not (vllm/v1/RULES.md §17).
func TestAChunkEndsBeforeTheLastToken(t *testing.T) {
	for asVLLM, want := range map[bool][]int{true: {20}, false: {16, 4}} {
		c := small(40)
		c.MaxNumBatchedTokens, c.AsVLLM = 64, asVLLM
		c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}}
		h := newHost(t, c)
		h.add(20, 1, Spec{MaxTokens: 1})
		for _, n := range want {
			require.Equal(t, []int{n}, scheduled(h.schedule()))
			h.update(1)
		}
	}
}

// Ensure that a chunk of a prompt ends at each of the two positions whose Mamba states are kept. The first position is
// the end of the last full block of the prompt. The second is the end of the longest prefix whose blocks of full
// attention are cached. There is no second position if the Mamba state after this prefix is cached too
// (vllm/v1/RULES.md §9, §13).
func TestAChunkEndsWhereAStateIsKept(t *testing.T) {
	c := small(40)
	c.MaxNumBatchedTokens = 64
	c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}}
	h := newHost(t, c)
	other := append(tokens(13, 1), tokens(8, 2)...)
	for _, prompt := range []struct {
		tokens []int32
		want   []int
	}{{tokens(21, 1), []int{20, 1}}, {other, []int{12, 8, 1}}, {append(tokens(13, 1), tokens(8, 3)...), []int{8, 1}}} {
		add(t, h.Scheduler, Spec{Tokens: prompt.tokens, MaxTokens: 1})
		for _, want := range prompt.want {
			require.Equal(t, []int{want}, scheduled(h.schedule()))
			h.update(1)
		}
	}
}

func TestAChunkEndsWithTheBlocksOfAllMambaGroups(t *testing.T) {
	c := small(100)
	c.MaxNumSeqs, c.MaxNumBatchedTokens, c.Cache.RetentionInterval = 2, 8, kvcache.RetainAll
	c.Cache.Groups = []kvcache.Group{
		{Kind: kvcache.Mamba, BlockSize: 16, Align: true}, {Kind: kvcache.Full, BlockSize: 8}, {Kind: kvcache.Mamba, BlockSize: 8, Align: true},
	}
	h := newHost(t, c)
	h.add(6, 2, Spec{MaxTokens: 1})
	h.add(20, 1, Spec{MaxTokens: 1})
	require.Equal(t, 2, h.schedule()[1].NumScheduledTokens)
	h.update(9)
	require.Equal(t, 6, h.schedule()[0].NumScheduledTokens)
	h.finish(9)
	h.add(9, 1, Spec{MaxTokens: 1, NoRead: true}) // the other group gets its state after 8 tokens
	h.finish(9)
	h.add(9, 1, Spec{MaxTokens: 1})
	require.Equal(t, 8, h.schedule()[0].NumComputedTokens)
}
