// Package serve is the interface that a scheduler of an LLM server offers to whatever
// runs its iterations: requests go in, an iteration comes out, is run, and
// answers that are complete are reported. A simulator drives any of them
// through it, or a worker with a model.
//
//	for {
//		add what has arrived
//		scheduler.Step(&it)
//		run it: every decoding sequence, and every prompt that became complete,
//		generates one token
//		answered = scheduler.Finish(answered[:0], the requests whose last token that was)
//	}
//
// A scheduler may rely on this order; tokens are counted by Step. Rules of
// scheduling may not live here.
package serve

import (
	"errors"

	"llmmemory/internal/scheduling/device"
)

// ErrRequest is wrapped when a request cannot be added or is not known.
var ErrRequest = errors.New("bad request")

// A Request is a prompt that waits for an answer.
type Request struct {
	ID     int // the caller's, one for each request that is not finished
	Prompt int // tokens, at least 1
	Seqs   int // answers to one prompt: parallel samples or beams; 0 means 1

	// Output is how many tokens the answer will have. Only schedulers that
	// reserve memory for it read it: Orca's, and FasterTransformer's.
	Output int

	// Tokens is the prompt and, after it, what the model is going to answer.
	// Only schedulers that cache prefixes read it, each token not before it is
	// generated; others need none. The caller leaves it unchanged until the
	// request is finished.
	Tokens []int32
}

// A Scheduler decides what runs in the next iteration.
type Scheduler interface {
	// Add puts a request at the end of the waiting ones. The error wraps
	// ErrRequest, and nothing has changed.
	Add(Request) error

	// Step schedules the next iteration and reuses its arrays. When it returns,
	// everything in the iteration counts as computed.
	Step(*Iteration) error

	// Finish ends requests whose answers are complete or that were aborted, in any
	// order. It appends the requests that leave the system now: all of them, except
	// where a batch ends as a whole.
	Finish(answered []int, ids ...int) ([]int, error)

	// Usage is how full the memory is.
	Usage() Usage
}

// A GroupScheduler has requests whose sequences may be beams.
type GroupScheduler interface {
	Scheduler

	// Refork replaces the beam child by a copy of the beam parent, between two
	// steps. It appends the copies that must be made at once to it.Copies.
	Refork(it *Iteration, id, child, parent int) error
}

// A Speculator verifies draft tokens: a decode may generate several tokens.
type Speculator interface {
	Scheduler

	// Generated says that a decode of the last step has generated n tokens: the
	// accepted drafts and one more. Without it that was one.
	Generated(id, n int) error
}

// An Iteration is one run of the model.
type Iteration struct {
	Prefills []Prefill
	Decodes  []Decode

	// What the worker has to move before the model runs: first SwapOut from GPU
	// to CPU, then SwapIn from CPU to GPU, then Copies on the GPU. Ids are
	// counted on each device from 0.
	SwapOut, SwapIn, Copies []device.Pair

	Preempted []Preemption
	Ignored   []int // requests that were dropped because they can never run
	Tokens    int   // of the batch, as the scheduler counts them against its budget
}

// A Prefill is a prompt, or a chunk of one.
type Prefill struct {
	ID     int
	Start  int // tokens of the sequence that were computed before
	Tokens int // the chunk, cached ones included
	Cached int // tokens of the chunk that a prefix hit saves
	Seqs   int
	Last   bool // the prompt is complete: it generates a token
}

// A Decode is a request that generates one token for each of its sequences.
type Decode struct {
	ID      int
	Context int // tokens that each sequence attends to, the new one included
	Seqs    int // those that are not finished
	Drafts  int // tokens that are computed with it, to be accepted or not; Context is without them
}

// A Preemption takes the blocks of a running request away.
type Preemption struct {
	ID      int
	Swapped bool // to the CPU; else they are lost and computed again
}

// Usage is a manager's memory in blocks.
type Usage struct {
	Blocks  int // of the GPU
	Used    int // of these
	Logical int // entries of tables on the GPU: more than Used where blocks are shared
}

// Reset empties the iteration, for a scheduler's Step.
func (it *Iteration) Reset() {
	it.Prefills, it.Decodes = it.Prefills[:0], it.Decodes[:0]
	it.SwapOut, it.SwapIn, it.Copies = it.SwapOut[:0], it.SwapIn[:0], it.Copies[:0]
	it.Preempted, it.Ignored, it.Tokens = it.Preempted[:0], it.Ignored[:0], 0
}

// Empty reports whether the model has nothing to do.
func (it *Iteration) Empty() bool { return len(it.Prefills) == 0 && len(it.Decodes) == 0 }

// Idle reports whether nothing happened. Then nothing will happen before the next Add or
// Finish, and requests that wait will wait for ever.
func (it *Iteration) Idle() bool {
	return it.Empty() && len(it.SwapOut) == 0 && len(it.SwapIn) == 0 && len(it.Preempted) == 0 && len(it.Ignored) == 0
}
