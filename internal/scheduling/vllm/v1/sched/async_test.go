package sched

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
)

// The scenarios and expected values are those of vLLM's tests/v1/core/test_async_scheduler.py at the commit that
// RULES.md names.

func asyncConfig(blocks int) Config {
	c := large(blocks)
	c.AsVLLM, c.AsyncScheduling = true, true
	return c
}

func TestAsyncStopsByMaxTokensWithoutAnExtraStep(t *testing.T) {
	for _, maxTokens := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(maxTokens), func(t *testing.T) {
			p := newPipeline(t, asyncConfig(10000))
			a := add(t, p.s, Spec{Tokens: tokens(10, 1), MaxTokens: maxTokens})
			p.schedule()
			b := add(t, p.s, Spec{Tokens: tokens(10, 2), MaxTokens: maxTokens})
			p.schedule()
			for len(p.flights) > 0 {
				p.process()
				p.schedule()
			}
			require.Zero(t, p.s.requests.Len())
			require.Len(t, p.kept[a], maxTokens)
			require.Len(t, p.kept[b], maxTokens)
			require.Equal(t, 2*(10+maxTokens-1), p.total, "no more tokens are scheduled than necessary")
		})
	}
}

// Ensure that a request still gets the tokens of its rows in flight if it is preempted because too few blocks are free.
// If Reset preempts the request instead, the tokens of these rows are dropped.
func TestAsyncPreemptionDeliversWhatIsInFlight(t *testing.T) {
	for _, test := range []struct {
		name           string
		drafts, stages int
		resets         []int // steps before which Reset preempts all requests
	}{
		{"0 drafts", 0, 3, nil},
		{"3 drafts", 3, 3, nil},
		{"resets with 1 stage", 3, 1, []int{6, 14}},
		{"resets with 3 stages", 3, 3, []int{6, 7, 18, 19}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := asyncConfig(5)
			c.MaxNumBatchedTokens, c.PipelineParallelSize, c.NumSpeculativeTokens = 512, test.stages, test.drafts
			p := newPipeline(t, c)
			require.Equal(t, test.stages+1, p.maxInFlight)
			p.accept = func(step, row, n int) int { return (step + row) % (n + 1) }
			var ids []ID
			p.run(func(step int) {
				for n := 0; len(ids) < 8 && (n < 1 || len(ids) < 3); n++ {
					ids = append(ids, add(t, p.s, Spec{Tokens: tokens(8, len(ids)), MaxTokens: 24}))
				}
				if slices.Contains(test.resets, step) {
					ok, err := p.s.Reset(true)
					require.NoError(t, err)
					require.True(t, ok)
				}
			})
			require.Positive(t, p.stale, "requests lose their blocks with steps in flight")
			for _, id := range ids {
				require.Len(t, p.kept[id], 24)
				if test.resets == nil {
					require.Equal(t, p.emitted[id][:24], p.kept[id], "every sampled token is delivered once, in order")
				}
			}
		})
	}
}

func TestPipelineStagesEachHaveAStepInFlight(t *testing.T) {
	c := asyncConfig(100)
	c.PipelineParallelSize = 2
	p := newPipeline(t, c)
	a := add(t, p.s, Spec{Tokens: tokens(8, 1), MaxTokens: 4})
	require.Len(t, p.schedule().step.Rows, 1)
	require.Empty(t, p.schedule().step.Rows, "a decode waits until its last step has left the first stage")
	require.Len(t, p.schedule().step.Rows, 1)
	p.run(nil)
	require.Len(t, p.kept[a], 4)

	c.AsyncScheduling = false
	p = newPipeline(t, c)
	require.Equal(t, 2, p.maxInFlight)
	a = add(t, p.s, Spec{Tokens: tokens(8, 1), MaxTokens: 4})
	p.schedule()
	require.Empty(t, p.schedule().step.Rows, "without placeholders a decode waits for its token")
	b := add(t, p.s, Spec{Tokens: tokens(8, 2), MaxTokens: 4})
	require.Len(t, p.schedule().step.Rows, 1, "another request fills the second stage")
	require.ErrorIs(t, p.s.Schedule(&Step{}), ErrOrder)
	p.run(nil)
	require.Len(t, p.kept[a], 4)
	require.Len(t, p.kept[b], 4)
}

func TestAsyncLastTokensAreCached(t *testing.T) {
	p := newPipeline(t, asyncConfig(100))
	id := add(t, p.s, Spec{Tokens: tokens(10, 1), MaxTokens: 7})
	p.run(nil)
	next := append(tokens(10, 1), p.kept[id]...)
	require.Equal(t, 16, hits(&host{Scheduler: p.s, t: t}, next), "the block was full with the last step")
}

func TestTwoStepsInFlightAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check of the whole state allocates")
	}
	c := asyncConfig(400)
	c.AsVLLM = false
	s := newSmall(t, c)
	for i := range 8 {
		add(t, s, Spec{Tokens: tokens(20, i), MaxTokens: 700})
	}
	var step Step
	var out Outcome
	counts, sampled := make([]int32, 8), make([]int32, 8)
	for i := range counts {
		counts[i] = 1
	}
	require.NoError(t, s.Schedule(&step))
	cycle := func() {
		if s.Schedule(&step) != nil || s.Update(counts, sampled, &out) != nil || len(step.Rows) != 8 {
			t.Fatal("a step failed")
		}
	}
	for range 50 {
		cycle()
	}
	require.Zero(t, testing.AllocsPerRun(400, cycle))
}

// Ensure that a reset drops the tokens of a row in flight. They stay dropped even if the request is admitted and
// preempted again before the update of the step (vllm/v1/RULES.md §15).
func TestDroppedTokensStayDroppedOverAPreemption(t *testing.T) {
	c := small(20)
	c.AsyncScheduling = true
	h := newHost(t, c)
	id := h.add(6, 1, Spec{})
	h.schedule()
	h.reset()
	require.Equal(t, KindResumed, h.schedule()[0].Kind)
	h.lose(id)
	for range 2 {
		h.update(7)
		require.Equal(t, []int32{0}, h.out.Kept)
	}
}
