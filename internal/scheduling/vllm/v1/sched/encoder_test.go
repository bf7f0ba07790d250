package sched

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
)

func encoderConfig(tokens, cache, budget int) Config {
	c := large(10000)
	c.MaxNumBatchedTokens, c.EncoderCacheSize, c.MaxNumEncoderInputTokens, c.Cache.MaxModelLen = tokens, cache, budget, 2048
	return c
}

func picture(hash string, offset, length int) blockhash.Item {
	return blockhash.Item{Identifier: hash, Offset: offset, Length: length}
}

func items(list ...blockhash.Item) blockhash.Extras { return blockhash.Extras{Items: list} }

func item(hash string, offset, length int) Spec {
	return Spec{Extras: items(picture(hash, offset, length))}
}

func requireEncodes(h *host, want ...EncoderInput) {
	h.t.Helper()
	for i, in := range h.step.EncoderInputs {
		require.Equal(h.t, in.ID, h.step.Rows[in.Row].ID)
		h.step.EncoderInputs[i].Row = 0
	}
	require.Equal(h.t, want, append([]EncoderInput(nil), h.step.EncoderInputs...))
}

// The scenarios of vLLM's scheduler tests (test_schedule_multimodal_requests,
// test_schedule_partial_requests, test_no_mm_input_chunking).

func TestTheBudgetAndTheCacheAreTwoLimits(t *testing.T) {
	for _, tc := range []struct {
		name          string
		cache, budget int
	}{
		{"the budget of the step", 8192, 1024},
		{"the size of the cache", 1024, 8192},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, encoderConfig(8192, tc.cache, tc.budget))
			for i := range 3 {
				h.add(800, 10*i, item(fmt.Sprint(i), 100, 600))
			}
			require.Equal(t, []int{800, 100, 100}, scheduled(h.schedule()))
			require.Len(t, h.step.EncoderInputs, 1)
		})
	}
}

func scheduled(rows []Row) (tokens []int) {
	for _, row := range rows {
		tokens = append(tokens, row.NumScheduledTokens)
	}
	return tokens
}

func TestItemsAreNotDividedIfAskedFor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		whole bool
		want  []int
	}{
		{"divided", false, []int{1024, 176}},
		{"whole", true, []int{400, 800}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := encoderConfig(1024, 1024, 1024)
			c.DisableChunkedMMInput = tc.whole
			h := newHost(t, c)
			h.add(1200, 1, item("a", 400, 800))
			for _, want := range tc.want {
				require.Equal(t, []int{want}, scheduled(h.schedule()))
				h.update(1)
			}
		})
	}
}

func TestRequestsShareAnOutput(t *testing.T) {
	c := encoderConfig(64, 40, 40)
	c.LongPrefillTokenThreshold = 32
	h := newHost(t, c)
	a, b := h.add(60, 1, item("a", 16, 30)), h.add(60, 2, item("a", 30, 30))
	h.schedule()
	requireEncodes(h, EncoderInput{ID: a})
	require.Equal(t, EncoderUsage{30, 30}, h.Monitor.Load().Encoder)
	h.update(1)
	h.schedule()
	require.Empty(t, h.step.EncoderInputs)
	h.update(1)
	require.Equal(t, EncoderUsage{30, 0}, h.Monitor.Load().Encoder)
	h.Abort(a, b)
	h.add(60, 3, item("b", 0, 20))
	h.schedule()
	require.Equal(t, []string{"a"}, h.step.FreedEncoderOutputs)
}

// A draft model reads the tokens of a chunk and also the token after the chunk. Ensure that a chunk ends one token
// earlier if a multimodal item begins at the token after it, and the encoder cache has no space for the item's output.
func TestADraftModelReadsAhead(t *testing.T) {
	c := encoderConfig(64, 24, 24)
	c.Cache.Eagle, c.LongPrefillTokenThreshold = true, 32
	h := newHost(t, c)
	a := h.add(60, 1, item("a", 32, 8))
	h.add(60, 2, item("b", 32, 20))
	require.Equal(t, []int{32, 31}, scheduled(h.schedule()), "b does not fit, so its chunk ends one token earlier")
	requireEncodes(h, EncoderInput{ID: a})
}

func tight(blocks int, asVLLM bool) Config {
	c := small(blocks)
	c.Policy, c.LongPrefillTokenThreshold, c.AdmitChunks, c.AsVLLM = Priority, 4, true, asVLLM
	c.EncoderCacheSize = 8
	return c
}

func importance(priority int, spec Spec) Spec {
	spec.Priority, spec.MaxTokens = priority, 1
	return spec
}

func TestAnOutputIsComputedWhenItsRowIsTakenOut(t *testing.T) {
	for _, tc := range []struct {
		name         string
		asVLLM       bool
		blocks       int
		bystander    bool // a request between the two that reads the same item
		rows, encode int
	}{
		{"the one that preempts it", false, 4, false, 1, 1},
		{"another one", false, 6, true, 2, 1},
		{"none in vLLM", true, 4, false, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, tight(tc.blocks, tc.asVLLM))
			h.add(8, 1, importance(9, item("a", 4, 4)))
			if tc.bystander {
				h.add(8, 2, importance(5, item("a", 4, 4)))
				h.add(8, 3, importance(0, Spec{}))
			} else {
				h.add(8, 3, importance(0, item("a", 4, 4)))
			}
			h.schedule() // priorities: the last one is admitted first
			h.update(1)
			for i, j := 0, len(h.running)-1; i < j; i, j = i+1, j-1 {
				h.running[i], h.running[j] = h.running[j], h.running[i]
			}
			require.Len(t, h.schedule(), tc.rows)
			require.Len(t, h.step.EncoderInputs, tc.encode)
		})
	}
}

// Two requests keep encoder outputs and need more space for others. Ensure that they do not block each other for ever,
// even if no request is admitted.
func TestRequestsDoNotWaitForEachOthersOutputs(t *testing.T) {
	for _, tc := range []struct {
		name             string
		asVLLM           bool
		pause            Pause
		running, waiting int // in the end
	}{
		{"one goes first", false, PauseNone, 0, 0},
		{"one waits for the end of a pause", false, PauseNew, 0, 1},
		{"in vLLM", true, PauseNone, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := small(40)
			c.Cache.Eagle, c.LongPrefillTokenThreshold, c.EncoderCacheSize, c.AsVLLM = true, 4, 8, tc.asVLLM
			h := newHost(t, c)
			for i := range 2 {
				h.add(10, 1+i, Spec{MaxTokens: 2, Extras: items(picture(fmt.Sprint("first", i), 0, 4), picture(fmt.Sprint("second", i), 5, 4))})
			}
			h.try(1)
			h.SetPause(tc.pause)
			h.try(19)
			require.Equal(t, []int{tc.running, tc.waiting}, []int{h.Monitor.Load().Running, h.Monitor.Load().Waiting})
			h.SetPause(PauseNone)
			h.try(10)
			require.Equal(t, []int{tc.running, 0}, []int{h.Monitor.Load().Running, h.Monitor.Load().Waiting})
		})
	}
}

// A request is preempted because its encoder outputs take space that other requests wait for. Ensure that the waiting
// requests get this space before the preempted one is admitted again. The last two requests have the same pictures,
// so the preemption of one of them frees no space.
func TestAPreemptedRequestDoesNotTakeItsOutputsBackAtOnce(t *testing.T) {
	c := small(40)
	c.Cache.Eagle, c.LongPrefillTokenThreshold, c.EncoderCacheSize = true, 4, 12
	h := newHost(t, c)
	h.add(25, 1, Spec{MaxTokens: 1, Extras: items(picture("a", 0, 3), picture("b", 4, 5), picture("c", 9, 4))})
	for range 2 {
		h.add(16, 2, Spec{MaxTokens: 1, Extras: items(picture("d", 0, 4), picture("e", 5, 5))})
	}
	h.try(40)
	require.Equal(t, []int{0, 0}, []int{h.Monitor.Load().Running, h.Monitor.Load().Waiting})
}

// Two requests have the encoder output of their first picture, and wait for space for the encoder output of their
// second picture. A third request is the only one that can run, and it needs blocks of these two. Ensure that the two
// requests lose their blocks. In vLLM, all three wait for ever.
func TestRequestsThatWaitForOutputsGiveUpBlocks(t *testing.T) {
	for _, tc := range []struct {
		name          string
		async, asVLLM bool
		policy        Policy
		connector     Connector
		unfinished    int
	}{
		{name: "one step at a time"},
		{name: "by priority", policy: Priority},
		{name: "asynchronous", async: true},
		{name: "asynchronous, and what preempted requests sample is dropped", async: true, connector: Connector{Producer: true}},
		{name: "in vLLM", asVLLM: true, unfinished: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := small(6)
			c.Cache.Eagle, c.LongPrefillTokenThreshold, c.EncoderCacheSize, c.AdmitChunks = true, 4, 8, true
			c.Policy, c.AsyncScheduling, c.AsVLLM, c.Connector = tc.policy, tc.async, tc.asVLLM, tc.connector
			h := newHost(t, c)
			for i := range 2 {
				h.add(10, 1+i, Spec{MaxTokens: 2, Extras: items(picture(fmt.Sprint("first", i), 0, 4), picture(fmt.Sprint("second", i), 5, 4))})
			}
			h.add(8, 3, Spec{MaxTokens: 12, Priority: 1})
			for range 200 {
				if (len(h.schedule()) == 0 || len(h.steps) == h.config.MaxConcurrentBatches) && len(h.steps) > 0 {
					h.update(1)
				}
			}
			load := h.Monitor.Load()
			require.Equal(t, tc.unfinished, load.Running+load.Waiting)
			require.False(t, h.encoder.gaveUp, "admissions go on once one of those that waited has run")
		})
	}
}

func TestItemsThatNeverFitAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, wantErr string
		change        func(c *Config)
		items         []blockhash.Item
	}{
		{"larger than the cache", "40 embeddings at once, the encoder takes 32", func(*Config) {}, item("a", 0, 40).Extras.Items},
		{"larger than the budget", "takes 16", func(c *Config) { c.MaxNumEncoderInputTokens = 16 }, item("a", 0, 20).Extras.Items},
		{"two at once under a draft model", "item 1 needs 40 embeddings", func(c *Config) { c.Cache.Eagle = true },
			[]blockhash.Item{{Identifier: "a", Length: 20}, {Identifier: "b", Offset: 20, Length: 20}}},
		{"longer than a step", "items may not be divided", func(c *Config) { c.DisableChunkedMMInput, c.LongPrefillTokenThreshold = true, 16 }, item("a", 0, 20).Extras.Items},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := encoderConfig(64, 32, 0)
			tc.change(&c)
			s := newSmall(t, c)
			_, err := s.Add(Spec{Tokens: tokens(60, 1), MaxTokens: 1, Extras: blockhash.Extras{Items: tc.items}})
			require.ErrorIs(t, err, ErrRequest)
			require.ErrorContains(t, err, tc.wantErr)
			require.Zero(t, s.Monitor.Load().Waiting)
		})
	}
	_, err := newSmall(t, encoderConfig(64, 32, 0)).Add(Spec{Tokens: tokens(60, 1), MaxTokens: 1, IsEmbed: []byte{1}})
	require.ErrorIs(t, err, ErrRequest)
}

// Ensure that empty items, items out of order and items outside the prompt are refused before the state changes. This
// holds with and without an encoder, and with and without IsEmbed.
func TestItemsMustLieInThePromptInOrder(t *testing.T) {
	for name, span := range map[string][2]int{ // offset and length
		"begins before the prompt":     {-5, 3},
		"begins far before the prompt": {math.MinInt, 3},
		"has no tokens":                {2, 0},
		"has fewer than none":          {2, -3},
		"ends after the prompt":        {18, 3},
		"begins after the prompt":      {20, 1},
		"ends beyond all numbers":      {2, math.MaxInt},
		"begins beyond all numbers":    {math.MaxInt, math.MaxInt},
		"begins in the one before":     {1, 1},
	} {
		for _, isEmbed := range [][]byte{nil, make([]byte, 20)} {
			for _, size := range []int{0, 32} {
				spec := Spec{Tokens: tokens(20, 1), MaxTokens: 1, IsEmbed: isEmbed}
				spec.Extras.Items = []blockhash.Item{{Identifier: "a", Length: 2}, {Identifier: "b", Offset: span[0], Length: span[1]}}
				_, err := newSmall(t, encoderConfig(64, size, 0)).Add(spec)
				require.ErrorIs(t, err, ErrRequest, name)
				require.ErrorContains(t, err, "item 1", name)
			}
		}
	}
}

func TestTheEncoderCacheIsResetBetweenSteps(t *testing.T) {
	h := newHost(t, encoderConfig(64, 64, 64))
	h.add(60, 1, item("a", 0, 8))
	h.schedule()
	require.ErrorIs(t, h.ResetEncoderCache(), ErrOrder)
	h.update(1)
	require.NoError(t, h.ResetEncoderCache())
	require.Zero(t, h.Monitor.Load().Encoder)
}
