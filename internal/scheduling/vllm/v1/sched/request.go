package sched

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/encodercache"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// ErrRequest is wrapped by errors about a request or about an ID that names no request.
var ErrRequest = kvcache.ErrRequest

// ErrOrder is wrapped by the errors of methods that must not be called in the current state of the scheduler.
var ErrOrder = errors.New("out of order")

// An ID names a request until the request has finished and its blocks are no longer in transfer. No ID is assigned
// twice, and no ID is 0.
type ID uint64

// A Spec describes a request.
type Spec struct {
	Tokens    []int32 // the prompt; copied
	MaxTokens int     // largest number of tokens to generate
	MinTokens int     // the request does not stop before it has generated this number of tokens
	Stop      []int32 // tokens after which it stops, end of sequence included; copied

	Priority int     // smaller is more important
	Arrival  float64 // smaller comes first among equal priorities; see Child.Arrival
	Name     string  // smaller comes first among equal arrivals

	Extras   blockhash.Extras
	LoRAID   int64
	IsEmbed  []byte // by token of the prompt: 0 if it belongs to an item and takes no embedding; nil: all tokens of items take one
	NoRead   bool   // lookups in the cache find nothing
	UserData uint64 // the caller's; in every row of the request

	External Match // what can be loaded
	Ask      bool  // the request is skipped until SetMatch
	Send     bool  // its blocks are kept after it has finished, until Sent

	Hold   bool // the request is skipped until Release
	Report bool // hits are recorded as events, too
}

type status uint8

const (
	waiting status = iota
	preempted
	running
	parked // finished, with blocks in transfer
)

// A request is the scheduler's state of a request. The fields for a decode come first, so they are in one or two lines
// of the processor's cache.
type request struct {
	kv       *kvcache.Request
	id       ID
	userData uint64

	// See vllm/v1/RULES.md §15. All but eligible count tokens.
	inFlight     int    // in rows of steps in flight
	placeholders int    // for tokens that steps in flight will sample
	stale        int    // number of inFlight tokens that were scheduled before the request lost its blocks or went back
	eligible     uint64 // number of the first step that may schedule it

	status    status
	prefill   bool // it has tokens to compute after its last step
	resend    Kind // Kind of the next row; KindRunning if the worker has the request's block table
	dropStale bool // tokens that stale rows sample do not count
	held      bool // it was added with Hold and not released
	encodes   bool // inputs is not nil; a step reads this flag without reading inputs

	maxTokens int
	minTokens int
	stop      []int32
	drafts    []int32

	seq      uint64 // order of Add
	priority int
	arrival  float64
	name     string
	queued   int64 // when it began to wait, in ns

	queue *queue // nil: it runs
	index int    // in this queue, unless order.less is set

	transfers transfers
	inputs    *encodercache.Request // nil: nothing to encode
	loraID    int64
}

// Add puts a request into the waiting queue.
func (s *Scheduler) Add(spec Spec) (ID, error) {
	s.mu.Lock()
	defer s.unlock()
	if err := s.checkSpec(&spec); err != nil {
		return 0, err
	}
	longest := s.cache.Config.MaxModelLen
	maxTokens := min(len(spec.Tokens)+min(spec.MaxTokens, longest)+s.config.NumLookaheadTokens+s.config.NumSpeculativeTokens, longest)
	if need, have := s.cache.Config.PeakBlocks(maxTokens, s.config.MaxConcurrentBatches), s.cache.Pool.NumBlocks()-1; need > have {
		return 0, fmt.Errorf("%w: %d tokens can take %d blocks, the pool has %d", ErrRequest, maxTokens, need, have)
	}
	inputs, err := s.encoder.newRequest(spec.Extras.Items, spec.IsEmbed)
	if err != nil {
		return 0, err
	}
	kv, err := s.cache.Add(kvcache.Spec{
		Tokens: spec.Tokens, Extras: spec.Extras, LoRAID: spec.LoRAID,
		NoRead: spec.NoRead, Report: spec.Report,
	})
	if err != nil {
		return 0, err
	}
	r := s.blank()
	r.kv, r.loraID = kv, spec.LoRAID
	r.inputs, r.encodes = inputs, inputs != nil
	r.priority, r.arrival, r.name = spec.Priority, spec.Arrival, spec.Name
	r.maxTokens, r.minTokens = spec.MaxTokens, spec.MinTokens
	r.stop = append(r.stop, spec.Stop...)
	s.enter(r)
	r.userData, r.queued = spec.UserData, now()
	r.transfers = transfers{match: spec.External, asks: spec.Ask, unanswered: spec.Ask, send: spec.Send}
	if r.held = spec.Hold; r.held {
		s.skipped.push(r)
	} else {
		s.waiting.push(r)
	}
	return r.id, nil
}

func (s *Scheduler) checkSpec(spec *Spec) error {
	longest := s.cache.Config.MaxModelLen
	switch {
	case len(spec.Tokens) == 0 || len(spec.Tokens) >= longest:
		return fmt.Errorf("%w: a prompt of %d tokens: want 1 to %d", ErrRequest, len(spec.Tokens), longest-1)
	case spec.MaxTokens < 1:
		return fmt.Errorf("%w: max_tokens is %d: want at least 1", ErrRequest, spec.MaxTokens)
	case spec.MinTokens < 0 || spec.MinTokens > spec.MaxTokens:
		return fmt.Errorf("%w: min_tokens is %d: want 0 to max_tokens, which is %d", ErrRequest, spec.MinTokens, spec.MaxTokens)
	case spec.MinTokens > longest-len(spec.Tokens):
		return fmt.Errorf("%w: min_tokens is %d after a prompt of %d: no sequence has more than %d tokens",
			ErrRequest, spec.MinTokens, len(spec.Tokens), longest)
	case spec.IsEmbed != nil && len(spec.IsEmbed) != len(spec.Tokens):
		return fmt.Errorf("%w: is_embed has %d entries, the prompt %d tokens: want as many", ErrRequest, len(spec.IsEmbed), len(spec.Tokens))
	case slices.Min(spec.Tokens) < 0:
		return fmt.Errorf("%w: the prompt has the token %d: want none negative", ErrRequest, slices.Min(spec.Tokens))
	case spec.Arrival != spec.Arrival:
		return fmt.Errorf("%w: the arrival is not a number", ErrRequest)
	}
	if err := checkItems(spec.Extras.Items, len(spec.Tokens)); err != nil {
		return err
	}
	return s.config.Connector.checkSpec(spec)
}

// checkItems returns an error unless the items are in order and inside a prompt of n tokens.
func checkItems(items []blockhash.Item, n int) error {
	for i, item := range items {
		if item.Offset > n || item.Length > n-item.Offset {
			return fmt.Errorf("%w: item %d has %d tokens from %d on, the prompt has %d", ErrRequest, i, item.Length, item.Offset, n)
		}
	}
	if err := (&blockhash.Extras{Items: items}).Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

func (s *Scheduler) enter(r *request) {
	s.added++
	r.seq = s.added
	r.id = ID(s.requests.Add(r))
	r.kv.Tag = uint64(r.id)
}

func (s *Scheduler) blank() *request {
	if n := len(s.spare) - 1; n >= 0 {
		r := s.spare[n]
		s.spare[n] = nil
		s.spare = s.spare[:n]
		return r
	}
	return &request{}
}

func (s *Scheduler) discard(r *request) {
	*r = request{stop: kvcache.Emptied(r.stop), drafts: kvcache.Emptied(r.drafts)}
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, r)
	}
}

const maxSpare = 256

// reserveTokens allocates arrays for the next tokens of r when r begins to run, so that few of its later steps allocate
// memory.
func (s *Scheduler) reserveTokens(r *request) {
	const next = 1 << 12
	maxTokens := r.kv.NumPromptTokens + min(r.maxTokens, s.longest) + s.config.NumLookaheadTokens + s.config.NumSpeculativeTokens
	r.kv.Reserve(min(maxTokens, s.longest, r.kv.NumTokens()+next))
}

// Abort ends the requests and returns how many it has ended. It skips IDs of requests that have finished.
func (s *Scheduler) Abort(ids ...ID) int {
	s.mu.Lock()
	defer s.unlock()
	n := 0
	for _, id := range ids {
		r := s.live(id)
		if r == nil {
			continue
		}
		n++
		if s.connector != nil {
			s.connector.aborted(r)
		}
		if r.status == running {
			if fresh := r.inFlight - r.stale; fresh > 0 { // rows in flight may never be computed
				s.evictFrom(r, r.kv.NumComputedTokens-fresh)
			}
			s.removeRunning(r)
		} else {
			r.queue.remove(r)
		}
		s.finish(r)
	}
	return n
}

func (s *Scheduler) removeRunning(r *request) {
	i := slices.Index(s.running, r)
	s.running = slices.Delete(s.running, i, i+1)
}

// Release allows requests that were added with Hold to run. It skips IDs of requests that have finished.
func (s *Scheduler) Release(ids ...ID) {
	s.mu.Lock()
	defer s.unlock()
	for _, id := range ids {
		if r := s.live(id); r != nil {
			r.held = false
		}
	}
}

// live returns a request that has not finished, or nil.
func (s *Scheduler) live(id ID) *request {
	r := s.requests.Get(uint64(id))
	if r == nil || r.status == parked {
		return nil
	}
	return r
}

// finish ends r, which waits no more. The caller removes r from s.running.
func (s *Scheduler) finish(r *request) {
	s.finished = append(s.finished, r.id)
	s.extensions.released(r)
	if s.connector == nil || !s.connector.keeps(r) {
		s.drop(r)
	}
}

func (s *Scheduler) drop(r *request) {
	s.release(r, kvcache.Drop)
	s.requests.Remove(uint64(r.id))
	s.discard(r)
}

// stopped reports whether r ends with its last token, and why it ends (vllm/v1/RULES.md §14).
func (s *Scheduler) stopped(r *request) (Reason, bool) {
	tokens := r.kv.Tokens()
	output := len(tokens) - r.kv.NumPromptTokens
	switch {
	case output < r.minTokens:
		return 0, false
	case len(r.stop) > 0 && slices.Contains(r.stop, tokens[len(tokens)-1]):
		return StopToken, true
	case len(tokens) >= s.longest || output >= r.maxTokens:
		return Length, true
	}
	return 0, false
}

// Reason is why a request has finished.
type Reason uint8

const (
	StopToken Reason = iota + 1
	Length
)
