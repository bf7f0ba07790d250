package adapter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/testkit/servetest"
)

func config(blockSize, blocks int, caching bool) sched.Config {
	return sched.Config{
		Limits: sched.Limits{MaxNumSeqs: 8, MaxNumBatchedTokens: 64},
		Cache: kvcache.Config{
			NumGPUBlocks: blocks + 1, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: blockSize}},
			EnablePrefixCaching: caching, Hash: blockhash.LE{}, MaxModelLen: 64,
		},
	}
}

func (s *Scheduler) check() error {
	logical := 0
	for id, at := range s.requests.All() {
		table := s.Table(id, 0)
		logical += len(table)
		if q := s.requests.At(at); len(table) != q.blocks {
			return fmt.Errorf("request %d has %d blocks, %d are counted", id, len(table), q.blocks)
		}
	}
	if u := s.Usage(); u.Logical != logical {
		return fmt.Errorf("tables have %d entries, %d are counted", logical, u.Logical)
	}
	return s.s.Check()
}

func TestEverySequenceAttendsToItsOwnTokens(t *testing.T) {
	for _, caching := range []bool{false, true} {
		t.Run(fmt.Sprintf("caching %t", caching), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := config(rapid.IntRange(1, 5).Draw(t, "block"), rapid.IntRange(1, 40).Draw(t, "blocks"), caching)
				c.MaxNumBatchedTokens = rapid.IntRange(1, 60).Draw(t, "tokens")
				c.MaxNumSeqs = rapid.IntRange(1, 8).Draw(t, "seqs")
				s, err := New(c)
				require.NoError(t, err)
				servetest.Run(t, &servetest.System{
					Scheduler: s, Check: s.check, Table: s.Table, Shared: caching,
					BlockSize: c.Cache.Groups[0].BlockSize, Prompts: 40, MaxTokens: c.MaxNumBatchedTokens, Live: true,
				})
			})
		})
	}
}

func TestASharedPrefixIsNotComputedAgain(t *testing.T) {
	s, err := New(config(4, 20, true))
	require.NoError(t, err)
	tokens := make([]int32, 20)
	var it serve.Iteration
	for id := range 2 {
		require.NoError(t, s.Add(serve.Request{ID: id, Prompt: 10, Output: 5, Tokens: tokens}))
		require.NoError(t, s.Step(&it))
	}
	require.Equal(t, []serve.Prefill{{ID: 1, Tokens: 10, Cached: 8, Seqs: 1, Last: true}}, it.Prefills)
	require.Equal(t, serve.Usage{Blocks: 20, Used: 4, Logical: 6}, s.Usage())
	require.Len(t, s.Table(1, 0), 3)
	require.Nil(t, s.Table(1, 1))
	gpu, _ := s.Counts()
	require.EqualValues(t, 2, gpu[s.Table(1, 0)[0]])
	require.Len(t, gpu, 21)
	require.Empty(t, s.Cached())
	_, running, _ := s.Queues()
	require.Equal(t, []int{0, 1}, running)
	_, err = s.Finish(nil, 0, 1)
	require.NoError(t, err)
	require.Len(t, s.Cached(), 2, "the blocks that are full")
}

// Ensure that a request gets as many tokens in a step as the caller says with Generated, and that Finish takes a request
// that V1 has ended.
func TestAcceptedDraftsCount(t *testing.T) {
	c := config(4, 20, false)
	c.NumSpeculativeTokens, c.NumLookaheadTokens = 3, 3
	s, err := New(c)
	require.NoError(t, err)
	require.NoError(t, s.Add(serve.Request{ID: 7, Prompt: 10, Output: 6}))
	var it serve.Iteration
	require.ErrorIs(t, s.Generated(7, 1), serve.ErrRequest, "nothing runs")
	require.NoError(t, s.Step(&it))
	require.Equal(t, []serve.Prefill{{ID: 7, Tokens: 10, Seqs: 1, Last: true}}, it.Prefills)

	require.NoError(t, s.Step(&it))
	require.Equal(t, []serve.Decode{{ID: 7, Context: 11, Seqs: 1, Drafts: 3}}, it.Decodes)
	require.ErrorIs(t, s.Generated(7, 5), serve.ErrRequest)
	require.NoError(t, s.Generated(7, 3))

	require.NoError(t, s.Step(&it))
	require.Equal(t, []serve.Decode{{ID: 7, Context: 14, Seqs: 1, Drafts: 3}}, it.Decodes)
	require.NoError(t, s.Generated(7, 2))
	answered, err := s.Finish(nil, 7)
	require.NoError(t, err)
	require.Equal(t, []int{7}, answered)
	require.Equal(t, serve.Usage{Blocks: 20}, s.Usage())
	_, err = s.Finish(nil, 7)
	require.ErrorIs(t, err, serve.ErrRequest)
}

func TestImpossibleRequestsAreRefused(t *testing.T) {
	s, err := New(config(4, 4, true))
	require.NoError(t, err)
	for _, tc := range []struct {
		name, wantErr string
		request       serve.Request
	}{
		{"no prompt", "a prompt of 0", serve.Request{}},
		{"two sequences", "2 sequences", serve.Request{Prompt: 1, Seqs: 2}},
		{"missing tokens", "0 of the 3 tokens of the prompt are given", serve.Request{Prompt: 3}},
		{"more blocks than the pool has", "can take 5 blocks, the pool has 4", serve.Request{Prompt: 16, Output: 1, Tokens: make([]int32, 16)}},
		{"longer than the model", "no sequence has more than 64", serve.Request{Prompt: 37, Output: 28, Tokens: make([]int32, 37)}},
		{"a negative token", "the prompt has the token -1", serve.Request{Prompt: 1, Output: 1, Tokens: []int32{-1}}},
	} {
		err := s.Add(tc.request)
		require.ErrorIs(t, err, serve.ErrRequest)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
	require.NoError(t, s.Add(serve.Request{ID: 1, Prompt: 2, Output: 4, Tokens: make([]int32, 2)}))
	require.ErrorContains(t, s.Add(serve.Request{ID: 1, Prompt: 2, Output: 4, Tokens: make([]int32, 2)}), "there is one")
	var it serve.Iteration
	require.NoError(t, s.Step(&it))
	require.ErrorContains(t, s.Step(&it), "token 2 was generated, 2 are given")
	c := config(4, 4, false)
	c.Cache.Groups = append(c.Cache.Groups, c.Cache.Groups[0])
	_, err = New(c)
	require.ErrorIs(t, err, sched.ErrConfig)
}
