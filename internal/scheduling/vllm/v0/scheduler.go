package v0

import (
	"fmt"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
)

// A Mode says what happens to the blocks of a preempted request.
type Mode uint8

const (
	// Recompute frees the blocks. vLLM's default for requests with one sequence is Recompute. Here every request
	// has one sequence, because v0.6.4 splits a request for n samples into n requests.
	Recompute Mode = iota
	Swap           // moves them to the CPU
)

// SchedulerConfig describes a Scheduler. Prefix caching cannot be combined with Swap, and cannot be combined with
// Chunked. With Chunked, vLLM would treat all blocks of a prompt as computed after the first chunk.
type SchedulerConfig struct {
	Manager             Config
	MaxNumBatchedTokens int // in an iteration
	MaxNumSeqs          int // running at once
	MaxModelLen         int // tokens of a sequence
	Mode                Mode
	Chunked             bool // compute long prompts in chunks, after the decodes
}

func (c *SchedulerConfig) check() error {
	if c.MaxNumBatchedTokens < 1 || c.MaxNumSeqs < 1 || c.MaxModelLen < 1 {
		return fmt.Errorf("%w: at most %d tokens and %d sequences in an iteration, sequences of %d tokens: want at least 1",
			ErrConfig, c.MaxNumBatchedTokens, c.MaxNumSeqs, c.MaxModelLen)
	}
	if c.Mode > Swap {
		return fmt.Errorf("%w: preemption mode %d", ErrConfig, c.Mode)
	}
	if c.Manager.EnablePrefixCaching && (c.Mode == Swap || c.Chunked) {
		return fmt.Errorf("%w: prefix caching goes with neither swapping nor chunked prefill", ErrConfig)
	}
	return nil
}

// A Scheduler is V0's scheduler with the FCFS policy (vllm/v0/RULES.md §8). It implements serve.Scheduler.
type Scheduler struct {
	config   SchedulerConfig
	manager  *Manager
	requests reqtable.Table[request]

	waiting, running, swapped *reqtable.Queue
	queues                    [3]*reqtable.Queue // in the order in which blocks are freed

	lost []*Seq // requests that were ignored while they were swapped out; vLLM never frees their blocks
	now  float64
	step step
}

type request struct {
	Seq
	id       int
	computed int
	decoding bool // the prompt is computed; false after a preemption by recomputation
	chunk    int  // tokens in this iteration
}

// A step is the state of one call of Step. Its arrays are reused.
type step struct {
	it           *serve.Iteration
	tokens, seqs int // used from the budget

	decodes, prefills            []int32 // running requests
	swappedDecodes, swappedFills []int32 // requests that were swapped in
	admitted                     []int32
	preempted                    []int32 // requests that lost their blocks
	abandoned                    []int   // ids of swapped requests that are ignored
	failed                       error
}

var _ serve.Scheduler = (*Scheduler)(nil)

// NewScheduler makes a scheduler with its manager.
func NewScheduler(config SchedulerConfig) (*Scheduler, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	m, err := New(config.Manager)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{config: config, manager: m}
	s.waiting, s.running, s.swapped = s.requests.Queue(), s.requests.Queue(), s.requests.Queue()
	s.queues = [...]*reqtable.Queue{s.running, s.swapped, s.waiting}
	return s, nil
}

// Add implements serve.Scheduler. Requests have one sequence.
func (s *Scheduler) Add(r serve.Request) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	switch {
	case r.Prompt < 1:
		return fmt.Errorf("%w %d: a prompt of %d tokens", serve.ErrRequest, r.ID, r.Prompt)
	case r.Seqs > 1:
		return fmt.Errorf("%w %d: %d sequences: V0 takes one; add a request for each", serve.ErrRequest, r.ID, r.Seqs)
	case s.config.Manager.EnablePrefixCaching && len(r.Tokens) < r.Prompt:
		return fmt.Errorf("%w %d: %d of %d tokens are given, and prefix caching needs them", serve.ErrRequest, r.ID, len(r.Tokens), r.Prompt)
	}
	index := s.requests.Add(r.ID)
	if index == reqtable.None {
		return fmt.Errorf("%w %d: there is one with this id", serve.ErrRequest, r.ID)
	}
	q := s.requests.At(index)
	q.Seq.reset()
	q.Len, q.Tokens = r.Prompt, r.Tokens
	*q = request{Seq: q.Seq, id: r.ID}
	s.waiting.PushBack(index)
	return nil
}

// Finish implements serve.Scheduler. It frees running requests in the order of the running queue (vllm/v0/RULES.md
// §8).
func (s *Scheduler) Finish(answered []int, ids ...int) ([]int, error) {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	if err := s.requests.TakeAll(ids, s.queues[:], s.forget); err != nil {
		return answered, fmt.Errorf("%w: %w", serve.ErrRequest, err)
	}
	return append(answered, ids...), nil
}

// forget frees a request that is in no queue.
func (s *Scheduler) forget(index int32) {
	q := s.requests.At(index)
	s.manager.Free(&q.Seq)
	q.Tokens = nil
	s.requests.Remove(q.id)
}

// Usage implements serve.Scheduler.
func (s *Scheduler) Usage() serve.Usage {
	blocks := s.config.Manager.NumGPUBlocks
	return serve.Usage{Blocks: blocks, Used: blocks - s.manager.View.FreeGPU(), Logical: s.manager.logical}
}

// Manager returns the scheduler's manager, which must not be changed.
func (s *Scheduler) Manager() *Manager { return s.manager }

// Table returns the block table of a request, or nil if there is no such request. The caller must not change the
// table, which is valid until the next Step.
func (s *Scheduler) Table(id int) []int32 {
	if index := s.requests.Find(id); index != reqtable.None {
		return s.requests.At(index).Table()
	}
	return nil
}

// Queues returns the ids of the requests in each queue, in order.
func (s *Scheduler) Queues() (waiting, running, swapped []int) {
	id := func(index int32) int { return s.requests.At(index).id }
	return s.waiting.IDs(id), s.running.IDs(id), s.swapped.IDs(id)
}
