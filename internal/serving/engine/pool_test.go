package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
)

// pool returns the vector of a prompt, and how many of its tokens were in the prefix cache.
func pool(t testing.TB, e *engine.Engine, kind pooling.Type, prompt string) (vector []float32, cached int) {
	s, err := e.Submit(engine.Request{Prompt: tokens(prompt), Pooling: kind})
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

var pooledPrompts = []string{"a", story, strings.Repeat(story, 4), strings.Repeat(story, 4) + "Some more.", "Nothing like the others, and not short."}

var poolingTypes = []pooling.Type{pooling.Last, pooling.Mean}

// vectorsAlone returns the vectors of pooledPrompts of an engine that computes one prompt at a time, in one step.
var vectorsAlone = sync.OnceValue(func() map[string][]float32 { return map[string][]float32{} })

func wantVectors(t *testing.T) map[string][]float32 {
	want := vectorsAlone()
	if len(want) > 0 {
		return want
	}
	e := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching = true }, nil)
	for _, kind := range poolingTypes {
		for _, p := range pooledPrompts {
			v, cached := pool(t, e, kind, p)
			require.Len(t, v, 64)
			require.Zero(t, cached)
			want[string(kind)+p] = v
		}
	}
	require.NotEqual(t, want["LAST"+story], want["MEAN"+story])
	require.Equal(t, want["LASTa"], want["MEANa"], "of one token")
	requireIdle(t, e)
	return want
}

// Ensure that a vector has the same bits in any batch, in any number of steps, with and without hits in the prefix
// cache, after a preemption, and with any number of workers and processes.
func TestAVectorDependsOnThePromptAlone(t *testing.T) {
	want := wantVectors(t)
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
				for _, kind := range poolingTypes {
					for _, p := range pooledPrompts {
						s, err := e.Submit(engine.Request{Prompt: tokens(p), Pooling: kind})
						require.NoError(t, err)
						streams = append(streams, s)
					}
				}
				hits := map[pooling.Type]int{}
				for i, s := range streams {
					kind, p := poolingTypes[i/len(pooledPrompts)], pooledPrompts[i%len(pooledPrompts)]
					require.Equal(t, want[string(kind)+p], pooled(t, s), "%s of %q in round %d", kind, p, round)
					hits[kind] += s.CachedTokens()
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

// Ensure that a chat finds the blocks of a prompt whose vector was asked for, and the other way round.
func TestVectorsAndAnswersShareThePrefixCache(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	pool(t, e, pooling.Mean, strings.Repeat(story, 2))
	s, err := e.Submit(request(strings.Repeat(story, 2), 1))
	require.NoError(t, err)
	read(t, s, 1)
	require.Equal(t, len(story)*2/16*16, s.CachedTokens())
	_, cached := pool(t, e, pooling.Last, strings.Repeat(story, 3))
	require.Equal(t, len(story)*2/16*16, cached)
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
	_, cached := pool(t, e, pooling.Mean, story)
	require.Zero(t, cached)
	requireIdle(t, e)
}
