package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/encodercache"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// An EncoderInput is a multimodal item that the worker must encode before it computes the rows of a step.
type EncoderInput struct {
	ID       ID
	UserData uint64
	Row      int // of its request in the step
	Item     int // index in Spec.Extras.Items
}

// EncoderUsage counts embeddings in the cache of the encoder.
type EncoderUsage struct {
	Taken      int // of outputs that the worker keeps
	Referenced int // those of outputs that requests will read
}

// encoder plans when a multimodal model's encoder runs (vllm/v1/RULES.md §20).
type encoder struct {
	noExtension
	s         *Scheduler
	cache     *encodercache.Cache
	lookahead int // tokens that the draft model reads after the computed ones: 1 for EAGLE
	budget    int // embeddings that this step may still compute

	// Of the request that is being scheduled.
	planned   []int // items to encode
	remaining int   // budget after encoding them

	blocked bool // some request of this step waits for space or budget

	// gaveUp says that a running request has preempted itself, and no running request has got a row since. While gaveUp
	// is true and running requests are blocked, no request is admitted. Otherwise the preempted request would be
	// admitted and preempt itself again.
	gaveUp bool
}

// readsAhead reports whether there is a draft model (EAGLE). Such a model also reads the token after the last computed
// token.
func (c *Config) readsAhead() bool {
	return c.Cache.Eagle || slices.ContainsFunc(c.Cache.Groups, func(g kvcache.Group) bool { return g.Eagle })
}

func (e *encoder) startPass() { e.budget, e.blocked = e.s.config.MaxNumEncoderInputTokens, false }

func (e *encoder) startAdmission() bool {
	if len(e.s.batch.rows) > 0 {
		e.gaveUp = false
	}
	return !e.gaveUp || !e.blocked
}

// yielded is called when a running request has preempted itself.
func (e *encoder) yielded() { e.gaveUp = e.s.differs.encoder }

// newRequest returns nil for a request with nothing to encode.
func (e *encoder) newRequest(items []blockhash.Item, isEmbed []byte) (*encodercache.Request, error) {
	if e == nil || len(items) == 0 {
		return nil, nil
	}
	inputs := make([]encodercache.Input, len(items))
	for i, item := range items {
		input := &inputs[i]
		*input = encodercache.Input{Hash: item.Identifier, Offset: item.Offset, Length: item.Length, NumEmbeds: item.Length}
		if isEmbed != nil {
			input.Mask(isEmbed)
		}
		if err := e.checkInput(inputs[:i+1]); err != nil {
			return nil, err
		}
	}
	return encodercache.NewRequest(inputs), nil
}

// checkInput returns an error if the last of the inputs can never be encoded. Together with the earlier inputs needed
// at the same time, it must fit into the cache and into the budget of a step.
func (e *encoder) checkInput(inputs []encodercache.Input) error {
	c := &e.s.config
	last := &inputs[len(inputs)-1]
	together := map[string]int{}
	for i := range inputs {
		if input := &inputs[i]; i == len(inputs)-1 || input.Offset+input.Length > last.Offset-2*e.lookahead {
			together[input.Hash] = input.NumEmbeds
		}
	}
	sum := 0
	for _, n := range together {
		sum += n
	}
	if limit := min(c.EncoderCacheSize, c.MaxNumEncoderInputTokens); sum > limit {
		return fmt.Errorf("%w: item %d needs %d embeddings at once, the encoder takes %d (the smaller of its cache and its budget of a step)",
			ErrRequest, len(inputs)-1, sum, limit)
	}
	chunk := c.MaxNumBatchedTokens
	if t := c.LongPrefillTokenThreshold; t > 0 {
		chunk = min(chunk, t)
	}
	if c.DisableChunkedMMInput && last.Length+e.lookahead > chunk {
		return fmt.Errorf("%w: item %d has %d tokens, a step takes %d of one request, and items may not be divided",
			ErrRequest, len(inputs)-1, last.Length, chunk-e.lookahead)
	}
	return nil
}

// clip plans which items of r to encode in a chunk of n tokens after the computed ones, and returns the length of the
// chunk. If there is no space or budget for an item, the chunk ends before this item (vLLM:
// _try_schedule_encoder_inputs).
func (e *encoder) clip(r *request, computed, n int) int {
	e.planned, e.remaining = e.planned[:0], e.budget
	if n <= 0 || !r.encodes {
		return n
	}
	end := computed + n + e.lookahead
	inputs, sum := r.inputs.Inputs(), 0
	lo, hi := r.inputs.Window(computed, end)
	for i := lo; i < hi; i++ {
		input := &inputs[i]
		sameHash := func(k int) bool { return inputs[k].Hash == input.Hash }
		if slices.ContainsFunc(e.planned, sameHash) || e.cache.Use(r.inputs, i) {
			continue
		}
		if e.s.config.DisableChunkedMMInput && computed < input.Offset && computed+n < input.Offset+input.Length {
			return max(input.Offset-computed-e.lookahead, 0)
		}
		if input.NumEmbeds > e.remaining || !e.cache.Reserve(r.inputs, i, sum) {
			e.blocked = true
			return max(input.Offset-computed-e.lookahead, 0)
		}
		if input.Embeds(computed, end) == 0 {
			continue // only text between its embeddings
		}
		e.planned = append(e.planned, i)
		sum += input.NumEmbeds
		e.remaining -= input.NumEmbeds
	}
	return n
}

func (e *encoder) scheduled(r *request) {
	b := e.s.batch
	for _, i := range e.planned {
		e.cache.Allocate(r.inputs, i, b.seq)
		b.encode = append(b.encode, encodeEntry{r, i})
	}
	e.budget = e.remaining
}

// encodeEntry is an item in a batch.
type encodeEntry struct {
	r    *request
	item int
}

// unscheduled is called when r has lost its row. It removes the encoder inputs of r from the batch, and returns their
// embeddings to the budget. With Config.AsVLLM it does nothing else. Otherwise, if another row of the batch reads the
// same item, the item is encoded for that row instead, and the budget does not change. If no other row reads it,
// unscheduled removes the item's output from the cache.
//
// unscheduled returns true if it has removed an output from the cache. r was preempted to free blocks for another
// request, which has no row yet. The caller must plan the chunk of that request again, because the chunk may need the
// removed output. (vLLM does not remove outputs, so later requests read outputs that were never computed.)
func (e *encoder) unscheduled(r *request) (gone bool) {
	if !r.encodes {
		return false
	}
	b := e.s.batch
	b.encode = slices.DeleteFunc(b.encode, func(x encodeEntry) bool {
		if x.r != r {
			return false
		}
		if !e.s.differs.encoder || !e.encodeForOther(r, x.item) {
			e.budget += r.inputs.Inputs()[x.item].NumEmbeds
		}
		return true
	})
	if !e.s.differs.encoder {
		return false
	}
	b.encode = append(b.encode, b.moved...)
	gone = len(b.dropped) > 0
	for _, i := range b.dropped {
		e.cache.Forget(r.inputs, i)
	}
	b.moved, b.dropped = b.moved[:0], b.dropped[:0]
	return gone
}

// encodeForOther reports whether the batch has a row of another request o with the same item, so that o reads the
// same encoder output. If so, it adds o and the item to moved. Otherwise it adds the item to dropped.
func (e *encoder) encodeForOther(r *request, item int) bool {
	b := e.s.batch
	for i := range b.rows {
		if o := b.rows[i].r; o != r && o.encodes {
			if otherItem, ok := o.inputs.Shares(r.inputs, item); ok {
				b.moved = append(b.moved, encodeEntry{o, otherItem})
				return true
			}
		}
	}
	b.dropped = append(b.dropped, item)
	return false
}

func (e *encoder) released(r *request) {
	if r.encodes {
		e.cache.Free(r.inputs)
	}
}

// wentBack removes r's references to encoder outputs after r went back to earlier tokens. r must not keep the outputs
// of later items while it waits for space for earlier ones. With Config.AsVLLM it does nothing.
func (e *encoder) wentBack(r *request) {
	if r.encodes && e.s.differs.encoder {
		e.released(r)
	}
}

// computed removes the references of r to outputs that r and its draft model will not read again, even if drafts are
// rejected.
func (e *encoder) computed(r *request) {
	if r.encodes {
		e.cache.FreePassed(r.inputs, r.kv.NumComputedTokens-r.placeholders-e.lookahead)
	}
}

// unblock preempts one request if no row could be scheduled because the running requests keep outputs and wait for
// space for other outputs.
func (e *encoder) unblock() bool {
	s := e.s
	if !e.blocked || s.flight.n > 0 || s.pause == PauseAll || len(s.running) < 2 {
		return false
	}
	victim := s.order.victim(s)
	r := s.running[victim]
	s.running = slices.Delete(s.running, victim, victim+1)
	s.preempt(r)
	return true
}

func (e *encoder) write(step *Step) {
	b := e.s.batch
	for _, x := range b.encode {
		row := slices.IndexFunc(b.rows, func(e entry) bool { return e.r == x.r })
		step.EncoderInputs = append(step.EncoderInputs, EncoderInput{x.r.id, x.r.userData, row, x.item})
	}
	b.evicted = e.cache.TakeEvicted(b.evicted)
	step.FreedEncoderOutputs = append(step.FreedEncoderOutputs, b.evicted...)
}

// failed removes the outputs that the failed steps should have computed. The failed steps also told the worker to drop
// outputs. The next step lists these outputs again, because the worker may not have dropped them.
func (e *encoder) failed(batches []*batch) {
	e.cache.EvictSince(batches[len(batches)-1].seq)
	for _, b := range batches {
		e.cache.Evicted(b.evicted)
	}
}

func (e *encoder) check() error { return e.cache.Check() }

// ResetEncoderCache removes all outputs of the encoder, for example because its weights have changed. The worker must
// drop all outputs, too. No step may be in flight.
func (s *Scheduler) ResetEncoderCache() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight.n > 0 {
		return fmt.Errorf("%w: reset of the encoder cache with %d steps in flight", ErrOrder, s.flight.n)
	}
	if s.encoder != nil {
		s.encoder.cache.Reset()
	}
	return nil
}
