package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
)

// Ensure that requests with a long common prefix get the same answers whether they run together or alone. When they run
// together, attention reads the prefix once for all of them. The prefix is longer than a partition of attention (512
// tokens). In the second round, a request without this prefix runs beside them.
func TestALongSharedPromptIsReadOnceWithTheSameBits(t *testing.T) {
	document := strings.Repeat(story, 13) // 637 tokens
	rnd := rand.New(rand.NewPCG(6, 6))
	var requests []engine.Request
	for i := range 8 {
		r := request(fmt.Sprintf("%sQuestion %d: the code of ", document, i), 24)
		r.Temperature, r.Seed, r.IgnoreEOS, r.Logprobs = 1.2, rnd.Uint64(), true, 1
		if i%3 == 2 {
			r.N = 3
		}
		requests = append(requests, r)
	}
	stranger := request("Something else altogether, "+document, 12)
	stranger.IgnoreEOS = true
	alone := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching, c.MaxNumSeqs = true, 1 }, nil)
	var want []string
	for _, r := range append(requests, stranger) {
		if r.N > 1 {
			r.N = 1 // one at a time: only the first answer is compared
		}
		want = append(want, transcript(t, alone, r))
	}
	together := startWorkers(t, 1, nil, nil)
	for _, batch := range [][]engine.Request{requests, append(requests, stranger)} {
		got := make([]string, len(batch))
		var wait sync.WaitGroup
		for i, r := range batch {
			wait.Go(func() { got[i] = transcript(t, together, r) })
		}
		wait.Wait()
		for i := range batch {
			require.True(t, strings.HasPrefix(got[i], want[i]), "request %d", i)
		}
	}
	requireIdle(t, together)
}

// A captured is a MemoryObserver. It keeps the first state in which there are n answers and each has at least
// the given number of tokens.
type captured struct {
	n, tokens int
	state     *engine.MemoryState
}

func (c *captured) Active() bool { return c.state == nil }

func (c *captured) Memory(m *engine.MemoryChange) bool {
	state := m.State()
	isShort := func(a engine.AnswerBlocks) bool { return a.Tokens < c.tokens }
	if c.state == nil && len(state.Answers) == c.n && !slices.ContainsFunc(state.Answers, isShort) {
		c.state = state
	}
	return true
}

// Ensure that eight answers to one prompt share the blocks of the prompt. An answer has blocks of its own
// only for its generated tokens, and a copy of the block in which the prompt ends.
func TestSeveralAnswersHoldThePromptOnce(t *testing.T) {
	e := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching = true }, nil)
	r := request(strings.Repeat(story, 5), 20) // 245 tokens: 15 blocks and 5 tokens
	r.N, r.IgnoreEOS, r.Temperature = 8, true, 1.5
	seen := &captured{n: 8, tokens: 248}
	e.WatchMemory(seen)
	ask(t, e, r)
	requireIdle(t, e)
	require.NotNil(t, seen.state)
	own := map[int32]bool{}
	for _, a := range seen.state.Answers {
		require.Equal(t, seen.state.Answers[0].Table[:15], a.Table[:15])
		for _, id := range a.Table[15:] {
			require.False(t, own[id], "block %d of two answers", id)
			own[id] = true
		}
	}
}
