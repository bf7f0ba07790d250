package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/kvcache"
)

var layouts = [][]kvcache.Group{
	{{Kind: kvcache.Full, BlockSize: 4}},
	{{Kind: kvcache.SlidingWindow, BlockSize: 4, Window: 7}},
	{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.SlidingWindow, BlockSize: 2, Window: 5}},
	{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.ChunkedLocal, BlockSize: 4, Chunk: 8}},
	{{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true}},
	{{Kind: kvcache.Full, BlockSize: 8}, {Kind: kvcache.Mamba, BlockSize: 8, Align: true}},
}

const longest = 40

func drawConfig(t *rapid.T) Config {
	layout := rapid.SampledFrom(layouts).Draw(t, "layout")
	c := Config{
		Policy:                    rapid.SampledFrom([]Policy{FCFS, Priority}).Draw(t, "policy"),
		MaxNumSeqs:                rapid.IntRange(1, 6).Draw(t, "seqs"),
		MaxNumBatchedTokens:       rapid.IntRange(4, 24).Draw(t, "tokens"),
		LongPrefillTokenThreshold: rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "long prefill"),
		NumSpeculativeTokens:      rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "drafts"),
		AdmitChunks:               rapid.Bool().Draw(t, "admit chunks"),
		Cache: kvcache.Config{
			NumGPUBlocks: rapid.SampledFrom([]int{6, 8, 11, 14, 18, 25, 40}).Draw(t, "blocks"), Groups: layout, MaxModelLen: longest,
			EnablePrefixCaching: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "caching"), Hash: blockhash.LE{},
			RetentionInterval: rapid.SampledFrom([]int{kvcache.Dense, 0}).Draw(t, "retention"),
			Watermark:         rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "watermark"),
		},
	}
	if rapid.IntRange(0, 3).Draw(t, "eagle") == 0 && layout[len(layout)-1].Kind != kvcache.ChunkedLocal {
		c.Cache.Eagle, c.NumLookaheadTokens = true, c.NumSpeculativeTokens
	}
	c.DisableChunkedPrefill = rapid.IntRange(0, 3).Draw(t, "whole prefills") == 0
	if c.DisableChunkedPrefill {
		c.MaxNumBatchedTokens = longest
	}
	if layout[0].BlockSize == 8 && c.Cache.EnablePrefixCaching {
		c.Cache.HashBlockSize = 4 // hits inside a block
	}
	if layout[len(layout)-1].Kind != kvcache.Mamba {
		c.ReturnDrafts = rapid.Bool().Draw(t, "return drafts")
	}
	c.Cache.MaxInFlightTokens = c.MaxNumBatchedTokens
	c.ForgetUnscheduled = true // else a hit can be on blocks that were never computed
	return c
}

// An engine is a scheduler, its worker and somebody who makes requests.
type engine struct {
	*Scheduler
	worker *worker
	ids    []ID
	step   Step
	out    Outcome
}

// arrival is later with each call: see Child.
func (e *engine) arrival() float64 { return float64(e.added) }

func (e *engine) tokensOf(id ID) []int32 { return e.requests.Get(uint64(id)).kv.Tokens() }

// one schedules, runs and updates. between may do something in the middle.
func (e *engine) one(t *rapid.T, between func()) {
	require.NoError(t, e.Schedule(&e.step))
	require.LessOrEqual(t, e.step.NumScheduledTokens, e.config.MaxNumBatchedTokens)
	require.NoError(t, e.Check())
	require.NoError(t, e.worker.run(&e.step, e.tokensOf))
	var counts, tokens []int32
	drafts := e.step.Drafts
	for _, row := range e.step.Rows {
		n := 0
		if r := e.requests.Get(uint64(row.ID)); !r.prefill {
			// Some drafts are accepted, and one more token is sampled.
			for n < row.NumDraftTokens && drafts[n] >= 0 && rapid.Bool().Draw(t, "accepted") {
				tokens = append(tokens, drafts[n])
				n++
			}
			tokens = append(tokens, rapid.Int32Range(0, 2).Draw(t, "token"))
			n++
		}
		drafts = drafts[row.NumDraftTokens:]
		counts = append(counts, int32(n))
	}
	between()
	if len(e.step.Rows) > 0 {
		require.ErrorIs(t, e.Schedule(&e.step), ErrOrder)
		require.ErrorIs(t, e.Update(counts[1:], tokens, &e.out), ErrOrder)
		require.ErrorIs(t, e.Update(counts, append(tokens, 1), &e.out), ErrRequest)
	}
	require.NoError(t, e.Update(counts, tokens, &e.out))
	for _, done := range e.out.Done {
		e.ids = slices.DeleteFunc(e.ids, func(id ID) bool { return id == done.ID })
		require.Nil(t, e.requests.Get(uint64(done.ID)))
	}
	if e.config.NumSpeculativeTokens > 0 {
		e.draft(t)
	}
}

func (e *engine) draft(t *rapid.T) {
	var counts, tokens []int32
	for range e.ids {
		n := rapid.IntRange(0, e.config.NumSpeculativeTokens).Draw(t, "drafts")
		counts = append(counts, int32(n))
		for range n {
			tokens = append(tokens, rapid.Int32Range(0, 2).Draw(t, "draft"))
		}
	}
	require.NoError(t, e.SetDrafts(e.ids, counts, tokens))
}

func (e *engine) add(t *rapid.T) {
	if len(e.ids) > 10 {
		t.Skip("enough requests")
	}
	n := rapid.SampledFrom([]int{1, 3, 8, 9, 15, 16, 17, 25}).Draw(t, "tokens")
	id, err := e.Add(Spec{
		Tokens:    rapid.SliceOfN(rapid.Int32Range(0, 1), n, n).Draw(t, "prompt"),
		MaxTokens: rapid.SampledFrom([]int{1, 4, 10, 20}).Draw(t, "max tokens"),
		MinTokens: rapid.IntRange(0, 2).Draw(t, "min tokens"),
		Stop:      rapid.SampledFrom([][]int32{nil, {2}}).Draw(t, "stop"),
		Priority:  rapid.IntRange(0, 2).Draw(t, "priority"),
		Arrival:   e.arrival(),
		NoRead:    rapid.IntRange(0, 9).Draw(t, "no read") == 0,
	})
	if err != nil {
		require.ErrorIs(t, err, ErrRequest)
		t.Skip("it would never fit")
	}
	e.ids = append(e.ids, id)
}

func (e *engine) any(t *rapid.T) ID {
	if len(e.ids) == 0 {
		t.Skip("no request")
	}
	return rapid.SampledFrom(e.ids).Draw(t, "id")
}

func (e *engine) abort(t *rapid.T) {
	id := e.any(t)
	require.Equal(t, 1, e.Abort(id, id, 0))
	e.ids = slices.DeleteFunc(e.ids, func(o ID) bool { return o == id })
}

func (e *engine) fork(t *rapid.T) {
	parent := e.any(t)
	if len(e.ids) > 10 {
		t.Skip("enough requests")
	}
	last := int32(-1)
	if r := e.requests.Get(uint64(parent)); r.kv.NumTokens() > r.kv.NumPromptTokens() && r.kv.NumComputedTokens() < r.kv.NumTokens() {
		last = rapid.Int32Range(-1, 1).Draw(t, "last")
	}
	child, err := e.Fork(parent, Child{Last: last, Arrival: e.arrival()})
	require.NoError(t, err)
	e.ids = append(e.ids, child)
}

// Ensure that the state is sound after every operation, that a worker that
// knows only the steps finds every request's own tokens in its blocks, and
// that all requests finish when no more come.
func TestSchedulerStaysSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := drawConfig(t)
		s, err := New(config)
		require.NoError(t, err)
		e := &engine{Scheduler: s, worker: newWorker(config.Cache.Groups)}
		t.Repeat(map[string]func(*rapid.T){
			"add":   e.add,
			"step":  func(t *rapid.T) { e.one(t, func() {}) },
			"steps": func(t *rapid.T) { e.one(t, func() {}); e.one(t, func() {}) },
			"abort": e.abort,
			"fork":  e.fork,
			"abort in a step": func(t *rapid.T) {
				e.one(t, func() {
					if len(e.ids) > 0 {
						e.abort(t)
					}
				})
			},
			"reset": func(t *rapid.T) {
				preempt := rapid.Bool().Draw(t, "preempt")
				ok, err := e.Reset(preempt)
				require.NoError(t, err)
				require.True(t, ok || !preempt)
			},
			"reset in a step": func(t *rapid.T) {
				e.one(t, func() {
					_, err := e.Reset(true)
					require.NoError(t, err)
				})
			},
			"pause": func(t *rapid.T) {
				e.SetPause(rapid.SampledFrom([]Pause{PauseNone, PauseNone, PauseNew, PauseAll}).Draw(t, "pause"))
			},
			"": func(t *rapid.T) { require.NoError(t, e.Check()) },
		})
		e.SetPause(PauseNone)
		for steps := 0; len(e.ids) > 0; steps++ {
			require.Less(t, steps, 2000, "%d requests do not finish", len(e.ids))
			e.one(t, func() {})
		}
		require.NoError(t, e.Check())
		require.Equal(t, config.Cache.NumGPUBlocks-1, e.Load().FreeBlocks)
	})
}
