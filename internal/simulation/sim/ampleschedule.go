package sim

import (
	"errors"
	"fmt"
)

// ErrAmple is wrapped if a run with Config.Ample gets short of memory, or shares blocks, or has settings or a request
// that Config.Ample does not support.
var ErrAmple = errors.New("memory is not ample")

// A chunk is a part of a prompt.
type chunk struct {
	ID            int32
	Start, Tokens int
	Last          bool // the prompt is complete: it generates a token
}

// An ampleStep lists the requests that run together. Its arrays are reused.
type ampleStep struct {
	Prefills []chunk // in the order of admission
	Decodes  int     // number of decoding requests
	Context  int     // sum of the tokens that these attend to
}

// An ampleScheduler schedules as vLLM V1 does if memory suffices and no two requests share a block. It is faster than
// package sched, because the time of a step does not grow with the batch. A step does not visit the decoding requests:
// it only updates their total numbers of tokens and blocks. When the prompt of a request is complete, the scheduler
// computes in which step the request will end. If a call fails with ErrAmple, memory does not suffice, or the scheduler
// does not support the settings or a request. The caller must then run everything from the beginning with package
// sched. An ampleScheduler runs requests in the order of add.
type ampleScheduler struct {
	server    Server
	watermark int // blocks
	step      int // number of the current step

	requests []ampleRequest // by id
	waiting  []int32        // waiting[head:] wait, in the order of arrival
	head     int
	partial  int32 // the running request whose prompt is not complete, or -1

	running int       // running requests
	decodes int       // running requests whose prompt is complete
	context int       // tokens of decodes
	tokens  int       // tokens in blocks
	used    int       // used blocks
	ends    [][]int32 // ends[i]: requests that end with step i, modulo len(ends)
	grow    []int     // grow[i] is the number of decodes that need a block in step i, modulo the block size
	done    []int32   // requests of this step that end with their first token
}

type ampleRequest struct{ prompt, output, computed int }

// newAmpleScheduler makes a scheduler. MaxNumBatchedTokens of s must be at least MaxNumSeqs.
func newAmpleScheduler(s Server) (*ampleScheduler, error) {
	if s.NumGPUBlocks < 1 || s.BlockSize < 1 || s.MaxNumSeqs < 1 || s.MaxModelLen < 2 ||
		s.MaxNumBatchedTokens < s.MaxNumSeqs || !(s.watermark() >= 0) {
		return nil, fmt.Errorf("%w: the config is not possible: %+v", ErrAmple, s)
	}
	return &ampleScheduler{
		server: s, partial: -1, watermark: int(min(s.watermark(), 1) * float64(s.NumGPUBlocks+1)),
		ends: make([][]int32, s.MaxModelLen), grow: make([]int, s.BlockSize),
	}, nil
}

// add puts a request at the end of the waiting requests. An id may be used again when its request has ended.
func (s *ampleScheduler) add(id int32, prompt, output int) error {
	if prompt < 1 || output < 1 || prompt > s.server.MaxModelLen-output ||
		s.blocks(prompt+output) > s.server.NumGPUBlocks {
		return fmt.Errorf("%w: a prompt of %d tokens and an answer of %d", ErrAmple, prompt, output)
	}
	if int(id) >= len(s.requests) {
		s.requests = append(s.requests, make([]ampleRequest, int(id)+1-len(s.requests))...)
	}
	s.requests[id] = ampleRequest{prompt: prompt, output: output}
	if 2*s.head >= len(s.waiting) {
		s.waiting, s.head = s.waiting[:copy(s.waiting, s.waiting[s.head:])], 0
	}
	s.waiting = append(s.waiting, id)
	return nil
}

func (s *ampleScheduler) blocks(tokens int) int {
	return (tokens + s.server.BlockSize - 1) / s.server.BlockSize
}

// next sets step to the next step (scheduling/vllm/v1/RULES.md §14). All decoding requests run; step has only their number and
// the sum of their tokens. Prefills begins with the running prompt that is partly computed, if there is one. Then next
// admits waiting requests while the limits of tokens and of sequences allow it. It returns ErrAmple if there are too
// few blocks.
func (s *ampleScheduler) next(step *ampleStep) error {
	s.step++
	s.done = s.done[:0]
	step.Prefills = step.Prefills[:0]
	s.context += s.decodes
	s.tokens += s.decodes
	s.used += s.grow[s.step%s.server.BlockSize]
	step.Decodes, step.Context = s.decodes, s.context
	budget := s.server.MaxNumBatchedTokens - s.decodes
	if id := s.partial; id >= 0 && budget > 0 {
		budget -= s.prefill(step, id, budget)
	}
	if s.used > s.server.NumGPUBlocks {
		return fmt.Errorf("%w: %d blocks of %d are needed", ErrAmple, s.used, s.server.NumGPUBlocks)
	}
	for budget > 0 && s.running < s.server.MaxNumSeqs && s.head < len(s.waiting) {
		id := s.waiting[s.head]
		need := s.blocks(s.requests[id].prompt) // the whole prompt needs blocks, even if only a part is computed now
		if s.running > 0 {
			need += s.watermark
		}
		if need > s.server.NumGPUBlocks-s.used {
			return fmt.Errorf("%w: %d blocks for a prompt, %d of %d are used", ErrAmple, need, s.used, s.server.NumGPUBlocks)
		}
		s.head++
		s.running++
		budget -= s.prefill(step, id, budget)
	}
	return nil
}

func (s *ampleScheduler) prefill(step *ampleStep, id int32, budget int) int {
	r := &s.requests[id]
	n := min(r.prompt-r.computed, budget)
	s.used += s.blocks(r.computed+n) - s.blocks(r.computed)
	s.tokens += n
	last := r.computed+n == r.prompt
	step.Prefills = append(step.Prefills, chunk{ID: id, Start: r.computed, Tokens: n, Last: last})
	r.computed += n
	s.partial = id
	if !last {
		return n
	}
	s.partial = -1
	if r.output == 1 {
		s.done = append(s.done, id)
		return n
	}
	s.decodes++
	s.context += r.prompt
	end := s.step + r.output - 1
	s.ends[end%len(s.ends)] = append(s.ends[end%len(s.ends)], id)
	s.grow[s.grows(r, end)]++
	return n
}

// grows returns the index in s.grow for a decoding request. The request needs another block in each step whose number,
// modulo the block size, is this index. end is the number of the step in which the request ends.
func (s *ampleScheduler) grows(r *ampleRequest, end int) int {
	first := end - r.output + 2 // with the first token of the answer as input
	size := s.server.BlockSize
	return ((first-r.prompt)%size + size) % size
}

// finish ends the requests whose last token the step generates. It appends their ids to done: prefills first, then
// decodes.
func (s *ampleScheduler) finish(done []int32) []int32 {
	ends := &s.ends[s.step%len(s.ends)]
	done = append(done, s.done...)
	done = append(done, *ends...)
	for _, id := range s.done {
		s.free(s.requests[id].prompt)
	}
	for _, id := range *ends {
		r := &s.requests[id]
		length := r.prompt + r.output - 1 // the last token is not computed
		s.free(length)
		s.decodes--
		s.context -= length
		s.grow[s.grows(r, s.step)]--
	}
	*ends = (*ends)[:0]
	return done
}

func (s *ampleScheduler) free(length int) {
	s.running--
	s.tokens -= length
	s.used -= s.blocks(length)
}

// usage returns the number of blocks in use and the number of tokens in them.
func (s *ampleScheduler) usage() (blocks, tokens int) { return s.used, s.tokens }

// check computes the counters again from the requests and returns an error if one is wrong.
func (s *ampleScheduler) check() error {
	decodes, used, tokens, context := 0, 0, 0, 0
	count := func(length int) { used, tokens = used+s.blocks(length), tokens+length }
	for i, ends := range s.ends {
		for _, id := range ends {
			r := &s.requests[id]
			remaining := ((i-s.step)%len(s.ends) + len(s.ends)) % len(s.ends) // steps
			length := r.prompt + r.output - 1 - remaining
			count(length)
			decodes, context = decodes+1, context+length
		}
	}
	running := decodes
	if s.partial >= 0 {
		count(s.requests[s.partial].computed)
		running++
	}
	if decodes != s.decodes || context != s.context || used != s.used || tokens != s.tokens || running != s.running {
		return fmt.Errorf("%d decodes of %d, context %d of %d, %d blocks of %d, %d tokens of %d, %d running of %d",
			s.decodes, decodes, s.context, context, s.used, used, s.tokens, tokens, s.running, running)
	}
	return nil
}
