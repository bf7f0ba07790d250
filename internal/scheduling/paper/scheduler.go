package paper

import (
	"fmt"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
)

// Limits are the limits of an iteration. The authors' artifact allows 256 sequences, and 2,560 tokens
// (vllm/v0/RULES.md §10).
type Limits struct {
	MaxNumBatchedTokens int // tokens of prompts, and one for each decoding sequence

	// MaxNumSeqs limits admission, and swapping in, as in vLLM 0.1.1 (its issue 257). The number of running requests
	// plus the number of sequences of the next request must be at most MaxNumSeqs. A running request counts as one even
	// if it has several sequences, so more than MaxNumSeqs sequences can run at the same time.
	MaxNumSeqs int
}

// A Scheduler is the artifact's scheduler, for the paper's system and for Orca. Prompts and decodes
// run in one iteration (vllm/v0/RULES.md §10). It implements serve.GroupScheduler.
type Scheduler struct {
	limits   Limits
	memory   memory
	growing  growing // memory, or nil if it does not implement growing
	cached   int     // tokens in them
	requests reqtable.Table[request]

	waiting, running, swapped *reqtable.Queue    // by arrival, except joined
	queues                    [3]*reqtable.Queue // in the order in which memory is freed

	joined   []int32 // requests that the last Step has added at the end of running
	admitted []int32 // requests that the current Step has admitted
	arrivals uint64
	steps    uint64
}

type request struct {
	Group
	id        int
	output    int
	prompt    int
	arrival   uint64
	preempted uint64 // number of the step that preempted it last
	chunks    []Chunk
}

// memory is the part in which the two systems differ.
type memory interface {
	accept(q *request) error  // returns an error if the request cannot be added
	possible(q *request) bool // reports whether the request could be admitted to an empty memory
	canAdmit(q *request) bool
	admit(q *request) error
	free(q *request, sequence int)
	refork(it *serve.Iteration, q *request, child, parent int) error
	table(q *request, sequence int) []int32
	counts() (gpu, cpu []int32)
	usage() serve.Usage
	check(s *Scheduler) error
}

// growing is implemented by a memory from which requests take blocks while they run, and preempt each other when no
// blocks are free. Orca reserves all blocks at admission, so its memory does not implement growing.
type growing interface {
	canAppend(q *request) bool // one token for each sequence
	append(it *serve.Iteration, q *request) error
	preempt(it *serve.Iteration, q *request) (swapped bool, err error)
	canSwapIn(q *request) bool
	canEverSwapIn(q *request) bool
	swapIn(it *serve.Iteration, q *request) error
}

var _ serve.GroupScheduler = (*Scheduler)(nil)

func newScheduler(limits Limits, m memory) (*Scheduler, error) {
	if limits.MaxNumBatchedTokens < 1 || limits.MaxNumSeqs < 1 {
		return nil, fmt.Errorf("%w: at most %d tokens and %d sequences in an iteration: want at least 1", ErrConfig, limits.MaxNumBatchedTokens, limits.MaxNumSeqs)
	}
	s := &Scheduler{limits: limits, memory: m}
	s.growing, _ = m.(growing)
	s.waiting, s.running, s.swapped = s.requests.Queue(), s.requests.Queue(), s.requests.Queue()
	s.queues = [...]*reqtable.Queue{s.running, s.swapped, s.waiting}
	return s, nil
}

// Add implements serve.Scheduler.
func (s *Scheduler) Add(r serve.Request) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	n := max(1, r.Seqs)
	if r.Prompt < 1 || r.Prompt > s.limits.MaxNumBatchedTokens || n > s.limits.MaxNumSeqs {
		return fmt.Errorf("%w %d: a prompt of %d tokens for %d sequences: an iteration has at most %d and %d",
			serve.ErrRequest, r.ID, r.Prompt, n, s.limits.MaxNumBatchedTokens, s.limits.MaxNumSeqs)
	}
	index := s.requests.Add(r.ID)
	if index == reqtable.None {
		return fmt.Errorf("%w %d: there is one with this id", serve.ErrRequest, r.ID)
	}
	q := s.requests.At(index)
	q.begin(r, n)
	q.arrival = s.arrivals
	if err := s.memory.accept(q); err != nil {
		s.requests.Remove(r.ID)
		return fmt.Errorf("%w %d: %w", serve.ErrRequest, r.ID, err)
	}
	s.arrivals++
	s.waiting.PushBack(index)
	return nil
}

// begin makes q a new request with n sequences. It reuses the arrays in q.
func (q *request) begin(r serve.Request, n int) {
	seqs, chunks := q.Seqs[:0], q.chunks[:0]
	for range n {
		seqs = append(seqs, Seq{Len: r.Prompt})
	}
	*q = request{Group: Group{Seqs: seqs}, id: r.ID, prompt: r.Prompt, output: r.Output, chunks: chunks}
}

func (q *request) length() int { return q.Seqs[0].Len }

// Step implements serve.Scheduler. Its error wraps ErrNoFreeBlocks if a request must be swapped out but does not fit on
// the CPU. (The artifact ends in this case.) After an error the model must not run. Every request is in a queue, and
// the iteration lists the preemptions, swaps and copies from before the error.
func (s *Scheduler) Step(it *serve.Iteration) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	it.Reset()
	s.steps++
	s.resort()
	s.admitted = s.admitted[:0]
	err := s.runRunning(it)
	if err == nil && len(it.SwapOut) == 0 {
		err = s.swapIn(it)
	}
	if err != nil {
		return err
	}
	for index := range s.running.All() {
		it.Tokens += s.requests.At(index).running()
	}
	if s.swapped.Len() == 0 {
		if err := s.admit(it); err != nil {
			return err
		}
	}
	s.batch(it)
	return nil
}

func (s *Scheduler) resort() {
	for _, index := range s.joined {
		if s.running.Has(index) {
			s.running.Remove(index)
			s.insert(s.running, index)
		}
	}
	s.joined = s.joined[:0]
}

// runRunning makes sure, in the order of arrival, that each sequence of the running requests can write its next token.
// If too few blocks are free, it preempts the requests that arrived last.
func (s *Scheduler) runRunning(it *serve.Iteration) error {
	if s.growing == nil {
		return nil
	}
	for index := s.running.Head(); index != reqtable.None; {
		q := s.requests.At(index)
		for !s.growing.canAppend(q) {
			victim := s.running.Tail()
			if err := s.preempt(it, victim); err != nil {
				return err
			}
			if victim == index {
				return nil
			}
		}
		if err := s.growing.append(it, q); err != nil {
			return err
		}
		index = s.running.Next(index)
	}
	return nil
}

// preempt frees or swaps out the blocks of a running request, and inserts the request into the waiting or the swapped
// queue by its time of arrival.
func (s *Scheduler) preempt(it *serve.Iteration, index int32) error {
	q := s.requests.At(index)
	swapped, err := s.growing.preempt(it, q)
	if err != nil {
		return fmt.Errorf("request %d: %w", q.id, err)
	}
	q.preempted = s.steps
	s.running.Remove(index)
	queue := s.waiting
	if swapped {
		queue = s.swapped
	}
	s.insert(queue, index)
	it.Preempted = append(it.Preempted, serve.Preemption{ID: q.id, Swapped: swapped})
	return nil
}

// insert adds a request to a queue, which is sorted by arrival. It searches from the head, because a preempted request
// has arrived before most waiting ones.
func (s *Scheduler) insert(q *reqtable.Queue, index int32) {
	prev := reqtable.None
	for next := range q.All() {
		if s.requests.At(next).arrival > s.requests.At(index).arrival {
			break
		}
		prev = next
	}
	q.InsertAfter(index, prev)
}

func (s *Scheduler) swapIn(it *serve.Iteration) error {
	for index := s.swapped.Head(); index != reqtable.None; index = s.swapped.Head() {
		q := s.requests.At(index)
		if !s.growing.canSwapIn(q) {
			if s.growing.canEverSwapIn(q) {
				return nil
			}
			s.swapped.Remove(index)
			s.ignore(it, index)
			continue
		}
		if s.running.Len()+q.running() > s.limits.MaxNumSeqs {
			return nil
		}
		if err := s.growing.swapIn(it, q); err != nil {
			return err
		}
		s.swapped.Remove(index)
		s.running.PushBack(index)
		s.joined = append(s.joined, index)
		if err := s.growing.append(it, q); err != nil {
			return err
		}
	}
	return nil
}

// admit admits waiting requests in the order of arrival, as long as they fit into the memory and the limits. It stops
// at a request that this step has preempted.
func (s *Scheduler) admit(it *serve.Iteration) error {
	for index := s.waiting.Head(); index != reqtable.None; index = s.waiting.Head() {
		q := s.requests.At(index)
		if q.preempted == s.steps {
			return nil
		}
		if !s.memory.possible(q) || q.length() > s.limits.MaxNumBatchedTokens {
			s.waiting.Remove(index)
			s.ignore(it, index)
			continue
		}
		if !s.memory.canAdmit(q) || it.Tokens+q.length()-s.cached > s.limits.MaxNumBatchedTokens || s.running.Len()+q.running() > s.limits.MaxNumSeqs {
			return nil
		}
		if err := s.memory.admit(q); err != nil {
			return err
		}
		s.waiting.Remove(index)
		s.running.PushBack(index)
		it.Tokens += q.length() - s.cached
		s.admitted = append(s.admitted, index)
		s.joined = append(s.joined, index)
	}
	return nil
}

// ignore drops a request that can never run. The request must be in no queue. The artifact would let it wait for ever.
func (s *Scheduler) ignore(it *serve.Iteration, index int32) {
	it.Ignored = append(it.Ignored, s.requests.At(index).id)
	s.forget(index)
}

func (s *Scheduler) batch(it *serve.Iteration) {
	for _, index := range s.admitted {
		q := s.requests.At(index)
		it.Prefills = append(it.Prefills, serve.Prefill{ID: q.id, Tokens: q.length(), Cached: s.cached, Seqs: q.running(), Last: true})
		q.grow()
	}
	remaining := s.running.Len() - len(s.admitted) // the admitted are at the end
	for index := s.running.Head(); remaining > 0; index = s.running.Next(index) {
		q := s.requests.At(index)
		it.Decodes = append(it.Decodes, serve.Decode{ID: q.id, Context: q.length(), Seqs: q.running()})
		q.grow()
		remaining--
	}
}

func (q *request) grow() {
	for i := range q.Seqs {
		q.Seqs[i].Len++
	}
}
