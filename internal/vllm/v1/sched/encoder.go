package sched

import (
	"fmt"
	"slices"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/encodercache"
)

// An EncoderInput is a multimodal item to encode in a step, before its rows are
// computed.
type EncoderInput struct {
	ID       ID
	UserData uint64
	Row      int // of its request in the step
	Item     int // index in Spec.Extras.Items
}

// EncoderUsage is how many embeddings of EncoderCacheSize are taken.
type EncoderUsage struct {
	Taken      int // by outputs that the worker keeps
	Referenced int // of Taken: by outputs that requests still read
}

// encoder is what a scheduler knows of a multimodal model's encoder
// (vllm/v1/RULES.md §20). cache is nil without one.
type encoder struct {
	cache  *encodercache.Cache
	ahead  int // tokens that the draft model reads past the computed ones: 1 for EAGLE
	budget int // embeddings that this step may still compute

	// Of the request that is being scheduled.
	planned []int // items to encode
	left    int   // budget after them

	// Of the step that is being scheduled.
	blocked bool // some request waits for room or budget

	// yielded is set when a running request preempts itself, until a running request has a row. While
	// running requests wait for room, none is admitted then: it would preempt itself again.
	yielded bool
}

func (e *encoder) init(c *Config) {
	if c.Cache.Eagle {
		e.ahead = 1
	}
	for i := range c.Cache.Groups {
		if c.Cache.Groups[i].Eagle {
			e.ahead = 1
		}
	}
	if c.EncoderCacheSize > 0 {
		e.cache = encodercache.New(c.EncoderCacheSize)
	}
}

// newEncoderRequest is nil if nothing of a request is to be encoded.
func (s *Scheduler) newEncoderRequest(items []blockhash.Item, isEmbed []byte) (*encodercache.Request, error) {
	if s.encoder.cache == nil || len(items) == 0 {
		return nil, nil
	}
	inputs := make([]encodercache.Input, len(items))
	for i, item := range items {
		in := &inputs[i]
		*in = encodercache.Input{Hash: item.Identifier, Offset: item.Offset, Length: item.Length, NumEmbeds: item.Length}
		if isEmbed != nil {
			in.Mask(isEmbed)
		}
		if err := s.checkInput(inputs[:i+1]); err != nil {
			return nil, err
		}
	}
	return encodercache.NewRequest(inputs), nil
}

// checkInput refuses the last of inputs if its request could wait for it for ever:
// those that are needed together with it must fit into the cache and into a step.
func (s *Scheduler) checkInput(inputs []encodercache.Input) error {
	last := &inputs[len(inputs)-1]
	together := map[string]int{}
	for i := range inputs {
		if in := &inputs[i]; i == len(inputs)-1 || in.Offset+in.Length > last.Offset-2*s.encoder.ahead {
			together[in.Hash] = in.NumEmbeds
		}
	}
	sum := 0
	for _, n := range together {
		sum += n
	}
	if most := min(s.config.EncoderCacheSize, s.config.MaxNumEncoderInputTokens); sum > most {
		return fmt.Errorf("%w: item %d needs %d embeddings at once, the encoder has room for %d (the smaller of its cache and its budget of a step)",
			ErrRequest, len(inputs)-1, sum, most)
	}
	chunk := s.config.MaxNumBatchedTokens
	if t := s.config.LongPrefillTokenThreshold; t > 0 {
		chunk = min(chunk, t)
	}
	if s.config.DisableChunkedMMInput && last.Length+s.encoder.ahead > chunk {
		return fmt.Errorf("%w: item %d has %d tokens, a step takes %d of one request, and items may not be divided",
			ErrRequest, len(inputs)-1, last.Length, chunk-s.encoder.ahead)
	}
	return nil
}

// encode plans which items of r are encoded so that n tokens after the computed ones can run,
// and returns how many can (vLLM: _try_schedule_encoder_inputs): an item must be
// whole before its first token is computed, so an item for which there is no room
// or budget ends the chunk before it.
func (s *Scheduler) encode(r *request, computed, n int) int {
	e := &s.encoder
	e.planned, e.left = e.planned[:0], e.budget
	if n <= 0 {
		return n
	}
	end := computed + n + e.ahead
	inputs, sum := r.inputs.Inputs(), 0
	lo, hi := r.inputs.Window(computed, end)
	for i := lo; i < hi; i++ {
		in := &inputs[i]
		same := func(k int) bool { return inputs[k].Hash == in.Hash }
		if slices.ContainsFunc(e.planned, same) || e.cache.Use(r.inputs, i) {
			continue
		}
		if s.config.DisableChunkedMMInput && computed < in.Offset && computed+n < in.Offset+in.Length {
			return max(in.Offset-computed-e.ahead, 0)
		}
		if in.NumEmbeds > e.left || !e.cache.Reserve(r.inputs, i, sum) {
			e.blocked = true
			return max(in.Offset-computed-e.ahead, 0)
		}
		if in.Embeds(computed, end) == 0 {
			continue // only text between its embeddings
		}
		e.planned = append(e.planned, i)
		sum += in.NumEmbeds
		e.left -= in.NumEmbeds
	}
	return n
}

// encodePlanned puts the items that encode has planned for r into the step.
func (s *Scheduler) encodePlanned(r *request) {
	e, b := &s.encoder, s.batch
	for _, i := range e.planned {
		e.cache.Allocate(r.inputs, i, b.seq)
		b.encode = append(b.encode, encodeEntry{r, i})
	}
	e.budget = e.left
}

// encodeEntry is an item in a batch.
type encodeEntry struct {
	r    *request
	item int
}

// unscheduleEncoder takes the items of r out of the batch, and reports whether an output
// is gone on which others may have counted. Outputs that other rows of the batch read are encoded
// for them. vLLM keeps the entries of all, so later requests read what nobody
// has computed.
func (s *Scheduler) unscheduleEncoder(r *request) (gone bool) {
	if !r.encodes {
		return false
	}
	b, e := s.batch, &s.encoder
	b.encode = slices.DeleteFunc(b.encode, func(x encodeEntry) bool {
		if x.r != r {
			return false
		}
		if s.config.AsVLLM || !s.encodeForOther(r, x.item) {
			e.budget += r.inputs.Inputs()[x.item].NumEmbeds
		}
		return true
	})
	if s.config.AsVLLM {
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

// encodeForOther notes who else in the batch reads the output of an item of r.
func (s *Scheduler) encodeForOther(r *request, item int) bool {
	b := s.batch
	for i := range b.rows {
		if o := b.rows[i].r; o != r && o.encodes {
			if own, ok := o.inputs.Shares(r.inputs, item); ok {
				b.moved = append(b.moved, encodeEntry{o, own})
				return true
			}
		}
	}
	b.dropped = append(b.dropped, item)
	return false
}

// freeInputs ends what r, which is gone or waits, has to do with encoder outputs.
func (s *Scheduler) freeInputs(r *request) {
	if r.encodes {
		s.encoder.cache.Free(r.inputs)
	}
}

// refindInputs is freeInputs for a request that goes back to earlier tokens: it must
// not keep later outputs while it waits for room for earlier ones.
func (s *Scheduler) refindInputs(r *request) {
	if !s.config.AsVLLM {
		s.freeInputs(r)
	}
}

// freePassedInputs does so for the items that r has computed, and that no rejected
// draft and no draft model reads again.
func (s *Scheduler) freePassedInputs(r *request) {
	if r.encodes {
		s.encoder.cache.FreePassed(r.inputs, r.kv.NumComputedTokens()-r.placeholders-s.encoder.ahead)
	}
}

// freeBlockedInputs preempts one request if nothing could be scheduled because
// requests hold outputs and wait for room for more, and reports whether it did.
// In vLLM they wait for ever.
func (s *Scheduler) freeBlockedInputs() bool {
	if !s.encoder.blocked || s.flight.n > 0 || s.pause == PauseAll || len(s.running) < 2 {
		return false
	}
	victim := s.victim()
	r := s.running[victim]
	s.running = slices.Delete(s.running, victim, victim+1)
	s.preempt(r)
	return true
}

// writeEncoder says in a step what to encode, and which outputs are needed no more.
func (s *Scheduler) writeEncoder(step *Step) {
	b := s.batch
	if s.encoder.cache == nil {
		return
	}
	for _, x := range b.encode {
		row := slices.IndexFunc(b.rows, func(e entry) bool { return e.r == x.r })
		step.EncoderInputs = append(step.EncoderInputs, EncoderInput{x.r.id, x.r.userData, row, x.item})
	}
	b.evicted = s.encoder.cache.TakeEvicted(b.evicted)
	step.FreedEncoderOutputs = append(step.FreedEncoderOutputs, b.evicted...)
}

// ResetEncoderCache forgets all outputs of the encoder, because its weights have changed,
// say. The worker must drop them, too. No step may be in flight.
func (s *Scheduler) ResetEncoderCache() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight.n > 0 {
		return fmt.Errorf("%w: reset of the encoder cache with %d steps in flight", ErrOrder, s.flight.n)
	}
	if s.encoder.cache != nil {
		s.encoder.cache.Reset()
	}
	return nil
}
