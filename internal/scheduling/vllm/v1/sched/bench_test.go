package sched

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

const (
	decoderPrompt = 512
	decoderOutput = 2048
)

type decoder struct {
	t         testing.TB
	s         *Scheduler
	running   int
	lookahead int // steps that are scheduled before the oldest is updated
	flying    int // number of steps in flight
	step      Step
	out       Outcome
	counts    []int32
	tokens    []int32
	remaining int // steps until the requests are at their end
}

func newDecoder(t testing.TB, running, lookahead int) *decoder {
	s, err := New(Config{
		Limits:  Limits{MaxNumSeqs: running, MaxNumBatchedTokens: running * decoderPrompt},
		Batches: Batches{AsyncScheduling: lookahead > 0},
		Cache: kvcache.Config{
			NumGPUBlocks: running*(decoderPrompt+decoderOutput)/16 + 1,
			Groups:       []kvcache.Group{{Kind: kvcache.Full, BlockSize: 16}}, EnablePrefixCaching: true,
			Hash: blockhash.LE{}, MaxModelLen: decoderPrompt + decoderOutput,
		},
	})
	require.NoError(t, err)
	d := &decoder{t: t, s: s, running: running, lookahead: lookahead, tokens: make([]int32, running)}
	for range running {
		d.counts = append(d.counts, 1)
	}
	d.refill()
	return d
}

func (d *decoder) refill() {
	d.s.Abort(d.s.Monitor.Running(nil)...)
	for ; d.flying > 0; d.flying-- {
		require.NoError(d.t, d.s.Update(d.counts, d.tokens, &d.out))
	}
	for i := range d.running {
		prompt := make([]int32, decoderPrompt)
		for j := range prompt {
			prompt[j] = int32(i*7919+j*31) & 0xffff
		}
		_, err := d.s.Add(Spec{Tokens: prompt, MaxTokens: decoderOutput})
		require.NoError(d.t, err)
	}
	d.remaining = decoderOutput - 2 - d.lookahead
	for range d.lookahead {
		d.schedule()
	}
	d.one()
}

func (d *decoder) one() {
	d.schedule()
	for i := range d.tokens {
		d.tokens[i] = int32(d.remaining + i)
	}
	if err := d.s.Update(d.counts, d.tokens, &d.out); err != nil {
		d.t.Fatal(err)
	}
	d.flying--
	d.remaining--
}

func (d *decoder) schedule() {
	if err := d.s.Schedule(&d.step); err != nil {
		d.t.Fatal(err)
	}
	if len(d.step.Rows) != d.running {
		d.t.Fatalf("%d of %d requests run", len(d.step.Rows), d.running)
	}
	d.flying++
}

func BenchmarkStep(b *testing.B) {
	for _, c := range []struct{ running, lookahead int }{{16, 0}, {64, 0}, {256, 0}, {256, 1}, {1024, 0}} {
		b.Run(fmt.Sprintf("running=%d/ahead=%d", c.running, c.lookahead), func(b *testing.B) {
			d := newDecoder(b, c.running, c.lookahead)
			b.ReportAllocs()
			for b.Loop() {
				if d.remaining <= 0 {
					b.StopTimer()
					d.refill()
					b.StartTimer()
				}
				d.one()
			}
		})
	}
}

func TestASteadyStepAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	for _, lookahead := range []int{0, 1} {
		d := newDecoder(t, 64, lookahead)
		require.Zero(t, testing.AllocsPerRun(500, d.one))
	}
}
