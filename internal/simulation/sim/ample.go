package sim

import (
	"fmt"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/workload"
)

// startAmple creates the scheduler of a run with Config.Ample. It returns ErrAmple if the settings of the run exclude
// this scheduler.
func (r *run) startAmple() (err error) {
	c := &r.config
	if !r.kind.ample || c.Decoding.Samples > 1 || c.Decoding.Drafts > 0 || c.Observe != nil || c.Server.Events {
		return fmt.Errorf("%w: not with %s and these settings", ErrAmple, r.kind.Name)
	}
	r.ample, err = newAmpleScheduler(c.Server)
	return err
}

// addAmple adds a request to the scheduler of a run with Config.Ample. i is the request's index in the table.
func (r *run) addAmple(i int32, incoming *workload.Request) error {
	if workload.Common(incoming) > 0 && r.config.Server.readsTokens(r.kind) {
		return fmt.Errorf("%w: requests share a prefix", ErrAmple)
	}
	return r.ample.add(i, incoming.Prompt, incoming.Output)
}

func (r *run) iterateAmple() error {
	s := &r.step
	if err := r.ample.next(s); err != nil {
		return fmt.Errorf("%s at %.3f s: %w", r.kind.Name, r.now, err)
	}
	w := cost.Work{Seqs: s.Decodes, Context: s.Context}
	for _, p := range s.Prefills {
		r.requests.setResident(&r.requests.all[p.ID], true)
		w.Prompt += p.Tokens
		w.PromptContext += pairs(p.Start+p.Tokens) - pairs(p.Start)
		if p.Last {
			w.Seqs++
		}
	}
	r.r.Prompted += w.Prompt
	blocks, tokens := r.ample.usage()
	r.requests.emptySlots = blocks*r.config.Server.BlockSize - tokens
	seconds := r.config.Cost.Iteration(r.r.Iterations, w)
	r.r.Iterations++
	r.measure(seconds)
	r.now += seconds
	r.r.Generated += w.Seqs
	for _, p := range s.Prefills {
		if q := &r.requests.all[p.ID]; p.Last {
			q.first = r.now
			if r.config.First != nil {
				r.config.First(int(q.index), r.delivered())
			}
		}
	}
	r.ended = r.ample.finish(r.ended[:0])
	for _, i := range r.ended {
		r.answer(i)
	}
	return nil
}

func (r *run) usage() serve.Usage {
	if r.ample == nil {
		return r.scheduler.Usage()
	}
	used, _ := r.ample.usage()
	return serve.Usage{Blocks: r.config.Server.NumGPUBlocks, Used: used, Logical: used}
}
