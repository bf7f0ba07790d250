package sched

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

func small(blocks int) Config {
	return Config{
		Limits: Limits{MaxNumSeqs: 4, MaxNumBatchedTokens: 16},
		Cache: kvcache.Config{
			NumGPUBlocks: blocks, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: 4}},
			EnablePrefixCaching: true, Hash: blockhash.LE{}, MaxModelLen: 64,
		},
	}
}

// large is the configuration of most of vLLM's tests.
func large(blocks int) Config {
	c := small(blocks)
	c.MaxNumSeqs, c.MaxNumBatchedTokens = 16, 8192
	c.Cache.Groups[0].BlockSize, c.Cache.MaxModelLen, c.Cache.RetentionInterval = 16, 8192, kvcache.RetainAll
	return c
}

func newSmall(t testing.TB, c Config) *Scheduler {
	s, err := New(c)
	require.NoError(t, err)
	return s
}

func tokens(n, seed int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(100*seed + i)
	}
	return p
}

func add(t testing.TB, s *Scheduler, spec Spec) ID {
	if spec.MaxTokens == 0 {
		spec.MaxTokens = 8
	}
	id, err := s.Add(spec)
	require.NoError(t, err)
	return id
}

func TestImpossibleConfigurationsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, wantErr string
		change        func(c *Config)
	}{
		{"an unknown policy", "policy", func(c *Config) { c.Policy = 2 }},
		{"no running requests", "max_num_seqs is 0", func(c *Config) { c.MaxNumSeqs = 0 }},
		{"no tokens", "max_num_batched_tokens is 0", func(c *Config) { c.MaxNumBatchedTokens = 0 }},
		{"a negative number of drafts", "num_speculative_tokens -1: want none negative", func(c *Config) { c.NumSpeculativeTokens = -1 }},
		{"whole prompts that do not fit a step", "cannot hold", func(c *Config) { c.DisableChunkedPrefill = true }},
		{"no token for an answer", "max_model_len is 1", func(c *Config) { c.Cache.MaxModelLen = 1 }},
		{"a window of full attention", "a window of 4 tokens and 0 retained", func(c *Config) { c.Cache.Groups[0].Window = 4 }},
		{"retained tokens of full attention", "a window of 0 tokens and 4 retained", func(c *Config) { c.Cache.Groups[0].Retained = 4 }},
		{"chunks of full attention", "chunks of 4 tokens", func(c *Config) { c.Cache.Groups[0].Chunk = 4 }},
		{"speculative blocks of full attention", "1 speculative blocks", func(c *Config) { c.Cache.Groups[0].NumSpeculativeBlocks = 1 }},
		{"aligned states of full attention", "align true", func(c *Config) { c.Cache.Groups[0].Align = true }},
		{"a cache without blocks", "configuration", func(c *Config) { c.Cache.NumGPUBlocks = 0 }},
	} {
		c := small(9)
		tc.change(&c)
		_, err := New(c)
		require.ErrorIs(t, err, ErrConfig, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
}

func TestImpossibleRequestsAreRefused(t *testing.T) {
	s := newSmall(t, small(9))
	for _, tc := range []struct {
		name, wantErr string
		spec          Spec
	}{
		{"no prompt", "a prompt of 0", Spec{MaxTokens: 1}},
		{"a prompt as long as the model", "a prompt of 64", Spec{MaxTokens: 1, Tokens: tokens(64, 0)}},
		{"no output tokens", "max_tokens is 0", Spec{Tokens: tokens(1, 0)}},
		{"negative min_tokens", "min_tokens is -1", Spec{Tokens: tokens(1, 0), MaxTokens: 1, MinTokens: -1}},
		{"a negative token", "token -1", Spec{Tokens: []int32{3, -1}, MaxTokens: 1}},
		{"an arrival that is not a number", "not a number", Spec{Tokens: tokens(1, 0), MaxTokens: 1, Arrival: math.NaN()}},
		{"more blocks than the pool has", "33 tokens can take 9", Spec{Tokens: tokens(32, 0), MaxTokens: 1}},
		{"a load without a consumer", "no consumer", Spec{Tokens: tokens(1, 0), MaxTokens: 1, External: Match{Async: true}}},
	} {
		_, err := s.Add(tc.spec)
		require.ErrorIs(t, err, ErrRequest, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
	for _, id := range []ID{0, 1, 1 << 32, ^ID(0)} {
		_, _, err := s.Monitor.NumComputedTokens(id)
		require.ErrorIs(t, err, ErrRequest)
		_, err = s.Monitor.Table(nil, id, 0)
		require.ErrorIs(t, err, ErrRequest)
		_, err = s.Fork(id, Child{})
		require.ErrorIs(t, err, ErrRequest)
		require.Zero(t, s.Abort(id))
	}
	id := add(t, s, Spec{Tokens: tokens(4, 1)})
	_, err := s.Monitor.Table(nil, id, 1)
	require.ErrorContains(t, err, "group 1 of 1")
	_, err = s.Fork(id, Child{Arrival: math.NaN()})
	require.ErrorIs(t, err, ErrRequest)
	for _, bad := range [][2][]int32{{{1}, {5}}, {{-1}, nil}, {nil, nil}, {{0}, {7}}} {
		require.ErrorIs(t, s.SetDrafts([]ID{id}, bad[0], bad[1]), ErrRequest)
	}
	require.NoError(t, s.Check())
}

func TestAStepHasWhatAWorkerNeeds(t *testing.T) {
	h := newHost(t, small(9))
	a := h.add(6, 1, Spec{})
	h.run(1)
	require.Equal(t, []Row{{ID: a, Kind: KindNew, Samples: true, NumScheduledTokens: 6}}, h.step.Rows)
	require.Equal(t, []int32{1, 2}, h.step.RowBlocks(0, 0))
	require.Equal(t, []int64{4, 5, 6, 7, 8, 9}, h.step.Slots[0])
	require.Equal(t, []int32{2}, h.step.NumCommonPrefixBlocks, "alone it shares its whole table (vllm/v1/RULES.md §11)")
	h.run(1)
	h.run(1)
	require.Empty(t, h.step.RowBlocks(0, 0))
	b := add(t, h.Scheduler, Spec{Tokens: append(tokens(4, 1), 9)})
	h.run(1)
	require.Equal(t, []Row{
		{ID: a, Kind: KindRunning, Samples: true, NumComputedTokens: 8, NumScheduledTokens: 1},
		{ID: b, Kind: KindNew, Samples: true, NumComputedTokens: 4, NumScheduledTokens: 1},
	}, h.step.Rows)
	require.Equal(t, []int32{3}, h.step.RowBlocks(0, 0))
	require.Equal(t, 2, h.step.BlockStarts[0])
	require.Equal(t, []int32{1, 4}, h.step.RowBlocks(1, 0), "the first block is a hit")
	require.Equal(t, []int64{12, 16}, h.step.Slots[0])
	require.Equal(t, []int32{1}, h.step.NumCommonPrefixBlocks)
	require.Equal(t, 2, h.step.NumScheduledTokens)
	require.Equal(t, 1, h.Abort(b))
	h.run(1)
	require.Equal(t, []ID{b}, h.step.Finished)
}

func TestARequestStopsForTheRightReason(t *testing.T) {
	h := newHost(t, small(40))
	short := h.add(3, 1, Spec{MaxTokens: 2})
	stop := h.add(3, 2, Spec{Stop: []int32{7, 1}})
	late := h.add(3, 3, Spec{Stop: []int32{1}, MinTokens: 3})
	require.Equal(t, []Done{{ID: stop, Reason: StopToken}}, h.run(1))
	require.Equal(t, []Done{{ID: short, Reason: Length}}, h.run(1))
	require.Equal(t, []Done{{ID: late, Reason: StopToken}}, h.run(1))
	full := h.add(63, 4, Spec{MaxTokens: 99})
	for range 3 {
		require.Empty(t, h.run(1))
	}
	require.Equal(t, []Done{{ID: full, Reason: Length}}, h.run(1), "the longest sequence")
	require.Equal(t, Load{FreeBlocks: 39, Blocks: 39}, h.Monitor.Load())
}

// Ensure that blocks of rejected drafts stay in the table or, with ReturnDrafts, are freed.
func TestRejectedDraftsAreComputedAgain(t *testing.T) {
	for _, returned := range []bool{false, true} {
		c := small(9)
		c.NumSpeculativeTokens, c.ReturnDrafts = 3, returned
		h := newHost(t, c)
		id := h.add(3, 1, Spec{MaxTokens: 20})
		h.run(1)
		require.NoError(t, h.SetDrafts([]ID{id}, []int32{3}, []int32{5, 6, 7}))
		h.schedule()
		require.Equal(t, 4, h.step.Rows[0].NumScheduledTokens)
		require.Equal(t, []int32{5, 6, 7}, h.step.Drafts)
		require.Equal(t, []int32{2}, h.step.RowBlocks(0, 0))
		require.ErrorIs(t, h.Update([]int32{5}, make([]int32, 5), &h.out), ErrRequest, "three drafts and one")
		require.ErrorIs(t, h.Update([]int32{1}, []int32{-4}, &h.out), ErrRequest)
		h.update(4) // all rejected
		computed, all, _ := h.Monitor.NumComputedTokens(id)
		require.Equal(t, []int{4, 5}, []int{computed, all})
		table := []int32{1, 2}
		if returned {
			table = table[:1]
		}
		require.Equal(t, table, h.table(id))
		h.run(1)
		require.Equal(t, returned, len(h.step.RowBlocks(0, 0)) > 0)
	}
}

// Ensure that of n tokens sampled for a row with drafts, n-1 count as accepted drafts.
func TestVerifiedAndAcceptedDraftsAreCounted(t *testing.T) {
	c := small(9)
	c.NumSpeculativeTokens = 3
	h := newHost(t, c)
	id := h.add(3, 1, Spec{MaxTokens: 20})
	h.run(1)
	h.Monitor.TakeCounters()
	for _, sampled := range [][]int32{{5, 6, 7, 8}, {5, 9}, {4}} {
		require.NoError(t, h.SetDrafts([]ID{id}, []int32{3}, []int32{5, 6, 7}))
		h.schedule()
		h.end([]int32{int32(len(sampled))}, sampled...)
	}
	counters := h.Monitor.TakeCounters()
	require.Equal(t, []int{7, 9, 3 + 1}, []int{counters.Tokens, counters.Drafts, counters.DraftsAccepted})
}

// Ensure that requests are ordered by priority (smaller first), then by arrival, then by name, then by
// the order of Add (vllm/v1/RULES.md §14).
func TestTheOrderOfPriorities(t *testing.T) {
	c := small(9)
	c.Policy = Priority
	s := newSmall(t, c)
	var want [6]ID
	for i, spec := range []Spec{
		{Priority: 1, Arrival: 1}, {Arrival: 7, Name: "b"}, {Arrival: 7, Name: "a"}, {Arrival: 7, Name: "a"}, {Arrival: 5, Name: "c"}, {Priority: -1, Arrival: 9},
	} {
		spec.Tokens, spec.Hold = tokens(3, i), i%2 == 0 // those that are held wait in a queue of their own
		want[[]int{5, 4, 2, 3, 1, 0}[i]] = add(t, s, spec)
	}
	require.Equal(t, want[:], s.Monitor.Waiting(nil))
	s.Release(want[:]...)
	step := Step{}
	require.NoError(t, s.Schedule(&step))
	require.Equal(t, want[:4], s.Monitor.Running(nil), "as many as may run")
}

func TestAPaddedDecodeReservesNothing(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		c := small(60)
		c.NumSpeculativeTokens, c.Connector.Consumer, c.AsVLLM = 2, true, asVLLM
		c.Cache.Groups = append(c.Cache.Groups, kvcache.Group{Kind: kvcache.Mamba, BlockSize: 4, Align: true, NumSpeculativeBlocks: 2})
		h := newHost(t, c)
		h.add(3, 1, Spec{})
		loaded := h.add(3, 2, Spec{})
		h.run(9)
		h.lose(loaded)
		require.NoError(t, h.Transfers.SetMatch(loaded, Match{3, true}))
		h.run(9)
		require.NoError(t, h.Transfers.Received(loaded))
		loads := h.add(9, 3, Spec{External: Match{9, true}})
		require.Equal(t, 3, h.schedule()[1].NumScheduledTokens, "it is padded")
		require.Equal(t, loads, h.step.Loads[0].ID)
	}
}

// Reset preempts a request while a step is in flight. Ensure that the tokens that this step samples for the request do
// not count.
func TestResetInTheMiddleOfAStep(t *testing.T) {
	h := newHost(t, small(9))
	id := h.add(3, 1, Spec{})
	h.schedule()
	ok, err := h.Reset(false)
	require.NoError(t, err)
	require.False(t, ok, "blocks are in use")
	h.reset()
	h.update(7)
	require.Equal(t, []int32{0}, h.out.Kept)
	computed, all, _ := h.Monitor.NumComputedTokens(id)
	require.Equal(t, []int{0, 3}, []int{computed, all})
	h.run(1)
	require.Equal(t, KindResumed, h.step.Rows[0].Kind)
	require.Equal(t, []ID{id}, h.step.Preempted)
}

// Ensure that one request can become a beam of three. The children have new rows, share the computed blocks, and
// differ in their last token.
func TestForkOfARunningRequest(t *testing.T) {
	h := newHost(t, small(20))
	parent := h.add(6, 1, Spec{})
	h.run(1)
	var children []ID
	for i := range 4 {
		children = append(children, h.fork(parent, Child{Last: int32(50 + i), Arrival: float64(1 + i)}))
	}
	h.schedule()
	_, err := h.Fork(parent, Child{})
	require.ErrorIs(t, err, ErrOrder)
	require.Len(t, h.step.Rows, 4, "the fifth waits: four may run")
	require.Equal(t, []ID{children[3]}, h.Monitor.Waiting(nil))
	require.Equal(t, KindRunning, h.step.Rows[0].Kind)
	for i := range 3 {
		require.Equal(t, Row{ID: children[i], Kind: KindNew, Samples: true, NumComputedTokens: 6, NumScheduledTokens: 1}, h.step.Rows[1+i])
		require.Len(t, h.step.RowBlocks(1+i, 0), 2)
	}
	require.Len(t, h.step.Copies, 3, "four write to one block")
	require.Equal(t, Copy{Src: 2, Dst: 3, ID: parent, Index: 1}, h.step.Copies[0])
	slots := map[int64]bool{}
	for _, slot := range h.step.Slots[0] {
		slots[slot] = true
	}
	require.Len(t, slots, 4)
	require.NoError(t, h.Check())
}

func TestAPausedSchedulerSchedulesWhatThePauseAllows(t *testing.T) {
	h := newHost(t, small(9))
	h.add(3, 1, Spec{})
	h.run(1)
	h.add(3, 2, Spec{})
	for _, x := range []struct {
		pause Pause
		rows  int
	}{{PauseAll, 0}, {PauseNew, 1}, {PauseNone, 2}} {
		h.SetPause(x.pause)
		require.Len(t, h.schedule(), x.rows)
		if x.rows > 0 {
			h.update(1)
		}
	}
}
