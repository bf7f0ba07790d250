package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/testkit/rapidtest"
)

func anyConfig(t *rapid.T) *Scheduler {
	small := func(name string, limit int) int { return rapid.IntRange(0, limit).Draw(t, name) }
	group := rapid.Custom(func(t *rapid.T) kvcache.Group {
		g := kvcache.Group{
			Kind:      kvcache.Kind(rapid.IntRange(0, 3).Draw(t, "kind")),
			BlockSize: rapid.SampledFrom([]int{1, 2, 3, 4, 8}).Draw(t, "block"),
			Eagle:     rapid.IntRange(0, 3).Draw(t, "group eagle") == 0,
		}
		switch g.Kind {
		case kvcache.SlidingWindow:
			g.Window, g.Retained = rapid.IntRange(0, 9).Draw(t, "window"), rapid.IntRange(0, 3).Draw(t, "retained")
		case kvcache.ChunkedLocal:
			g.Chunk = rapid.IntRange(0, 9).Draw(t, "chunk")
		case kvcache.Mamba:
			g.NumSpeculativeBlocks, g.Align = rapid.IntRange(0, 2).Draw(t, "speculative"), rapid.Bool().Draw(t, "align")
		}
		return g
	})
	c := Config{
		Policy: Policy(small("policy", 1)),
		Limits: Limits{
			MaxNumSeqs:                small("seqs", 5),
			MaxNumBatchedTokens:       small("batch", 20),
			LongPrefillTokenThreshold: small("threshold", 6),
			DisableChunkedPrefill:     small("whole", 4) == 0,
			AdmitChunks:               rapid.Bool().Draw(t, "admit chunks"),
		},
		Speculation: Speculation{
			NumLookaheadTokens:   small("lookahead", 6),
			NumSpeculativeTokens: small("drafts", 6),
			ReturnDrafts:         rapid.Bool().Draw(t, "return drafts"),
		},
		Connector: rapid.SampledFrom(connectors).Draw(t, "connector"),
		AsVLLM:    rapid.Bool().Draw(t, "as vllm"),
		Batches: Batches{
			AsyncScheduling:      rapid.Bool().Draw(t, "async"),
			PipelineParallelSize: small("stages", 3),
			MaxConcurrentBatches: small("batches", 4),
		},
		ZeroNewBlocks: rapid.Bool().Draw(t, "zero"),
		MaxLoRAs:      small("adapters", 2),
		Encoder:       Encoder{EncoderCacheSize: rapid.SampledFrom([]int{0, 4, 12}).Draw(t, "encoder")},
		Cache: kvcache.Config{
			NumGPUBlocks: small("blocks", 30), Groups: rapid.SliceOfN(group, 1, 3).Draw(t, "groups"), MaxModelLen: 1 + small("longest", 40),
			EnablePrefixCaching: rapid.Bool().Draw(t, "caching"), Hash: blockhash.LE{}, EnableEvents: true,
			MaxInFlightTokens: small("in flight", 40), Watermark: rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "watermark"),
			RetentionInterval: rapid.SampledFrom([]int{-1, 0, 4, 8, 24}).Draw(t, "retention"), Eagle: rapid.Bool().Draw(t, "eagle"),
		},
	}
	if c.DisableChunkedPrefill {
		c.MaxNumBatchedTokens = c.Cache.MaxModelLen
	}
	s, err := New(c)
	if err != nil {
		require.ErrorIs(t, err, ErrConfig)
		t.Skip("not allowed")
	}
	return s
}

// anyItems draws multimodal items, which may be invalid: they may be outside the prompt, have no or a negative length,
// or be out of order.
func anyItems(t *rapid.T) (e blockhash.Extras) {
	for range rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "items") {
		e.Items = append(e.Items, blockhash.Item{
			Identifier: rapid.SampledFrom([]string{"cat", "dog"}).Draw(t, "of"),
			Offset:     rapid.OneOf(rapid.IntRange(-2, 10), rapid.Int()).Draw(t, "offset"), Length: rapid.OneOf(rapid.IntRange(-2, 6), rapid.Int()).Draw(t, "length"),
		})
	}
	return e
}

// Ensure that no sequence of calls panics or makes the state inconsistent, for any configuration and
// any arguments.
func TestNoSequenceOfCallsPanics(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := anyConfig(t)
		var step Step
		var out Outcome
		var ids []ID
		any := func(t *rapid.T) ID {
			if len(ids) == 0 {
				t.Skip("no request")
			}
			return rapid.SampledFrom(ids).Draw(t, "id")
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if s.Monitor.Load().Running+s.Monitor.Load().Waiting > 8 {
					t.Skip("enough")
				}
				id, err := s.Add(Spec{
					Tokens:    rapid.OneOf(rapid.SliceOfN(rapid.Int32Range(0, 1), 0, 40), rapid.SliceOfN(rapid.Int32Range(0, 1), 8, 8)).Draw(t, "prompt"),
					MaxTokens: rapid.IntRange(-1, 50).Draw(t, "most"), MinTokens: rapid.IntRange(-1, 50).Draw(t, "least"),
					Stop: []int32{2}, Priority: rapid.IntRange(-1, 1).Draw(t, "priority"), Hold: rapid.IntRange(0, 5).Draw(t, "hold") == 0,
					External: Match{rapid.IntRange(-1, 20).Draw(t, "match"), rapid.Bool().Draw(t, "async")},
					Ask:      rapid.IntRange(0, 5).Draw(t, "ask") == 0, Send: rapid.IntRange(0, 5).Draw(t, "send") == 0,
					Extras: anyItems(t), LoRAID: rapid.Int64Range(-1, 2).Draw(t, "adapter"),
					IsEmbed: rapid.SampledFrom([][]byte{nil, nil, {}, {1, 0, 1, 0}, make([]byte, 8), slices.Repeat([]byte{1}, 8)}).Draw(t, "is embed"),
				})
				if err == nil {
					ids = append(ids, id)
				}
			},
			"schedule": func(*rapid.T) { _ = s.Schedule(&step) },
			"steps": func(t *rapid.T) {
				for range 20 {
					_ = s.Schedule(&step)
					if s.flight.n == 0 {
						return
					}
					var counts, tokens []int32
					for _, e := range s.flight.batches[0].rows {
						n := int32(0)
						if e.samples {
							n = 1
						}
						counts, tokens = append(counts, n), append(tokens, make([]int32, n)...)
					}
					require.NoError(t, s.Update(counts, tokens, &out))
				}
			},
			"update": func(t *rapid.T) {
				if s.flight.n == 0 {
					t.Skip("no step")
				}
				var counts, tokens []int32
				for _, e := range s.flight.batches[0].rows {
					n := 0
					if e.samples {
						n = rapid.IntRange(0, 1+int(e.drafts)).Draw(t, "count")
					}
					counts = append(counts, int32(n))
					for range n {
						tokens = append(tokens, rapid.Int32Range(0, 2).Draw(t, "token"))
					}
				}
				require.NoError(t, s.Update(counts, tokens, &out))
			},
			"nonsense": func(t *rapid.T) {
				counts := rapid.SliceOfN(rapid.Int32Range(-1, 3), 0, 4).Draw(t, "counts")
				_ = s.Update(counts, rapid.SliceOfN(rapid.Int32Range(-1, 3), 0, 4).Draw(t, "tokens"), &out)
			},
			"fail":    func(*rapid.T) { _ = s.StepFailed() },
			"abort":   func(t *rapid.T) { s.Abort(any(t)) },
			"release": func(t *rapid.T) { s.Release(any(t)) },
			"fork": func(t *rapid.T) {
				if s.Monitor.Load().Running+s.Monitor.Load().Waiting > 8 {
					t.Skip("enough")
				}
				if id, err := s.Fork(any(t), Child{Last: rapid.Int32Range(-1, 2).Draw(t, "last")}); err == nil {
					ids = append(ids, id)
				}
			},
			"drafts": func(t *rapid.T) {
				n := rapid.Int32Range(0, 6).Draw(t, "drafts")
				_ = s.SetDrafts([]ID{any(t)}, []int32{n}, make([]int32, n))
			},
			"match": func(t *rapid.T) {
				_ = s.Transfers.SetMatch(any(t), Match{rapid.IntRange(-1, 20).Draw(t, "match"), rapid.Bool().Draw(t, "async")})
			},
			"received": func(t *rapid.T) { _ = s.Transfers.Received(any(t)) },
			"sent":     func(t *rapid.T) { _ = s.Transfers.Sent(any(t)) },
			"load failed": func(t *rapid.T) {
				_ = s.Transfers.LoadFailed(new(FailedLoad), rapid.SliceOfN(rapid.Int32Range(-1, 30), 0, 6).Draw(t, "blocks")...)
			},
			"reset encoder": func(*rapid.T) { _ = s.ResetEncoderCache() },
			"pause":         func(t *rapid.T) { s.SetPause(Pause(rapid.IntRange(0, 2).Draw(t, "pause"))) },
			"preempt all":   func(*rapid.T) { _, _ = s.Reset(true) },
			"reset":         func(t *rapid.T) { _, _ = s.Reset(rapid.Bool().Draw(t, "preempt")) },
			"":              func(t *rapid.T) { require.NoError(t, s.Check()) },
		})
	})
}
