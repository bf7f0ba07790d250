package v0

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
)

// Step implements serve.Scheduler (vllm/v0/RULES.md §8). The error wraps ErrNoFreeBlocks if a preempted request does
// not fit on the CPU. (vLLM ends in this case.) With a sliding window, it also wraps ErrNoFreeBlocks if no block is free
// for the null block, and ErrSequence if a request must be swapped out after its window has moved. With prefix caching,
// the error wraps ErrSequence if the Tokens field of a request is shorter than the request. After an error the model
// must not run. Every request is in a queue, and the iteration lists the preemptions, swaps and copies from before the
// error.
func (s *Scheduler) Step(it *serve.Iteration) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	it.Reset()
	t := &s.step
	*t = step{
		it: it, decodes: t.decodes[:0], prefills: t.prefills[:0],
		swappedDecodes: t.swappedDecodes[:0], swappedFills: t.swappedFills[:0],
		admitted: t.admitted[:0], preempted: t.preempted[:0], abandoned: t.abandoned[:0],
	}
	if s.config.Chunked {
		s.stepChunked()
	} else {
		s.stepWhole()
	}
	for _, index := range t.preempted {
		s.waiting.PushFront(index) // the request that was preempted last, which arrived first, ends up in front
	}
	it.Ignored = append(it.Ignored, t.abandoned...)
	if t.failed != nil {
		for _, part := range [...][]int32{t.swappedFills, t.swappedDecodes, t.prefills, t.decodes} {
			for _, index := range slices.Backward(part) {
				s.running.PushFront(index)
			}
		}
		return t.failed
	}
	s.batch()
	return nil
}

// stepWhole schedules without chunks: an iteration has either prefills or decodes.
func (s *Scheduler) stepWhole() {
	t := &s.step
	t.seqs = s.running.Len()
	if s.swapped.Len() == 0 {
		s.admit()
	}
	if len(t.admitted) == 0 {
		s.runRunning()
		s.swapIn()
	}
	if t.failed == nil {
		s.queueRunning(t.admitted, t.decodes, t.swappedDecodes)
	}
}

// stepChunked schedules the running requests first, and then chunks of waiting prompts up to MaxNumBatchedTokens.
func (s *Scheduler) stepChunked() {
	t := &s.step
	s.runRunning()
	s.swapIn()
	if t.failed != nil {
		return
	}
	s.admit()
	s.queueRunning(t.swappedDecodes, t.swappedFills, t.decodes, t.prefills, t.admitted)
}

// queueRunning adds scheduled requests to the tail of the running queue. Requests that were not scheduled stay in
// front of them.
func (s *Scheduler) queueRunning(parts ...[]int32) {
	for _, part := range parts {
		for _, index := range part {
			s.running.PushBack(index)
		}
	}
}

// remaining returns how many tokens of q must be computed. The result is 1 if q decodes.
func (q *request) remaining() int {
	if q.decoding {
		return 1
	}
	return q.Len - q.computed
}

// chunked limits n to the remaining budget if chunks are allowed.
func (s *Scheduler) chunked(n int) int {
	if s.config.Chunked {
		return min(n, s.config.MaxNumBatchedTokens-s.step.tokens)
	}
	return n
}

func (s *Scheduler) fits(n int) bool {
	return n > 0 && s.step.tokens+n <= s.config.MaxNumBatchedTokens && s.step.seqs+1 <= s.config.MaxNumSeqs
}

func (s *Scheduler) admit() {
	t := &s.step
	longest := s.config.MaxModelLen
	if !s.config.Chunked {
		longest = min(longest, s.config.MaxNumBatchedTokens)
	}
	for index := s.waiting.Head(); index != reqtable.None; index = s.waiting.Head() {
		q := s.requests.At(index)
		n := s.chunked(q.remaining())
		status := Never
		if n <= longest {
			status = s.manager.CanAllocate(q.Len, 0)
		}
		if status == OK && !s.fits(n) {
			return
		}
		if status == OK && s.manager.Allocate(&q.Seq) != nil {
			status = s.overAdmitted(q)
		}
		if status == Later {
			return
		}
		s.waiting.Remove(index)
		if status == Never {
			t.it.Ignored = append(t.it.Ignored, q.id)
			s.forget(index)
			continue
		}
		q.chunk = n
		t.admitted = append(t.admitted, index)
		t.tokens += n
		t.seqs++
	}
}

// overAdmitted returns the status of a prompt for which CanAllocate returned OK although too few blocks are free. This
// happens with a sliding window, for which CanAllocate counts only the blocks of the window; vLLM crashes in this case
// (vllm/v0/RULES.md §5).
func (s *Scheduler) overAdmitted(q *request) Status {
	if ceil(q.Len, s.config.Manager.BlockSize) > s.config.Manager.NumGPUBlocks {
		return Never
	}
	return Later
}

// runRunning schedules the running requests, in order, and gives each the blocks for its next tokens. If too few
// blocks are free, it preempts requests from the tail of the queue.
func (s *Scheduler) runRunning() {
	t := &s.step
	for index := s.running.Head(); index != reqtable.None; index = s.running.Head() {
		q := s.requests.At(index)
		n := s.chunked(q.remaining())
		if n == 0 {
			return
		}
		s.running.Remove(index)
		if !s.preemptFor(index) {
			if t.failed != nil {
				return
			}
			continue
		}
		s.append(q)
		if t.failed != nil {
			s.running.PushFront(index)
			return
		}
		q.chunk = n
		t.tokens += n
		if s.config.Chunked {
			t.seqs++ // stepWhole has counted them already
		}
		if q.decoding {
			t.decodes = append(t.decodes, index)
		} else {
			t.prefills = append(t.prefills, index)
		}
	}
}

// preemptFor preempts running requests, from the tail of the queue, until the request at index can append, and reports
// whether it can. The caller has removed this request from the queue. If the request still cannot append when the queue
// is empty, preemptFor preempts the request itself and returns false. If a preemption fails, it sets step.failed, puts
// the requests back into the queue, and returns false.
func (s *Scheduler) preemptFor(index int32) bool {
	q := s.requests.At(index)
	for !s.manager.CanAppend(0, &q.Seq) {
		victim := s.running.Tail()
		if victim == reqtable.None {
			victim = index
		} else {
			s.running.Remove(victim)
		}
		if err := s.preempt(victim); err != nil {
			s.step.failed = err
			s.running.PushFront(index)
			if victim != index {
				s.running.PushBack(victim)
			}
			return false
		}
		if victim == index {
			return false
		}
	}
	return true
}

func (s *Scheduler) append(q *request) {
	t := &s.step
	if q.Unseen() == 0 && s.config.Manager.SlidingWindow == 0 {
		return // a chunk: the whole prompt has its blocks
	}
	var err error
	if t.it.Copies, err = s.manager.Append(t.it.Copies, &q.Seq, 0, q.computed); err != nil {
		t.failed = fmt.Errorf("request %d: %w", q.id, err)
	}
}

// preempt frees the blocks of a request or swaps them out. The request must not be in a queue.
func (s *Scheduler) preempt(index int32) error {
	q, t := s.requests.At(index), &s.step
	if s.config.Mode == Recompute {
		length, tokens := q.Len, q.Tokens
		s.manager.Free(&q.Seq)
		q.Len, q.Tokens, q.computed, q.decoding = length, tokens, 0, false
		t.preempted = append(t.preempted, index)
	} else {
		if !s.manager.CanSwapOut(&q.Seq) {
			return fmt.Errorf("%w: request %d cannot be swapped out: give the CPU more than %d blocks", ErrNoFreeBlocks, q.id, s.config.Manager.NumCPUBlocks)
		}
		var err error
		if t.it.SwapOut, err = s.manager.SwapOut(t.it.SwapOut, &q.Seq); err != nil {
			return err
		}
		s.swapped.PushBack(index)
	}
	t.it.Preempted = append(t.it.Preempted, serve.Preemption{ID: q.id, Swapped: s.config.Mode == Swap})
	return nil
}

// swapIn swaps requests in from the head of the queue, as long as they fit on the GPU and into the limits of the
// iteration. It does nothing if the step has preempted a request. All remaining tokens of a partly computed prompt
// must fit into the iteration.
func (s *Scheduler) swapIn() {
	t := &s.step
	if t.failed != nil || len(t.it.Preempted) > 0 {
		return
	}
	for index := s.swapped.Head(); index != reqtable.None; index = s.swapped.Head() {
		q := s.requests.At(index)
		switch s.manager.CanSwapIn(0, &q.Seq) {
		case Later:
			return
		case Never:
			s.abandon(index)
			continue
		}
		n := q.remaining()
		if !s.fits(n) {
			return
		}
		s.swapped.Remove(index)
		var err error
		if t.it.SwapIn, err = s.manager.SwapIn(t.it.SwapIn, &q.Seq); err != nil {
			panic(err) // CanSwapIn counted at least as many blocks
		}
		q.chunk = n
		t.tokens += n
		t.seqs++
		if q.decoding {
			t.swappedDecodes = append(t.swappedDecodes, index)
		} else {
			t.swappedFills = append(t.swappedFills, index)
		}
		if s.append(q); t.failed != nil {
			return
		}
	}
}

// abandon ignores a request that can never be swapped in. vLLM only frees requests of the running queue, so the blocks
// of this request on the CPU are never freed.
func (s *Scheduler) abandon(index int32) {
	q := s.requests.At(index)
	s.swapped.Remove(index)
	s.step.abandoned = append(s.step.abandoned, q.id)
	lost := q.Seq
	s.lost = append(s.lost, &lost)
	q.Seq = Seq{}
	s.forget(index)
}
