package engine_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
)

// Ensure that scoring a prompt takes memory for the logits of only a few tokens, however many tokens a
// step computes.
func TestMemoryForLogitsDoesNotGrowWithTheTokensOfAStep(t *testing.T) {
	const vocab, length = 16384, 1000
	pool := newPool(t, 1)
	m := llamaWithVocabulary(t, pool, model.Part{Size: 1}, vocab)
	e := startModel(t, m, tokenizer.Bytes(1, 2, 3), pool, func(c *engine.Config) { c.MaxNumBatchedTokens = 1024 }, nil)
	r := request(strings.Repeat(story, 30)[:length], 1)
	r.PromptLogprobs = 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ask(t, e, r)
	runtime.ReadMemStats(&after)
	const row = vocab * 4 // bytes
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200*row), "all logits are %d bytes", length*row)
}
