package replay

import (
	"fmt"
	"strconv"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v0"
)

// v0Scheduler plays the recordings of vLLM V0's scheduler. It generates tokens in place of the model: a request is
// finished when it has the recorded number of tokens.
type v0Scheduler struct {
	s         *v0.Scheduler
	it        serve.Iteration
	remaining map[int]int // tokens to generate, by request
}

func newV0Scheduler(c *Init) (*v0Scheduler, error) {
	config := v0.SchedulerConfig{
		Manager:             v0Config(c),
		MaxNumBatchedTokens: c.MaxTokens, MaxNumSeqs: c.MaxSeqs, MaxModelLen: c.MaxLen, Chunked: c.Chunked,
	}
	if c.Mode != nil {
		mode, ok := map[string]v0.Mode{"swap": v0.Swap, "recompute": v0.Recompute}[*c.Mode]
		if !ok {
			return nil, fmt.Errorf("the preemption mode is %q: want swap, recompute or null", *c.Mode)
		}
		config.Mode = mode
	}
	s, err := v0.NewScheduler(config)
	if err != nil {
		return nil, err
	}
	return &v0Scheduler{s: s, remaining: map[int]int{}}, c.sameWatermark(s.Manager().View.Watermark())
}

func (p *v0Scheduler) free() any {
	return []int{p.s.Manager().View.FreeGPU(), p.s.Manager().View.FreeCPU()}
}

func (p *v0Scheduler) check() error { return p.s.Check() }

func (p *v0Scheduler) play(op *Op, r result) error {
	switch op.Name {
	case "add":
		id, err := strconv.Atoi(string(op.ID))
		if err != nil {
			return err
		}
		p.remaining[id] = op.Output
		return p.s.Add(serve.Request{ID: id, Prompt: op.Prompt})
	case "step":
		return p.step(r)
	}
	return fmt.Errorf("there is no operation %q in a recording of V0's scheduler", op.Name)
}

func (p *v0Scheduler) step(r result) error {
	if err := p.s.Step(&p.it); err != nil {
		return err
	}
	if err := p.s.Check(); err != nil {
		return err
	}
	tables := map[int][]int32{}
	prefill, decode := []row{}, []int{}
	for _, q := range p.it.Prefills {
		prefill = append(prefill, row{q.ID, q.Tokens})
		tables[q.ID] = tableOf(p.s.Table(q.ID))
		p.generate(q.ID, q.Last)
	}
	for _, q := range p.it.Decodes {
		decode = append(decode, q.ID)
		tables[q.ID] = tableOf(p.s.Table(q.ID))
		p.generate(q.ID, true)
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
	if _, err := p.s.Finish(nil, finished...); err != nil {
		return err
	}
	r["finished"], r["free_after"] = finished, p.free()
	return nil
}

// generate counts a generated token of a request.
func (p *v0Scheduler) generate(id int, token bool) {
	if token {
		p.remaining[id]--
	}
}
