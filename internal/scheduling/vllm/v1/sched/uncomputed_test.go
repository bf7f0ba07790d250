package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func hits(h *host, prompt []int32) int {
	id := add(h.t, h.Scheduler, Spec{Tokens: prompt, Priority: -100})
	return h.schedule()[h.rowOf(id)].NumComputedTokens
}

func TestWhatIsAbortedInFlightCannotBeHit(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		c := small(20)
		c.AsVLLM, c.AsyncScheduling, c.MaxNumBatchedTokens = asVLLM, true, 8
		h := newHost(t, c)
		id := h.add(20, 1, Spec{})
		h.schedule()
		h.end([]int32{0})
		h.schedule()
		require.Equal(t, 1, h.Abort(id))
		want := 8
		if asVLLM {
			want = 16
		}
		require.Equal(t, want, hits(h, tokens(20, 1)))
	}
}

func TestAFailedStepLeavesEverythingAsItWas(t *testing.T) {
	c := small(20)
	c.NumSpeculativeTokens = 3
	h := newHost(t, c)
	require.ErrorIs(t, h.StepFailed(), ErrOrder)
	decode := h.add(6, 1, Spec{})
	h.run(1)
	require.NoError(t, h.SetDrafts([]ID{decode}, []int32{2}, []int32{7, 8}))
	prompt := h.add(9, 2, Spec{})
	third := h.add(30, 3, Spec{})
	h.schedule()
	require.Len(t, h.step.Rows, 3)
	before := append([]Row{}, h.step.Rows...)
	h.fail()
	require.Equal(t, []ID{decode}, h.Monitor.Running(nil))
	require.Equal(t, []ID{prompt, third}, h.Monitor.Waiting(nil))
	require.Equal(t, 6, h.computed(decode))
	h.schedule()
	before[0].Kind = KindResumed // the worker gets its whole table
	require.Equal(t, before, h.step.Rows, "the same step comes again, drafts and all")
	require.Equal(t, []int32{7, 8}, h.step.Drafts)
	require.Len(t, h.step.RowBlocks(0, 0), 3)
}

func TestMinTokensThatCannotBeAreRefused(t *testing.T) {
	h := newHost(t, small(30))
	for _, test := range []struct {
		name    string
		spec    Spec
		wantErr string
	}{
		{"above the most", Spec{Tokens: tokens(4, 1), MinTokens: 6, MaxTokens: 5}, "min_tokens is 6: want 0 to max_tokens, which is 5"},
		{"above the length", Spec{Tokens: tokens(60, 1), MinTokens: 5, MaxTokens: 9}, "min_tokens is 5 after a prompt of 60: no sequence has more than 64 tokens"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := h.Add(test.spec)
			require.ErrorIs(t, err, ErrRequest)
			require.ErrorContains(t, err, test.wantErr)
		})
	}
	id := h.add(60, 1, Spec{MinTokens: 4, MaxTokens: 9})
	h.finish(1)
	require.Equal(t, []Done{{ID: id, Reason: Length}}, h.out.Done)
}

// A request that has one token to compute joins a step that has only decodes. Ensure that its row is padded to 1 +
// NumSpeculativeTokens tokens, or to LongPrefillTokenThreshold if this is smaller. The request must wait if the step's
// budget has too few tokens for the padded row, or if the padded sequence would be longer than MaxModelLen
// (vllm/v1/RULES.md §14.3). Its row is not padded if the step also computes a prompt.
func TestPaddingUpToTheLimits(t *testing.T) {
	for _, test := range []struct {
		name      string
		threshold int
		budget    int
		longest   int
		prefill   bool // the step also has a running request whose prompt is not completely computed
		tokens    int  // of the padded row; 0: it is not scheduled
		drafts    int
	}{
		{"just enough tokens", 0, 1 + 4, 64, false, 4, 3},
		{"one token too few", 0, 1 + 3, 64, false, 0, 0},
		{"as long as the longest sequence", 0, 8, 4 + 4, false, 4, 3},
		{"longer than the longest sequence", 0, 8, 4 + 3, false, 0, 0},
		{"clipped by the threshold", 2, 8, 64, false, 2, 1},
		{"beside a prefill there is no padding", 0, 8, 64, true, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := small(40)
			c.NumSpeculativeTokens = 3
			h := newHost(t, c)
			spec := Spec{Tokens: tokens(3, 1), MaxTokens: 20}
			if test.prefill {
				spec.Tokens = tokens(30, 1)
			}
			h.add(5, 2, Spec{MaxTokens: 1})
			add(t, h.Scheduler, spec)
			h.run(1) // the first one is cached, up to its last token
			h.config.LongPrefillTokenThreshold = test.threshold
			h.config.MaxNumBatchedTokens, h.longest = test.budget, test.longest
			if test.prefill {
				h.config.LongPrefillTokenThreshold = 4
			} else {
				h.run(1)
			}
			id := h.add(5, 2, Spec{MaxTokens: 4})
			h.schedule()
			var row Row
			if at := h.rowOf(id); at >= 0 {
				row = h.step.Rows[at]
			}
			require.Equal(t, []int{test.tokens, test.drafts}, []int{row.NumScheduledTokens, row.NumDraftTokens})
		})
	}
}

func TestAHeldRequestDoesNotBlockOthers(t *testing.T) {
	h := newHost(t, small(20))
	held := h.add(4, 1, Spec{Hold: true})
	other := h.add(4, 2, Spec{})
	h.run(1)
	require.Len(t, h.step.Rows, 1)
	require.Equal(t, other, h.step.Rows[0].ID)
	require.Equal(t, []ID{held}, h.Monitor.Waiting(nil))
	late := h.add(4, 3, Spec{})
	h.Release(held, held, 12345)
	h.run(1)
	require.Equal(t, []ID{other, held, late}, h.Monitor.Running(nil), "it is first in the queue")
}

// Ensure that the next step repeats what a failed step asked the worker to do, because the worker may not have done
// it.
func TestTheInstructionsOfAFailedStepAreRepeated(t *testing.T) {
	c := encoderConfig(64, 8, 8)
	h := newHost(t, c)
	gone := h.add(20, 1, item("a", 0, 8))
	h.run(1)
	require.Equal(t, 1, h.Abort(gone))
	next := h.add(20, 2, item("b", 0, 8)) // evicts the output of a
	for range 2 {
		require.Len(t, h.schedule(), 1)
		require.Equal(t, []ID{gone}, h.step.Finished)
		require.Equal(t, []string{"a"}, h.step.FreedEncoderOutputs)
		requireEncodes(h, EncoderInput{ID: next})
		h.fail()
	}
}

func TestAStepIsEmptyOnlyIfNothingCanRun(t *testing.T) {
	c := small(7)
	c.Policy = Priority
	h := newHost(t, c)
	h.add(11, 1, Spec{MaxTokens: 12, Priority: 1})
	h.run(1)
	h.add(11, 2, Spec{MaxTokens: 12})
	for h.unfinished() > 0 {
		require.NotEmpty(t, h.schedule())
		h.update(1)
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
			h := newHost(t, c)
			r := h.requests.Get(uint64(h.add(7, 1, Spec{MaxTokens: 20})))
			h.run(1)
			require.Equal(t, 7, r.kv.NumComputedTokens)
			h.batch = h.flight.batches[0]
			h.batch.reset()
			h.batch.budget = 16
			h.scheduleRunning() // registers block 1, with token 7
			h.removeRunning(r)
			for range 2 { // the second time, it is not in the batch
				h.unschedule(r)
				require.Equal(t, 16, h.batch.budget, "the tokens of its row have returned")
				require.Empty(t, h.batch.rows)
			}
			h.preempt(r)
			h.batch.reset()
			require.Equal(t, test.hit, hits(h, append(tokens(7, 1), 1, 9)), "block 1 was never full")
		})
	}
}

func TestWhatFollowsARowWithoutATokenDoesNotCount(t *testing.T) {
	for _, preempts := range []bool{false, true} {
		c := small(20)
		c.AsyncScheduling = true
		h := newHost(t, c)
		id := h.add(6, 1, Spec{MaxTokens: 4})
		h.schedule()
		require.True(t, h.schedule()[0].Samples)
		if preempts {
			h.lose(id)
		}
		h.end([]int32{0})
		h.schedule()
		require.Equal(t, []ID{id}, h.Monitor.Running(nil), "it need not wait for the row that does not count")
		h.update(7)
		require.Equal(t, []int32{0}, h.out.Kept)
		h.update(8)
		require.Equal(t, []int32{1}, h.out.Kept)
	}
}
