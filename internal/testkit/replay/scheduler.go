package replay

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

type schedulerPlayer struct {
	watcher
	sched *sched.Scheduler
	ids   map[string]sched.ID
	names map[sched.ID]string

	step    sched.Step
	outcome sched.Outcome
	counts  []int32
	tokens  []int32
	drafted []sched.ID
}

func newSchedulerPlayer(c *Config, hash blockhash.Function) *schedulerPlayer {
	config := sched.Config{
		AsVLLM: true,
		Cache:  cacheConfig(c, hash),
		Limits: sched.Limits{
			MaxNumSeqs:                c.MaxSeqs,
			MaxNumBatchedTokens:       c.MaxTokens,
			LongPrefillTokenThreshold: c.LongPrefill,
			DisableChunkedPrefill:     !orTrue(c.Chunked),
			AdmitChunks:               !orTrue(c.ReserveFull),
		},
		Speculation: sched.Speculation{NumSpeculativeTokens: c.Spec},
	}
	if c.Eagle {
		config.NumLookaheadTokens = c.Spec // unlike n-grams, a draft model needs slots for keys and values
	}
	config.Policy = oneOf("there is no policy", c.Policy, "fcfs or priority", map[string]sched.Policy{"fcfs": sched.FCFS, "priority": sched.Priority})
	s := mustGet(sched.New(config))
	p := &schedulerPlayer{sched: s, ids: map[string]sched.ID{}, names: map[sched.ID]string{}}
	p.config = c
	s.Monitor.Inspect(func(cache *kvcache.Cache) { p.pool = cache.Pool })
	return p
}

func (p *schedulerPlayer) play(op *Op, r result) {
	if op.Name != "step" {
		unknown(op, "a scheduler")
	}
	p.arrive(op, r)
	must(p.sched.Schedule(&p.step))
	p.stepFields(r)
	p.update(op)
	p.afterFields(r)
	p.draft(op)
}

func (p *schedulerPlayer) arrive(op *Op, r result) {
	for i := range op.Add {
		a := &op.Add[i]
		id, err := p.sched.Add(sched.Spec{
			Tokens: a.Tokens, MaxTokens: a.Max, Priority: a.Priority, Arrival: a.Arrival, Name: a.ID,
		})
		if err != nil {
			must(fmt.Errorf("add %q: %w", a.ID, err))
		}
		p.ids[a.ID] = id
		p.names[id] = a.ID
	}
	for _, name := range op.Abort {
		if id, ok := p.ids[name]; ok {
			p.sched.Abort(id)
		}
	}
	if op.Reset > 0 {
		r["reset"] = mustGet(p.sched.Reset(op.Reset == 2))
	}
}

// update passes the recorded tokens to the scheduler. Each request that has tokens must be part of the step.
func (p *schedulerPlayer) update(op *Op) {
	p.counts, p.tokens = p.counts[:0], p.tokens[:0]
	used := 0
	for i := range p.step.Rows {
		tokens, ok := op.Sample[p.names[p.step.Rows[i].ID]]
		if ok {
			used++
		}
		p.counts = append(p.counts, int32(len(tokens)))
		p.tokens = append(p.tokens, tokens...)
	}
	if used != len(op.Sample) {
		must(errors.New("tokens are sampled for a request that is not in the step"))
	}
	must(p.sched.Update(p.counts, p.tokens, &p.outcome))
}

func (p *schedulerPlayer) draft(op *Op) {
	p.drafted, p.counts, p.tokens = p.drafted[:0], p.counts[:0], p.tokens[:0]
	for name, tokens := range op.Draft {
		p.drafted = append(p.drafted, p.ids[name])
		p.counts = append(p.counts, int32(len(tokens)))
		p.tokens = append(p.tokens, tokens...)
	}
	must(p.sched.SetDrafts(p.drafted, p.counts, p.tokens))
}

func (p *schedulerPlayer) stepFields(r result) {
	tokens, fresh, running, resumed, drafts := []row{}, []row{}, []row{}, []row{}, map[string][]int32{}
	offset := 0
	for i := range p.step.Rows {
		q := &p.step.Rows[i]
		name := p.names[q.ID]
		tokens = append(tokens, row{name, q.NumScheduledTokens})
		switch q.Kind {
		case sched.KindNew:
			fresh = append(fresh, row{name, q.NumComputedTokens, p.blocks(i)})
		case sched.KindResumed:
			resumed = append(resumed, row{name, q.NumComputedTokens, 1, p.blocks(i)})
		case sched.KindRunning:
			running = append(running, row{name, q.NumComputedTokens, 0, p.blocksOrNull(i)})
		}
		if q.NumDraftTokens > 0 {
			drafts[name] = slices.Clone(p.step.Drafts[offset : offset+q.NumDraftTokens])
		}
		offset += q.NumDraftTokens
	}
	r["tok"], r["new"], r["cached"], r["spec"] = tokens, fresh, append(running, resumed...), drafts
	r["preempted"], r["finished_prev"] = p.sorted(p.step.Preempted), p.sorted(p.step.Finished)
	r["common"] = slices.Clone(p.step.NumCommonPrefixBlocks)
	r["running"], r["waiting"] = p.named(p.sched.Monitor.Running(nil)), p.named(p.sched.Monitor.Waiting(nil))
	if len(p.step.Copies) > 0 {
		copies := []row{}
		for _, c := range p.step.Copies {
			copies = append(copies, row{c.Src, c.Dst})
		}
		r["cow"] = copies
	}
}

func (p *schedulerPlayer) blocks(i int) [][]int32 {
	groups := [][]int32{}
	for g := range p.step.Slots {
		groups = append(groups, append([]int32{}, p.step.RowBlocks(i, g)...))
	}
	return groups
}

func (p *schedulerPlayer) blocksOrNull(i int) any {
	groups := p.blocks(i)
	if slices.ContainsFunc(groups, func(ids []int32) bool { return len(ids) > 0 }) {
		return groups
	}
	return nil
}

func (p *schedulerPlayer) afterFields(r result) {
	done := []sched.ID{}
	for _, d := range p.outcome.Done {
		done = append(done, d.ID)
	}
	ids := p.sched.Monitor.Running(nil)
	computed := []int{}
	for _, id := range ids {
		n, _, err := p.sched.Monitor.NumComputedTokens(id)
		must(err)
		computed = append(computed, n)
	}
	r["done"], r["run2"], r["comp"] = p.sorted(done), p.named(ids), computed
}

func (p *schedulerPlayer) named(ids []sched.ID) []string {
	names := []string{}
	for _, id := range ids {
		names = append(names, p.names[id])
	}
	return names
}

func (p *schedulerPlayer) sorted(ids []sched.ID) []string {
	names := p.named(ids)
	slices.Sort(names)
	return names
}
