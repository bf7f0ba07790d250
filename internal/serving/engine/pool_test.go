package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// pool returns the vector of a request, and how many tokens of its prompt were in the prefix cache.
func pool(t testing.TB, e *engine.Engine, r engine.Request) (vector []float32, cached int) {
	s, err := e.Submit(r)
	require.NoError(t, err)
	return pooled(t, s), s.CachedTokens()
}

func pooled(t testing.TB, s *engine.Stream) []float32 {
	events, err := s.Next(context.Background())
	require.NoError(t, err)
	require.Len(t, events, 1)
	event := events[0]
	require.NoError(t, event.Err)
	require.Equal(t, engine.FinishStop, event.Finish)
	require.Empty(t, event.Tokens)
	end, err := s.Next(context.Background())
	require.NoError(t, err)
	require.Nil(t, end)
	return event.Pooled
}

// pooledRequests ask for the vectors of several prompts, with each adapter and without.
func pooledRequests() (all []engine.Request) {
	for _, kind := range []pooling.Type{pooling.Last, pooling.Mean} {
		for adapter := range 3 {
			for _, p := range []string{"a", story, strings.Repeat(story, 4), strings.Repeat(story, 4) + "Some more.", "Nothing like the others, and not short."} {
				all = append(all, engine.Request{Prompt: tokens(p), Pooling: kind, Adapter: adapter})
			}
		}
	}
	return all
}

// wantVectors returns the vectors of pooledRequests. The request for a vector of the last token has the hidden state that
// the model has for it in a step of its own, and the others have those of an engine that computes one prompt at a time.
func wantVectors(t *testing.T) (want [][]float32) {
	e := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching = true }, nil)
	seen := map[string]bool{}
	for _, r := range pooledRequests() {
		v, cached := pool(t, e, r)
		require.Len(t, v, 64)
		require.Zero(t, cached)
		if r.Pooling == pooling.Last || len(r.Prompt) == 1 {
			require.Equal(t, lastState(t, r.Prompt, r.Adapter), v)
		}
		if len(r.Prompt) > 1 {
			require.NotContains(t, seen, fmt.Sprint(v))
		}
		seen[fmt.Sprint(v)] = true
		want = append(want, v)
	}
	requireIdle(t, e)
	return want
}

// lastState returns the hidden state that the random model has for the last token of a prompt.
func lastState(t *testing.T, prompt []int32, adapter int) []float32 {
	workers, n := newPool(t, 1), len(prompt)
	m := randomLlama(t, workers, model.Part{})
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(n, attention.F32), Layers: m.NumLayers, NumBlocks: 1}, workers)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	runner, err := model.NewRunner(m, store, workers, nil)
	require.NoError(t, err)
	b := &model.Batch{Tokens: prompt, QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(n)}, Adapters: []int32{int32(adapter)},
		States: []int32{int32(n - 1)}, Blocks: model.Blocks{BlockTables: []int32{0}, TableStride: 1}}
	for i := range n {
		b.Positions, b.Slots = append(b.Positions, int32(i)), append(b.Slots, int64(i))
	}
	require.NoError(t, runner.Forward(b))
	states, err := runner.ComputeStates(b)
	require.NoError(t, err)
	return slices.Clone(states)
}

// Ensure that a vector has the same bits in any batch, in any number of steps, with and without hits in the prefix
// cache, after a preemption, and with any number of workers and processes.
func TestAVectorDependsOnThePromptAndTheAdapterAlone(t *testing.T) {
	requests, want := pooledRequests(), wantVectors(t)
	tests := []struct {
		name   string
		start  startFunc
		n      int
		change func(*engine.Config)
	}{
		{"beside others", startWorkers, 1, func(*engine.Config) {}},
		{"chunked", startWorkers, 1, func(c *engine.Config) { c.MaxNumBatchedTokens = 7 }},
		{"chunked, one step at a time", startWorkers, 1, func(c *engine.Config) { c.MaxNumBatchedTokens, c.NoAsyncScheduling = 7, true }},
		{"with drafts", startWorkers, 1, func(c *engine.Config) { c.MaxNumBatchedTokens, c.NumSpeculativeTokens = 30, 3 }},
		{"preempted", startWorkers, 1, func(c *engine.Config) {
			c.MaxNumBatchedTokens, c.MaxModelLen, c.KVCacheBytes = 24, 320, 24*16*2*2*4*8*4
		}},
		{"four workers", startWorkers, 4, func(c *engine.Config) { c.MaxNumBatchedTokens = 50 }},
		{"two processes", startProcesses, 2, func(c *engine.Config) { c.MaxNumBatchedTokens = 50 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			watch := &preemptions{}
			e := test.start(t, test.n, test.change, watch)
			var others []*engine.Stream
			for i := range 3 {
				r := request(fmt.Sprint(i, " ", story), 150)
				r.IgnoreEOS, r.Temperature = true, 1
				s, err := e.Submit(r)
				require.NoError(t, err)
				others = append(others, s)
			}
			for round := range 2 {
				var streams []*engine.Stream
				for _, r := range requests {
					s, err := e.Submit(r)
					require.NoError(t, err)
					streams = append(streams, s)
				}
				hits := map[pooling.Type]int{}
				for i, s := range streams {
					require.Equal(t, want[i], pooled(t, s), "%+v in round %d", requests[i], round)
					hits[requests[i].Pooling] += s.CachedTokens()
				}
				require.Zero(t, hits[pooling.Mean], "a hit would lose states")
				if round == 1 {
					require.Positive(t, hits[pooling.Last])
				}
			}
			for _, s := range others {
				require.Equal(t, engine.FinishLength, read(t, s, 1)[0].finish)
			}
			requireIdle(t, e)
			if test.name == "preempted" {
				require.Positive(t, watch.prompts.Load(), "no prompt was preempted")
			}
		})
	}
}

// preemptions counts preempted requests.
type preemptions struct {
	engine.NoObserver
	prompts atomic.Int64
}

func (p *preemptions) Step(r engine.StepReport) { p.prompts.Add(int64(r.Preempted)) }

// Ensure that a chat finds the blocks of a prompt whose vector was asked for, and the other way round, if both have the
// same adapter.
func TestVectorsAndAnswersShareThePrefixCache(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	prompt, whole := strings.Repeat(story, 2), len(story)*2/16*16
	for adapter := range 3 {
		for _, kind := range []pooling.Type{pooling.Last, pooling.Mean} {
			_, cached := pool(t, e, engine.Request{Prompt: tokens(string(kind) + prompt), Pooling: kind, Adapter: adapter})
			require.Zero(t, cached, "adapter %d", adapter)
			answer := request(string(kind)+prompt, 1)
			answer.Adapter = adapter
			s, err := e.Submit(answer)
			require.NoError(t, err)
			read(t, s, 1)
			require.Equal(t, whole, s.CachedTokens(), "adapter %d", adapter)
		}
		_, cached := pool(t, e, engine.Request{Prompt: tokens("LAST" + prompt + "more"), Pooling: pooling.Last, Adapter: adapter})
		require.Equal(t, whole, cached, "adapter %d", adapter)
	}
}

func TestRequestsForVectorsThatAreRefused(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	_, err := e.Submit(engine.Request{Prompt: tokens(story), Pooling: "CLS"})
	require.ErrorContains(t, err, `"CLS"; LAST and MEAN are possible`)
	_, err = e.Submit(engine.Request{Pooling: pooling.Last})
	var empty *sampling.Invalid
	require.ErrorAs(t, err, &empty)
	var long *engine.TooLong
	_, err = e.Submit(engine.Request{Prompt: make([]int32, 1024), Pooling: pooling.Last})
	require.ErrorAs(t, err, &long)
	requireIdle(t, e)
}

// Ensure that canceled requests for vectors leave nothing.
func TestAVectorCanBeCanceled(t *testing.T) {
	e := startWorkers(t, 1, func(c *engine.Config) { c.MaxNumBatchedTokens = 4 }, nil)
	for range 20 {
		s, err := e.Submit(engine.Request{Prompt: tokens(strings.Repeat(story, 10)), Pooling: pooling.Mean})
		require.NoError(t, err)
		s.Cancel()
		events, err := s.Next(context.Background())
		require.NoError(t, err)
		require.ErrorIs(t, events[0].Err, engine.ErrCanceled)
	}
	_, cached := pool(t, e, engine.Request{Prompt: tokens(story), Pooling: pooling.Mean})
	require.Zero(t, cached)
	requireIdle(t, e)
}
