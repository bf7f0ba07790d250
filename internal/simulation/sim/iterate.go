package sim

import (
	"fmt"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/cost"
)

func (r *run) iterate() error {
	seconds, err := r.begin()
	if err != nil {
		return err
	}
	r.now += seconds
	return r.end()
}

func (r *run) begin() (seconds float64, err error) {
	if err := r.scheduler.Step(&r.iter); err != nil {
		return 0, fmt.Errorf("%s at %.3f s: %w", r.kind.Name, r.now, err)
	}
	if r.observer != nil {
		if err := r.observer.Observe(r.now, &r.iter); err != nil {
			return 0, err
		}
	}
	if r.iter.Idle() {
		return 0, fmt.Errorf("%w: %d prompts wait forever in %s at %.3f s", ErrStuck, r.requests.live, r.kind.Name, r.now)
	}
	for _, id := range r.iter.Ignored {
		r.drop(int32(id))
	}
	seconds = r.config.Cost.Iteration(r.r.Iterations, r.work())
	if r.drafts != nil && len(r.iter.Decodes) > 0 {
		seconds += r.config.Decoding.DraftTime
	}
	r.r.Iterations++
	r.measure(seconds)
	return seconds, nil
}

func (r *run) end() error {
	if err := r.generate(); err != nil {
		return err
	}
	if r.beams != nil {
		if err := r.refork(); err != nil {
			return err
		}
	}
	return r.finish()
}

// work returns the work of the iteration r.iter for the cost model. It also updates which requests have memory, the
// lengths of requests and the counts of the result.
func (r *run) work() cost.Work {
	iter := &r.iter
	var w cost.Work
	for _, p := range iter.Preempted {
		r.requests.setResident(&r.requests.all[p.ID], false)
		if p.Swapped {
			r.r.Swapped++
		} else {
			r.r.Recomputed++
		}
	}
	for i := range iter.Prefills {
		p := &iter.Prefills[i]
		q := &r.requests.all[p.ID]
		end := p.Start + p.Tokens
		r.requests.setResident(q, true)
		r.requests.setLength(q, min(end, q.prompt+q.output))
		computed := p.Tokens - p.Cached
		w.Prompt += computed
		w.PromptContext += pairs(end) - pairs(end-computed)
		r.r.Hits += p.Cached
		if p.Last {
			w.Seqs += p.Seqs
		}
	}
	r.r.Prompted += w.Prompt
	for i := range iter.Decodes {
		d := &iter.Decodes[i]
		q := &r.requests.all[d.ID]
		r.requests.setResident(q, true)
		r.requests.setLength(q, min(d.Context, q.prompt+q.output))
		w.Seqs += d.Seqs
		w.Context += d.Context * d.Seqs
		w.Prompt += d.Drafts
		w.PromptContext += pairs(d.Context+d.Drafts) - pairs(d.Context)
	}
	w.SwapBlocks = len(iter.SwapOut) + len(iter.SwapIn)
	w.Swaps = w.SwapBlocks // vLLM transfers each block separately, even if they are adjacent
	w.CopyBlocks = len(iter.Copies) + len(r.reforks.Copies)
	r.reforks.Copies = r.reforks.Copies[:0]
	r.r.SwapBlocks += w.SwapBlocks
	r.r.CopyBlocks += w.CopyBlocks
	return w
}

// pairs returns the number of tokens to which the first n tokens of a sequence attend, summed over these n tokens.
func pairs(n int) int64 { return int64(n) * int64(n+1) / 2 }

func (r *run) measure(seconds float64) {
	w, l := &r.window, &r.requests
	if !w.contains(r.now) {
		return
	}
	a := &w.sum
	a.Iterations++
	a.Milli += seconds
	a.Requests += float64(l.requests)
	a.Sequences += float64(l.sequences)
	a.Waiting += float64(l.live - l.requests)
	slots := float64(r.config.Server.NumGPUBlocks * r.config.Server.BlockSize)
	switch r.kind.Memory {
	case Reserved:
		a.Tokens += float64(l.tokens) / slots
		a.Reservation += float64(l.reserved) / slots
		a.Internal += float64(l.neverUsed) / slots
	case Paged:
		u := r.usage()
		used := u.Used * r.config.Server.BlockSize
		empty := min(l.emptySlots, used)
		a.Tokens += float64(used-empty) / slots
		a.Internal += float64(empty) / slots
		if u.Used > 0 {
			w.sharing += float64(u.Logical) / float64(u.Used)
			w.shared++
		}
	}
}

// generate collects the complete requests in r.done.
func (r *run) generate() error {
	r.done = r.done[:0]
	before := r.r.Generated
	for i := range r.iter.Prefills {
		if p := &r.iter.Prefills[i]; p.Last {
			r.token(p.ID, 1)
		}
	}
	for i := range r.iter.Decodes {
		d := &r.iter.Decodes[i]
		n := 1
		if d.Drafts > 0 {
			n += r.accepted(d)
		}
		r.token(d.ID, n)
	}
	return r.checkProgress(r.r.Generated > before || len(r.iter.Ignored) > 0)
}

// checkProgress returns an error if too many iterations in a row generated no token. This happens if requests
// preempt each other forever: in V0 with chunked prompts, two requests may have all blocks and each need one
// more (scheduling/vllm/v0/RULES.md §8). The limit allows prompts that are computed one token at a time.
func (r *run) checkProgress(progress bool) error {
	if r.stepsWithoutToken++; progress {
		r.stepsWithoutToken = 0
	}
	if r.stepsWithoutToken > 4*(r.config.Server.MaxModelLen+1024) {
		return fmt.Errorf("%w: %d prompts take memory from each other forever in %s at %.3f s: %d iterations without a "+
			"token; give it more blocks",
			ErrStuck, r.requests.live, r.kind.Name, r.now, r.stepsWithoutToken)
	}
	return nil
}

// accepted draws how many draft tokens of a decode are right, at most as many as the answer still needs.
func (r *run) accepted(d *serve.Decode) int {
	q := &r.requests.all[d.ID]
	n := 0
	for n < d.Drafts && q.generated+1+n < q.output && r.rng.Float64() < r.config.Decoding.Accept {
		n++
	}
	if n > 0 {
		if err := r.drafts.Generated(d.ID, n+1); err != nil {
			panic("sim: " + err.Error()) // impossible: the request is in the step
		}
	}
	return n
}

func (r *run) token(id, n int) {
	q := &r.requests.all[id]
	if q.generated == 0 {
		q.first = r.now
		if r.config.First != nil {
			r.config.First(int(q.index), r.delivered())
		}
	}
	q.generated += n
	r.r.Generated += n * q.seqs
	if q.generated == q.output {
		r.done = append(r.done, id)
	}
}

// finish removes the requests that the scheduler reports as answered.
func (r *run) finish() error {
	if len(r.done) == 0 {
		return nil
	}
	var err error
	if r.answered, err = r.scheduler.Finish(r.answered[:0], r.done...); err != nil {
		return err
	}
	for _, id := range r.answered {
		r.answer(int32(id))
	}
	if r.observer != nil {
		return r.observer.Finished(r.now, r.answered...)
	}
	return nil
}

// answer removes the request at index i, which the scheduler has finished. If it is the last request of its
// group, answer counts the group as answered or dropped.
func (r *run) answer(i int32) {
	q := r.requests.all[i]
	dropped := r.requests.all[q.group].dropped
	if !r.requests.remove(i) {
		return
	}
	if dropped {
		r.dropped(&q)
		return
	}
	r.notify(q.session)
	r.r.Answered++
	r.latencies.Add(r.depart(&q, true))
}

func (r *run) dropped(q *request) {
	r.notify(0)
	r.r.Dropped++
	r.depart(q, false)
}

// notify tells the clients that a request has left. session is the request's session, or 0 if no turn may follow.
// notify does nothing in a Replica, which has no clients.
func (r *run) notify(session int64) {
	if r.clients != nil {
		r.clients.Answered(session, r.delivered(), r.requests.live)
	}
}

// delivered returns the time at which clients receive the tokens of the last iteration. Cost.FirstToken is the
// server's time outside iterations. It delays all tokens of an answer equally.
func (r *run) delivered() float64 { return r.now + r.config.Cost.FirstToken() }

// drop removes the request at index i, which is too large for the scheduler to run.
func (r *run) drop(i int32) {
	r.requests.all[r.requests.all[i].group].dropped = true
	q := r.requests.all[i]
	if r.requests.remove(i) {
		r.dropped(&q)
	}
}

func (r *run) depart(q *request, answered bool) Departure {
	d := Departure{Index: int(q.index), Session: q.session, Arrival: q.arrival,
		First: q.first + r.config.Cost.FirstToken(), Done: r.delivered(), Output: q.output, Answered: answered}
	if r.config.Departed != nil {
		r.config.Departed(d)
	}
	return d
}
