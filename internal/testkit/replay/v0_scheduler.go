package replay

import (
	"strconv"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v0"
)

// v0Scheduler plays the steps of V0's scheduler without a model. A request finishes after the number of tokens that
// was recorded.
type v0Scheduler struct {
	s         *v0.Scheduler
	it        serve.Iteration
	remaining map[int]int // tokens to generate, by request
}

func newV0Scheduler(c *Init) *v0Scheduler {
	config := v0.SchedulerConfig{
		Manager:             v0Config(c),
		MaxNumBatchedTokens: c.MaxTokens, MaxNumSeqs: c.MaxSeqs, MaxModelLen: c.MaxLen, Chunked: c.Chunked,
	}
	if c.Mode != nil {
		config.Mode = oneOf("the preemption mode is", *c.Mode, "swap, recompute or null",
			map[string]v0.Mode{"swap": v0.Swap, "recompute": v0.Recompute})
	}
	s := mustGet(v0.NewScheduler(config))
	c.compareWatermark(s.Manager().View.Watermark())
	return &v0Scheduler{s: s, remaining: map[int]int{}}
}

func (p *v0Scheduler) free() any {
	return []int{p.s.Manager().View.FreeGPU(), p.s.Manager().View.FreeCPU()}
}

func (p *v0Scheduler) check() error { return p.s.Check() }

func (p *v0Scheduler) play(op *Op, r result) {
	switch op.Name {
	case "add":
		id := mustGet(strconv.Atoi(string(op.ID)))
		p.remaining[id] = op.Output
		must(p.s.Add(serve.Request{ID: id, Prompt: op.Prompt}))
	case "step":
		p.step(r)
	default:
		unknown(op, "V0's scheduler")
	}
}

func (p *v0Scheduler) step(r result) {
	must(p.s.Step(&p.it))
	must(p.s.Check())
	tables := map[int][]int32{}
	prefill, decode := []row{}, []int{}
	for _, q := range p.it.Prefills {
		prefill = append(prefill, row{q.ID, q.Tokens})
		tables[q.ID] = tableOf(p.s.Table(q.ID))
		if q.Last {
			p.remaining[q.ID]--
		}
	}
	for _, q := range p.it.Decodes {
		decode = append(decode, q.ID)
		tables[q.ID] = tableOf(p.s.Table(q.ID))
		p.remaining[q.ID]--
	}
	r["prefill"], r["decode"], r["tables"] = prefill, decode, tables
	r["num_batched_tokens"], r["preempted"] = p.it.Tokens, len(p.it.Preempted)
	r["swap_in"], r["swap_out"], r["copy"] = mapping(p.it.SwapIn), mapping(p.it.SwapOut), mapping(p.it.Copies)
	r["ignored"] = append([]int{}, p.it.Ignored...)
	waiting, running, swapped := p.s.Queues()
	r["waiting"], r["running"], r["swapped"] = waiting, running, swapped
	r["free"] = p.free()
	finished := []int{}
	for _, id := range running {
		if p.remaining[id] <= 0 {
			finished = append(finished, id)
		}
	}
	mustGet(p.s.Finish(nil, finished...))
	r["finished"], r["free_after"] = finished, p.free()
}
