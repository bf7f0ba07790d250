package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipeline calls a scheduler as vLLM's engine core does: it schedules until maxInFlight steps are in flight, and
// then updates the oldest step.
type pipeline struct {
	t           *testing.T
	s           *Scheduler
	maxInFlight int
	accept      func(step, row, drafts int) int
	flights     []*flying
	empties     bool // vLLM's engine queues empty steps, too
	view        map[ID]*runnerView
	positions   map[int32]int // position of each sampled token
	emitted     map[ID][]int32
	kept        map[ID][]int32
	next        int32
	step        int
	total       int // scheduled tokens
	stale       int // preemptions of requests with rows in flight
}

type runnerView struct{ length, computed int }

func newPipeline(t *testing.T, c Config) *pipeline {
	s := newSmall(t, c)
	return &pipeline{
		t: t, s: s, maxInFlight: s.config.MaxConcurrentBatches, view: map[ID]*runnerView{}, positions: map[int32]int{},
		emitted: map[ID][]int32{}, kept: map[ID][]int32{}, next: 1000, accept: func(int, int, int) int { return 0 },
	}
}

func (p *pipeline) schedule() *flying {
	f := &flying{known: map[ID][]int32{}}
	require.NoError(p.t, p.s.Schedule(&f.step))
	require.NoError(p.t, p.s.Check())
	p.total += f.step.NumScheduledTokens
	p.step++
	for _, id := range f.step.Preempted {
		if p.s.requests.Get(uint64(id)).stale > 0 {
			p.stale++
		}
	}
	for _, row := range f.step.Rows {
		f.known[row.ID] = slices.Clone(p.s.requests.Get(uint64(row.ID)).kv.Tokens())
	}
	if len(f.step.Rows) > 0 || p.empties {
		p.flights = append(p.flights, f)
	}
	return f
}

func (p *pipeline) begin(f *flying) {
	for _, id := range slices.Concat(f.step.Preempted, f.step.Finished) {
		delete(p.view, id)
	}
	for _, row := range f.step.Rows {
		if row.Kind != KindRunning {
			p.view[row.ID] = &runnerView{len(f.known[row.ID]), row.NumComputedTokens}
		}
	}
}

func (p *pipeline) process() Outcome {
	f := p.flights[0]
	p.flights = p.flights[1:]
	p.begin(f)
	if len(f.step.Rows) == 0 {
		return Outcome{}
	}
	var counts, tokens []int32
	for i, row := range f.step.Rows {
		v := p.view[row.ID]
		if v == nil || v.computed+row.NumScheduledTokens < v.length {
			if v != nil {
				v.computed += row.NumScheduledTokens
			}
			counts = append(counts, 0)
			continue
		}
		accepted := min(p.accept(p.step, i, row.NumDraftTokens), row.NumDraftTokens)
		v.computed += row.NumScheduledTokens - (row.NumDraftTokens - accepted)
		v.length = v.computed + 1
		for k := range 1 + accepted {
			p.positions[p.next] = v.length - 1 - accepted + k
			tokens = append(tokens, p.next)
			p.emitted[row.ID] = append(p.emitted[row.ID], p.next)
			p.next++
		}
		counts = append(counts, int32(1+accepted))
	}
	var out Outcome
	lengths := map[ID]int{}
	for _, row := range f.step.Rows {
		if r := p.s.requests.Get(uint64(row.ID)); r != nil {
			lengths[row.ID] = r.kv.NumTokens()
		}
	}
	require.NoError(p.t, p.s.Update(counts, tokens, &out))
	require.NoError(p.t, p.s.Check())
	rest := tokens
	for i, row := range f.step.Rows {
		for k, token := range rest[:out.Kept[i]] {
			require.Equal(p.t, lengths[row.ID]+k, p.positions[token], "a token is delivered for the position it was sampled for")
			p.kept[row.ID] = append(p.kept[row.ID], token)
		}
		rest = rest[counts[i]:]
	}
	return out
}

func (p *pipeline) run(beforeStep func(step int)) {
	for i := 0; ; i++ {
		require.Less(p.t, i, 2000, "the engine does not end")
		if beforeStep != nil {
			beforeStep(i)
		}
		if p.s.requests.Len() == 0 && len(p.flights) == 0 {
			return
		}
		if p.s.requests.Len() > 0 && len(p.flights) < p.maxInFlight {
			p.empties = true
			if p.schedule(); len(p.flights) < p.maxInFlight {
				continue
			}
		}
		if len(p.flights) > 0 {
			p.process()
		}
	}
}
