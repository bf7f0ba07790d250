package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
)

// Ensure that a prompt finds the states that its mode keeps: with AllStates those after all blocks, else those at the end
// of each prompt, and where an earlier prompt has left the one before it. Answers are those of the model alone.
func TestWhereStatesAreFound(t *testing.T) {
	first := request(long()[:300], 30)
	first.IgnoreEOS = true
	branch := func(n int, text string) engine.Request {
		return engine.Request{Prompt: append(slices.Clone(first.Prompt[:n]), tokens(text)...), MaxTokens: 3, Params: first.Params}
	}
	type testCase struct {
		name   string
		kernel int // 0: the model of mamba
		block  int // tokens of a block that has space for a state
		all    bool
		chunk  int
		same   int    // cached tokens of the same prompt again
		at200  [2]int // of two prompts that have left it after 200 tokens
		answer [2]int // of a prompt with the answer of 30 tokens, and then of one with 20 of them
	}
	for _, test := range level.First(4, []testCase{
		{"all states", 3, 8, true, 512, 296, [2]int{200, 200}, [2]int{328, 320}},
		{"all large states", 12, 16, true, 64, 288, [2]int{192, 192}, [2]int{320, 320}},
		{"states at ends of prompts", 3, 8, false, 512, 296, [2]int{0, 200}, [2]int{296, 296}},
		{"large states at ends of prompts", 12, 16, false, 64, 296, [2]int{0, 192}, [2]int{296, 320}},
		{"all states, small chunks", 3, 8, true, 8, 296, [2]int{200, 200}, [2]int{328, 320}},
		{"all states of Mamba 2", 0, 40, true, 64, 280, [2]int{200, 200}, [2]int{320, 320}},
		{"states of Mamba 2 at ends of prompts", 0, 40, false, 64, 296, [2]int{0, 200}, [2]int{296, 320}},
	}) {
		t.Run(test.name, func(t *testing.T) {
			open := convolutions
			if test.kernel == 0 {
				open = mamba
			}
			pool := newPool(t, 1)
			m := open(t, pool, test.kernel)
			e := startModel(t, open(t, pool, test.kernel), tokenizer.Bytes(1, 2, 3), pool, func(c *engine.Config) {
				c.BlockSize, c.AllStates, c.MaxNumBatchedTokens = 8, test.all, test.chunk
			}, nil)
			require.Equal(t, test.block, e.Config().BlockSize)
			answered := func(r engine.Request, cached int) []int32 {
				s, err := e.Submit(r)
				require.NoError(t, err)
				got := read(t, s, 1)[0].ids
				require.Equal(t, cached, s.CachedTokens(), "%d tokens", len(r.Prompt))
				require.Equal(t, solo(t, m, pool, r.Prompt, r.MaxTokens), got)
				return got
			}
			answer := answered(first, 0)
			answered(first, test.same)
			answered(branch(200, "One more end."), test.at200[0])
			answered(branch(200, "And another end."), test.at200[1])
			for i, n := range []int{30, 20} {
				next := branch(300, "")
				next.Prompt = append(append(next.Prompt, answer[:n]...), tokens("What is next?")[i:]...)
				answered(next, test.answer[i])
			}
			requireIdle(t, e)
		})
	}
}

// Ensure that a prompt that ends with a block leaves two states: the one before its last block, which the same prompt
// finds, and the one at its end, which a longer prompt finds.
func TestTheStateAtAPromptThatFillsItsBlocks(t *testing.T) {
	for _, test := range level.First(2, []struct {
		name          string
		open          func(testing.TB, *parallel.Pool, int) *model.Model
		kernel, block int
		tokens        int // of the prompt
		chunk         int
	}{
		{"convolutions", convolutions, 3, 8, 296, 512}, {"large convolutions", convolutions, 12, 16, 288, 64},
		{"convolutions, small chunks", convolutions, 3, 8, 296, 16}, {"Mamba 2", mamba, 0, 40, 280, 512},
	}) {
		t.Run(test.name, func(t *testing.T) {
			pool := newPool(t, 1)
			m := test.open(t, pool, test.kernel)
			e := startModel(t, test.open(t, pool, test.kernel), tokenizer.Bytes(1, 2, 3), pool, func(c *engine.Config) {
				c.BlockSize, c.MaxNumBatchedTokens = 8, test.chunk
			}, nil)
			require.Equal(t, test.block, e.Config().BlockSize)
			for i, cached := range []int{0, test.tokens - test.block, test.tokens} {
				r := request(long()[:test.tokens]+strings.Repeat("One more end.", i/2), 3)
				r.IgnoreEOS = true
				s, err := e.Submit(r)
				require.NoError(t, err)
				require.Equal(t, solo(t, m, pool, r.Prompt, r.MaxTokens), read(t, s, 1)[0].ids)
				require.Equal(t, cached, s.CachedTokens())
			}
			requireIdle(t, e)
		})
	}
}
