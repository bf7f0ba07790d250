// Package serve is the common interface of the schedulers of an LLM server. The caller is a simulator or a worker with
// a model. It adds requests, runs the scheduler's iterations, and reports complete answers.
//
//	for {
//		add what has arrived
//		scheduler.Step(&it)
//		run it: every decoding sequence, and every prompt whose last chunk ran,
//			generates one token
//		answered = scheduler.Finish(answered[:0], the requests that have generated their last token)
//	}
//
// A scheduler may rely on this order. Step assumes that each request of the previous iteration has generated its token,
// unless Finish ended it. This package must not contain scheduling rules.
package serve

import (
	"errors"

	"llmmemory/internal/scheduling/device"
)

// ErrRequest is wrapped by the errors for a request that cannot be added or is unknown.
var ErrRequest = errors.New("bad request")

// A Request is a prompt that waits for an answer.
type Request struct {
	ID     int // chosen by the caller; unfinished requests have different ids
	Prompt int // tokens, at least 1
	Seqs   int // answers to one prompt: parallel samples or beams; 0 means 1

	// Output is the number of tokens of the answer. The schedulers of Orca and FasterTransformer reserve memory for
	// these tokens. The scheduler of V1 ends the request after this number.
	Output int

	// Tokens are the tokens of the prompt, followed by the answer that the model will generate. Only schedulers that
	// cache prefixes need Tokens; they read a token of the answer only after it was generated. The caller must not
	// change Tokens before the request is finished.
	Tokens []int32
}

// A Scheduler decides what runs in the next iteration.
type Scheduler interface {
	// Add puts a request at the end of the waiting queue. If it returns an error, which wraps ErrRequest, it has
	// changed nothing.
	Add(Request) error

	// Step schedules the next iteration and writes it to its argument, whose arrays it reuses. The tokens of the
	// iteration count as computed from then on.
	Step(*Iteration) error

	// Finish ends the requests ids, in any order: their answers are complete, or they were aborted. It appends to
	// answered the requests that leave the system. A scheduler that ends a batch as a whole appends all requests of the
	// batch when the last one ends. Other requests leave the system at once.
	Finish(answered []int, ids ...int) ([]int, error)

	// Usage returns how much of the memory is in use.
	Usage() Usage
}

// A GroupScheduler has requests whose sequences may be beams.
type GroupScheduler interface {
	Scheduler

	// Refork replaces beam child by a copy of beam parent. It appends the copies of blocks that the worker must make at
	// once to the Copies field of the iteration. Refork must be called between two steps.
	Refork(it *Iteration, id, child, parent int) error
}

// A Speculator verifies draft tokens: a decode may generate several tokens.
type Speculator interface {
	Scheduler

	// Generated reports that a decode of the last step has generated n tokens: the accepted drafts and one more
	// token. Without this call, n is 1.
	Generated(id, n int) error
}

// An Iteration is one run of the model.
type Iteration struct {
	Prefills []Prefill
	Decodes  []Decode

	// The worker must copy these blocks before the model runs: first SwapOut from GPU to CPU, then SwapIn from CPU
	// to GPU, then Copies on the GPU. On each device, ids count from 0.
	SwapOut, SwapIn, Copies []device.Pair

	Preempted []Preemption
	Ignored   []int // ids of requests that were dropped because they can never run
	Tokens    int   // tokens of the batch, as counted against the scheduler's budget
}

// A Prefill is a prompt, or a chunk of one.
type Prefill struct {
	ID     int
	Start  int // number of tokens computed before
	Tokens int // tokens of the chunk, cached ones included
	Cached int // tokens of the chunk that a prefix hit found
	Seqs   int
	Last   bool // the prompt becomes complete, so the request generates a token
}

// A Decode is a request that generates a token for each of its sequences.
type Decode struct {
	ID      int
	Context int // tokens to which each sequence attends, including the new token but no drafts
	Seqs    int // unfinished sequences
	Drafts  int // draft tokens to verify
}

// A Preemption says that a running request lost its blocks.
type Preemption struct {
	ID      int
	Swapped bool // the blocks are swapped out to the CPU; otherwise they will be computed again
}

// Usage is a manager's memory in blocks.
type Usage struct {
	Blocks  int // blocks of the GPU
	Used    int // blocks in use
	Logical int // table entries on the GPU: more than Used if blocks are shared
}

// Reset empties the iteration, for a scheduler's Step.
func (it *Iteration) Reset() {
	it.Prefills, it.Decodes = it.Prefills[:0], it.Decodes[:0]
	it.SwapOut, it.SwapIn, it.Copies = it.SwapOut[:0], it.SwapIn[:0], it.Copies[:0]
	it.Preempted, it.Ignored, it.Tokens = it.Preempted[:0], it.Ignored[:0], 0
}

// Empty reports whether the model has nothing to do.
func (it *Iteration) Empty() bool { return len(it.Prefills) == 0 && len(it.Decodes) == 0 }

// Idle reports whether the step did nothing. After a step that did nothing, later steps do nothing either until the
// next Add or Finish.
func (it *Iteration) Idle() bool {
	return it.Empty() && len(it.SwapOut) == 0 && len(it.SwapIn) == 0 && len(it.Preempted) == 0 && len(it.Ignored) == 0
}
