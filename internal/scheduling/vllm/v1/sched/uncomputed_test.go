package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// hits returns how many tokens of this prompt a new request hits.
func hits(t *testing.T, s *Scheduler, prompt []int32) int {
	id := add(t, s, Spec{Tokens: prompt, Priority: -100})
	var step Step
	require.NoError(t, s.Schedule(&step))
	for _, row := range step.Rows {
		if row.ID == id {
			return row.NumComputedTokens
		}
	}
	t.Fatal("the request does not run")
	return 0
}

func TestWhatIsAbortedInFlightCannotBeHit(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		c := small(20)
		c.AsVLLM, c.AsyncScheduling, c.MaxNumBatchedTokens = asVLLM, true, 8
		s := newSmall(t, c)
		id := add(t, s, Spec{Tokens: tokens(20, 1)})
		var step Step
		require.NoError(t, s.Schedule(&step))
		require.NoError(t, s.Update([]int32{0}, nil, &Outcome{}))
		require.NoError(t, s.Schedule(&step))
		require.Equal(t, 1, s.Abort(id))
		want := 8
		if asVLLM {
			want = 16
		}
		require.Equal(t, want, hits(t, s, tokens(20, 1)))
	}
}

func TestAFailedStepLeavesEverythingAsItWas(t *testing.T) {
	c := small(20)
	c.NumSpeculativeTokens = 3
	s := newSmall(t, c)
	require.ErrorIs(t, s.StepFailed(), ErrOrder)
	decode := add(t, s, Spec{Tokens: tokens(6, 1)})
	var step Step
	one(t, s, &step)
	require.NoError(t, s.SetDrafts([]ID{decode}, []int32{2}, []int32{7, 8}))
	prompt := add(t, s, Spec{Tokens: tokens(9, 2)})
	waits := add(t, s, Spec{Tokens: tokens(30, 3)})
	require.NoError(t, s.Schedule(&step))
	require.Len(t, step.Rows, 3)
	before := append([]Row{}, step.Rows...)
	require.NoError(t, s.StepFailed())
	require.NoError(t, s.Check())
	require.Equal(t, []ID{decode}, s.Monitor.Running(nil))
	require.Equal(t, []ID{prompt, waits}, s.Monitor.Waiting(nil))
	computed, _, err := s.Monitor.NumComputedTokens(decode)
	require.NoError(t, err)
	require.Equal(t, 6, computed)
	require.NoError(t, s.Schedule(&step))
	before[0].Kind = KindResumed // the worker gets its whole table
	require.Equal(t, before, step.Rows, "the same step comes again, drafts and all")
	require.Equal(t, []int32{7, 8}, step.Drafts)
	require.Len(t, step.RowBlocks(0, 0), 3)
}

func TestMinTokensThatCannotBeAreRefused(t *testing.T) {
	s := newSmall(t, small(30))
	for _, test := range []struct {
		name    string
		spec    Spec
		wantErr string
	}{
		{"above the most", Spec{Tokens: tokens(4, 1), MinTokens: 6, MaxTokens: 5}, "min_tokens is 6: want 0 to max_tokens, which is 5"},
		{"above the length", Spec{Tokens: tokens(60, 1), MinTokens: 5, MaxTokens: 9}, "min_tokens is 5 after a prompt of 60: no sequence has more than 64 tokens"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.Add(test.spec)
			require.ErrorIs(t, err, ErrRequest)
			require.ErrorContains(t, err, test.wantErr)
		})
	}
	id := add(t, s, Spec{Tokens: tokens(60, 1), MinTokens: 4, MaxTokens: 9})
	var step Step
	var last Outcome
	for s.Monitor.Load().Running+s.Monitor.Load().Waiting > 0 {
		last = one(t, s, &step)
	}
	require.Equal(t, []Done{{ID: id, Reason: Length}}, last.Done)
}

func TestPaddingUpToTheLimits(t *testing.T) {
	for _, test := range []struct {
		name      string
		threshold int
		budget    int
		prefill   bool // the step also has a running request whose prompt is not completely computed
		tokens    int  // of the padded row; 0: it is not scheduled
		drafts    int
	}{
		{"just enough tokens", 0, 1 + 4, false, 4, 3},
		{"one token too few", 0, 1 + 3, false, 0, 0},
		{"clipped by the threshold", 2, 8, false, 2, 1},
		{"beside a prefill there is no padding", 0, 8, true, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := small(40)
			c.NumSpeculativeTokens = 3
			s := newSmall(t, c)
			var step Step
			spec := Spec{Tokens: tokens(5, 1), MaxTokens: 20}
			if test.prefill {
				spec.Tokens = tokens(30, 1)
			}
			add(t, s, Spec{Tokens: tokens(5, 2), MaxTokens: 1})
			add(t, s, spec)
			one(t, s, &step) // the first one is cached, up to its last token
			s.config.LongPrefillTokenThreshold = test.threshold
			s.config.MaxNumBatchedTokens = test.budget
			if test.prefill {
				s.config.LongPrefillTokenThreshold = 4
			} else {
				one(t, s, &step)
			}
			id := add(t, s, Spec{Tokens: tokens(5, 2), MaxTokens: 4})
			require.NoError(t, s.Schedule(&step))
			var row Row
			for _, r := range step.Rows {
				if r.ID == id {
					row = r
				}
			}
			require.Equal(t, []int{test.tokens, test.drafts}, []int{row.NumScheduledTokens, row.NumDraftTokens})
		})
	}
}

func TestAHeldRequestDoesNotBlockOthers(t *testing.T) {
	s := newSmall(t, small(20))
	held := add(t, s, Spec{Tokens: tokens(4, 1), Hold: true})
	other := add(t, s, Spec{Tokens: tokens(4, 2)})
	var step Step
	one(t, s, &step)
	require.Len(t, step.Rows, 1)
	require.Equal(t, other, step.Rows[0].ID)
	require.Equal(t, []ID{held}, s.Monitor.Waiting(nil))
	late := add(t, s, Spec{Tokens: tokens(4, 3)})
	s.Release(held, held, 12345)
	one(t, s, &step)
	require.Equal(t, []ID{other, held, late}, s.Monitor.Running(nil), "it is first in the queue")
}

// Ensure that the instructions of a failed step are in the next step again, because the worker may not have carried
// them out.
func TestTheInstructionsOfAFailedStepAreRepeated(t *testing.T) {
	c := encoderConfig(64, 8, 8)
	h := newHost(t, c)
	gone := h.add(20, 1, item("a", 0, 8))
	h.run(1)
	require.Equal(t, 1, h.Abort(gone))
	h.add(20, 2, item("b", 0, 8)) // evicts the output of a
	for range 2 {
		require.Len(t, h.schedule(), 1)
		require.Equal(t, []ID{gone}, h.step.Finished)
		require.Equal(t, []string{"a"}, h.step.FreedEncoderOutputs)
		require.NoError(t, h.StepFailed())
	}
}

// Ensure that a step is empty only if nothing can run. In vLLM it is also empty if a request must
// preempt itself.
func TestAStepIsEmptyOnlyIfNothingCanRun(t *testing.T) {
	c := small(7)
	c.Policy = Priority
	s := newSmall(t, c)
	var step Step
	add(t, s, Spec{Tokens: tokens(11, 1), MaxTokens: 12, Priority: 1})
	one(t, s, &step)
	add(t, s, Spec{Tokens: tokens(11, 2), MaxTokens: 12})
	for s.Monitor.Load().Running+s.Monitor.Load().Waiting > 0 {
		one(t, s, &step)
		require.NotEmpty(t, step.Rows)
	}
}

func TestAVictimOfItsOwnStepLeavesNoUncomputedKeys(t *testing.T) {
	for _, test := range []struct {
		name   string
		asVLLM bool
		hit    int
	}{
		{"correct", false, 4},
		{"as vLLM", true, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := small(10)
			c.Policy, c.AsVLLM = Priority, test.asVLLM
			s := newSmall(t, c)
			r := s.requests.Get(uint64(add(t, s, Spec{Tokens: tokens(7, 1), MaxTokens: 20})))
			var step Step
			one(t, s, &step)
			require.Equal(t, 7, r.kv.NumComputedTokens)
			s.batch = s.flight.batches[0]
			s.batch.reset()
			s.batch.budget = 16
			s.scheduleRunning() // registers block 1, with token 7
			s.removeRunning(r)
			s.unschedule(r)
			s.preempt(r)
			s.batch.reset()
			require.Equal(t, test.hit, hits(t, s, append(tokens(7, 1), 1, 9)), "block 1 was never full")
		})
	}
}

// Ensure that when a row gave no token, the later rows of its request do not count, even if the request was
// preempted since then.
func TestWhatFollowsARowWithoutATokenDoesNotCount(t *testing.T) {
	for _, preempts := range []bool{false, true} {
		c := small(20)
		c.AsyncScheduling = true
		s := newSmall(t, c)
		id := add(t, s, Spec{Tokens: tokens(6, 1), MaxTokens: 4})
		var step Step
		var out Outcome
		require.NoError(t, s.Schedule(&step))
		require.NoError(t, s.Schedule(&step))
		require.True(t, step.Rows[0].Samples)
		if preempts {
			r := s.live(id)
			s.removeRunning(r)
			s.preempt(r)
		}
		require.NoError(t, s.Update([]int32{0}, nil, &out))
		require.NoError(t, s.Schedule(&step))
		require.Equal(t, []ID{id}, s.Monitor.Running(nil), "it need not wait for the row that does not count")
		require.NoError(t, s.Update([]int32{1}, []int32{7}, &out))
		require.NoError(t, s.Check())
		require.Equal(t, []int32{0}, out.Kept)
		require.NoError(t, s.Update([]int32{1}, []int32{8}, &out))
		require.Equal(t, []int32{1}, out.Kept)
		require.NoError(t, s.Check())
	}
}
