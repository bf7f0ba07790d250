package paper

import (
	"fmt"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
)

// StaticConfig describes the server of FasterTransformer. In the artifact, a batch for OPT-13B has 5 requests
// (ShareGPT) or 14 requests (Alpaca), and MaxModelLen is 2,040 (simulation/PAPER.md §1).
type StaticConfig struct {
	BatchSize   int // requests
	MaxModelLen int // tokens of the longest prompt and the longest output together
}

// A Static runs static batches: no request joins or leaves a running batch. All prompts are padded to the length of
// the longest, and all requests are answered when the longest output is complete. A Static implements
// serve.Scheduler.
type Static struct {
	config           StaticConfig
	requests         reqtable.Table[padded]
	waiting, running *reqtable.Queue

	prompt     int // tokens of the batch's longest prompt
	iterations int // number of iterations that the batch has run
	unfinished int // number of unfinished requests of the batch
}

type padded struct {
	id, prompt, output, seqs int
	finished                 bool
}

var _ serve.Scheduler = (*Static)(nil)

// NewStatic makes a server without requests.
func NewStatic(config StaticConfig) (*Static, error) {
	if config.BatchSize < 1 || config.MaxModelLen < 2 {
		return nil, fmt.Errorf("%w: batches of %d requests and %d tokens", ErrConfig, config.BatchSize, config.MaxModelLen)
	}
	s := &Static{config: config}
	s.waiting, s.running = s.requests.Queue(), s.requests.Queue()
	return s, nil
}

// Add implements serve.Scheduler.
func (s *Static) Add(r serve.Request) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	if r.Prompt < 1 || r.Output < 1 || r.Prompt+r.Output > s.config.MaxModelLen {
		return fmt.Errorf("%w %d: %d and %d tokens: want at least 1 each, at most %d together",
			serve.ErrRequest, r.ID, r.Prompt, r.Output, s.config.MaxModelLen)
	}
	index := s.requests.Add(r.ID)
	if index == reqtable.None {
		return fmt.Errorf("%w %d: there is one with this id", serve.ErrRequest, r.ID)
	}
	*s.requests.At(index) = padded{id: r.ID, prompt: r.Prompt, output: r.Output, seqs: max(1, r.Seqs)}
	s.waiting.PushBack(index)
	return nil
}

// Step implements serve.Scheduler.
func (s *Static) Step(it *serve.Iteration) error {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	it.Reset()
	if s.running.Len() == 0 {
		s.form(it)
		return nil
	}
	for index := range s.running.All() {
		q := s.requests.At(index)
		it.Decodes = append(it.Decodes, serve.Decode{ID: q.id, Context: s.prompt + s.iterations, Seqs: q.seqs})
		it.Tokens += q.seqs
	}
	s.iterations++
	return nil
}

// form starts a batch with the first waiting requests. All requests of a batch have equally many sequences, and the
// longest prompt and the longest output together have at most MaxModelLen tokens.
func (s *Static) form(it *serve.Iteration) {
	s.prompt, s.iterations = 0, 1
	output := 0
	for index := s.waiting.Head(); index != reqtable.None && s.running.Len() < s.config.BatchSize; index = s.waiting.Head() {
		q := s.requests.At(index)
		prompt := max(s.prompt, q.prompt)
		output = max(output, q.output)
		if prompt+output > s.config.MaxModelLen || s.running.Len() > 0 && q.seqs != s.requests.At(s.running.Tail()).seqs {
			break
		}
		s.prompt = prompt
		s.waiting.Remove(index)
		s.running.PushBack(index)
	}
	s.unfinished = s.running.Len()
	for index := range s.running.All() {
		q := s.requests.At(index)
		it.Prefills = append(it.Prefills, serve.Prefill{ID: q.id, Tokens: s.prompt, Seqs: q.seqs, Last: true})
		it.Tokens += s.prompt
	}
}

// Finish implements serve.Scheduler. It answers waiting requests at once. When the last request of the running batch is
// finished, it answers all requests of the batch, in the order of arrival.
func (s *Static) Finish(answered []int, ids ...int) ([]int, error) {
	if invariants.Enabled {
		defer invariants.Hold(s.Check)
	}
	if err := s.requests.Check(ids...); err != nil {
		return answered, fmt.Errorf("%w: %w", serve.ErrRequest, err)
	}
	for _, id := range ids {
		if s.requests.At(s.requests.Find(id)).finished {
			return answered, fmt.Errorf("%w: %d is finished already", serve.ErrRequest, id)
		}
	}
	for _, id := range ids {
		if index := s.requests.Find(id); s.running.Has(index) {
			s.requests.At(index).finished = true
			s.unfinished--
		}
	}
	err := s.requests.TakeAll(ids, []*reqtable.Queue{s.waiting}, func(index int32) {
		answered = append(answered, s.requests.At(index).id)
		s.requests.Remove(s.requests.At(index).id)
	})
	if err != nil {
		return answered, err
	}
	if s.unfinished > 0 {
		return answered, nil
	}
	for index := range s.running.All() {
		id := s.requests.At(index).id
		s.running.Remove(index)
		s.requests.Remove(id)
		answered = append(answered, id)
	}
	return answered, nil
}

// Usage implements serve.Scheduler. A static batch has no blocks, so Usage counts each request as one block, and
// BatchSize requests as all blocks.
func (s *Static) Usage() serve.Usage {
	return serve.Usage{Blocks: s.config.BatchSize, Used: s.running.Len(), Logical: s.running.Len()}
}

// Table returns a table with a single entry: the index of the request in the batch. All sequences of the request have
// this table. A waiting request has none, so the result is nil.
func (s *Static) Table(id, sequence int) []int32 {
	slot := int32(0)
	for index := range s.running.All() {
		if q := s.requests.At(index); q.id == id && sequence >= 0 && sequence < q.seqs {
			return []int32{slot}
		}
		slot++
	}
	return nil
}

// Queues returns the ids of the requests in each queue, in order. The queue swapped is always empty.
func (s *Static) Queues() (waiting, running, swapped []int) {
	id := func(index int32) int { return s.requests.At(index).id }
	return s.waiting.IDs(id), s.running.IDs(id), nil
}

// Check returns an error unless every request is in exactly one queue and the batch is within its limits.
func (s *Static) Check() error {
	unfinished := 0
	for index := range s.running.All() {
		if !s.requests.At(index).finished {
			unfinished++
		}
	}
	if s.waiting.Len()+s.running.Len() != s.requests.Len() || s.running.Len() > s.config.BatchSize ||
		unfinished != s.unfinished || s.running.Len() > 0 && unfinished == 0 {
		return invariants.Broken("%d requests wait and %d run of %d; %d of the running ones are not finished, but %d are counted",
			s.waiting.Len(), s.running.Len(), s.requests.Len(), unfinished, s.unfinished)
	}
	return nil
}
