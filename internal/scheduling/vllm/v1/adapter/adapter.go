// Package adapter makes vLLM V1's scheduler (package sched) a serve.Scheduler, so that the simulator can run it like
// the other schedulers. V1 needs the tokens of prompts and answers: the adapter takes them from serve.Request. If a
// request has no tokens, the adapter uses zeros, but with prefix caching it refuses the request.
package adapter

import (
	"fmt"

	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// A Scheduler implements serve.Speculator with a sched.Scheduler.
type Scheduler struct {
	config   sched.Config
	s        *sched.Scheduler
	requests reqtable.Table[request]
	ids      map[sched.ID]int32 // indexes of requests, which are also the UserData in V1

	step     sched.Step
	inFlight bool // the step has been scheduled but not updated
	outcome  sched.Outcome
	counts   []int32
	tokens   []int32
	drafts   []int32
	drafted  []sched.ID
	perID    []int32 // number of drafts of each request in drafted
	logical  int     // table entries
	prompt   []int32 // zeros, for prompts without tokens
}

type request struct {
	id      int
	key     sched.ID
	tokens  []int32 // the caller's; if nil, all are zeros
	length  int     // tokens, including generated ones
	blocks  int     // table entries
	filling bool    // the prompt, or what is computed again, is not complete
	yields  int     // tokens that the step in flight generates
	ended   bool    // V1 has ended it, but Finish was not called yet
}

var _ serve.Speculator = (*Scheduler)(nil)

// New returns a scheduler without requests. V1's cache must have one group of layers.
func New(config sched.Config) (*Scheduler, error) {
	if n := len(config.Cache.Groups); n != 1 {
		return nil, fmt.Errorf("%w: %d groups of layers, want 1", sched.ErrConfig, n)
	}
	s, err := sched.New(config)
	if err != nil {
		return nil, err
	}
	return &Scheduler{config: config, s: s, ids: map[sched.ID]int32{}}, nil
}

// Add implements serve.Scheduler. A request has one sequence. If Output is above 0, V1 ends the request after this
// number of tokens, and the caller must then call Finish. Add refuses a request that can become longer than the pool
// or MaxModelLen allows.
func (s *Scheduler) Add(r serve.Request) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w %d: %w", serve.ErrRequest, r.ID, fmt.Errorf(format, args...))
	}
	switch {
	case r.Prompt < 1:
		return bad("a prompt of %d tokens", r.Prompt)
	case r.Seqs > 1:
		return bad("%d sequences: V1 takes one; add a request for each", r.Seqs)
	case (s.config.Cache.EnablePrefixCaching || r.Tokens != nil) && len(r.Tokens) < r.Prompt:
		return bad("%d of the %d tokens of the prompt are given: want all, or none without prefix caching", len(r.Tokens), r.Prompt)
	case r.Prompt+r.Output > s.config.Cache.MaxModelLen:
		return bad("%d and %d tokens: no sequence has more than %d", r.Prompt, r.Output, s.config.Cache.MaxModelLen)
	case s.requests.Find(r.ID) != reqtable.None:
		return bad("there is one with this id")
	}
	prompt := r.Tokens
	if prompt == nil {
		for len(s.prompt) < r.Prompt {
			s.prompt = append(s.prompt, 0)
		}
		prompt = s.prompt
	}
	maxTokens := r.Output
	if maxTokens < 1 {
		maxTokens = s.config.Cache.MaxModelLen
	}
	index := s.requests.Add(r.ID)
	key, err := s.s.Add(sched.Spec{Tokens: prompt[:r.Prompt], MaxTokens: maxTokens, UserData: uint64(index)})
	if err != nil {
		s.requests.Remove(r.ID)
		return bad("%w", err)
	}
	*s.requests.At(index) = request{id: r.ID, key: key, tokens: r.Tokens, length: r.Prompt}
	s.ids[key] = index
	return nil
}

// Step implements serve.Scheduler.
func (s *Scheduler) Step(it *serve.Iteration) error {
	it.Reset()
	if err := s.update(); err != nil {
		return err
	}
	if err := s.draft(); err != nil {
		return err
	}
	if err := s.s.Schedule(&s.step); err != nil {
		return err
	}
	s.inFlight = len(s.step.Rows) > 0
	for _, key := range s.step.Preempted {
		q := s.requests.At(s.ids[key])
		s.logical -= q.blocks
		q.blocks, q.yields = 0, 0
		it.Preempted = append(it.Preempted, serve.Preemption{ID: q.id})
	}
	for i := range s.step.Rows {
		s.row(it, i)
	}
	it.Tokens = s.step.NumScheduledTokens
	return nil
}

func (s *Scheduler) row(it *serve.Iteration, i int) {
	row := &s.step.Rows[i]
	q := s.requests.At(int32(row.UserData))
	start, cached := row.NumComputedTokens, 0
	if row.Kind != sched.KindRunning {
		start, cached, q.filling = 0, row.NumComputedTokens, true
	}
	blocks := len(s.step.RowBlocks(i, 0))
	s.logical += blocks
	q.blocks += blocks
	last := row.NumComputedTokens+row.NumScheduledTokens >= q.length
	q.yields = 0
	if last {
		q.yields = 1
	}
	if !q.filling {
		it.Decodes = append(it.Decodes, serve.Decode{ID: q.id, Context: q.length, Seqs: 1, Drafts: row.NumDraftTokens})
		return
	}
	q.filling = !last
	it.Prefills = append(it.Prefills, serve.Prefill{
		ID: q.id, Start: start, Tokens: cached + row.NumScheduledTokens, Cached: cached, Seqs: 1, Last: last,
	})
}

// Generated implements serve.Speculator.
func (s *Scheduler) Generated(id, n int) error {
	index := s.requests.Find(id)
	if index == reqtable.None || s.requests.At(index).yields == 0 {
		return fmt.Errorf("%w %d: it generates nothing in this step, or there is none", serve.ErrRequest, id)
	}
	if n < 1 || n > 1+s.config.NumSpeculativeTokens {
		return fmt.Errorf("%w %d: it generates %d tokens: want 1 to %d", serve.ErrRequest, id, n, 1+s.config.NumSpeculativeTokens)
	}
	s.requests.At(index).yields = n
	return nil
}

// TakeEvents moves the events of the prefix cache to dst. There are none unless the configuration enables events.
func (s *Scheduler) TakeEvents(dst *pool.Events) { s.s.Monitor.TakeEvents(dst) }

// update passes the sampled tokens of the last step to V1, unless it has already passed them.
func (s *Scheduler) update() error {
	if !s.inFlight {
		return nil
	}
	s.counts, s.tokens = s.counts[:0], s.tokens[:0]
	for i := range s.step.Rows {
		q := s.requestOf(&s.step.Rows[i])
		if q == nil { // aborted
			s.counts = append(s.counts, 0)
			continue
		}
		for k := range q.yields {
			t, err := s.sampled(q, q.length+k)
			if err != nil {
				return err
			}
			s.tokens = append(s.tokens, t)
		}
		s.counts = append(s.counts, int32(q.yields))
	}
	if err := s.s.Update(s.counts, s.tokens, &s.outcome); err != nil {
		return err
	}
	s.inFlight = false
	for i := range s.step.Rows {
		if q := s.requestOf(&s.step.Rows[i]); q != nil {
			q.length += int(s.outcome.Kept[i])
			q.yields = 0
		}
	}
	for _, d := range s.outcome.Done {
		s.gone(s.requests.At(int32(d.UserData)))
	}
	return nil
}

// requestOf returns the request of a row of the last step, or nil if V1 has ended the request since then.
func (s *Scheduler) requestOf(row *sched.Row) *request {
	if q := s.requests.At(int32(row.UserData)); q.key == row.ID && !q.ended {
		return q
	}
	return nil
}

func (s *Scheduler) sampled(q *request, i int) (int32, error) {
	switch {
	case q.tokens == nil:
		return 0, nil
	case i < len(q.tokens):
		return q.tokens[i], nil
	}
	return 0, fmt.Errorf("%w %d: token %d was generated, %d are given", serve.ErrRequest, q.id, i, len(q.tokens))
}

// draft gives NumSpeculativeTokens drafts to every request of the last step that decodes from now on. All drafts are
// token 0. Their values do not matter, because the caller of Generated decides how many of them are accepted.
func (s *Scheduler) draft() error {
	n := s.config.NumSpeculativeTokens
	if n == 0 {
		return nil
	}
	s.drafted, s.perID, s.drafts = s.drafted[:0], s.perID[:0], s.drafts[:0]
	for i := range s.step.Rows {
		if q := s.requestOf(&s.step.Rows[i]); q == nil || q.filling {
			continue
		}
		s.drafted = append(s.drafted, s.step.Rows[i].ID)
		s.perID = append(s.perID, int32(n))
		for range n {
			s.drafts = append(s.drafts, 0)
		}
	}
	return s.s.SetDrafts(s.drafted, s.perID, s.drafts)
}

func (s *Scheduler) gone(q *request) {
	s.logical -= q.blocks
	q.blocks, q.ended = 0, true
	delete(s.ids, q.key)
}

// Finish implements serve.Scheduler.
func (s *Scheduler) Finish(answered []int, ids ...int) ([]int, error) {
	if err := s.requests.Check(ids...); err != nil {
		return answered, fmt.Errorf("%w: %w", serve.ErrRequest, err)
	}
	if err := s.update(); err != nil {
		return answered, err
	}
	for _, id := range ids {
		q := s.requests.At(s.requests.Find(id))
		if !q.ended {
			s.s.Abort(q.key)
			s.gone(q)
		}
		q.tokens = nil
		s.requests.Remove(id)
	}
	return append(answered, ids...), nil
}

// Usage implements serve.Scheduler. Blocks that are only in the prefix cache count as free.
func (s *Scheduler) Usage() serve.Usage {
	l := s.s.Monitor.Load()
	return serve.Usage{Blocks: l.Blocks, Used: l.Blocks - l.FreeBlocks, Logical: s.logical}
}

// Table returns the block table of a request's only sequence, which is number 0. It returns nil if there is no such
// request.
func (s *Scheduler) Table(id, sequence int) []int32 {
	index := s.requests.Find(id)
	if sequence != 0 || index == reqtable.None || s.requests.At(index).ended {
		return nil
	}
	table, _ := s.s.Monitor.Table(nil, s.requests.At(index).key, 0)
	return table
}

// Counts returns the reference counts of all GPU blocks; V1 has no CPU blocks. Block 0, the null block, is never free,
// so Counts returns at least 1 for it, although the pool does not count its references.
func (s *Scheduler) Counts() (gpu, cpu []int32) {
	s.s.Monitor.Inspect(func(c *kvcache.Cache) {
		for id := range int32(c.Pool.NumBlocks()) {
			gpu = append(gpu, c.Pool.Count(id))
		}
		gpu[0] = max(1, gpu[0])
	})
	return gpu, nil
}

// Cached returns the free blocks that have a key. A lookup can still find these blocks.
func (s *Scheduler) Cached() (ids []int32) {
	s.s.Monitor.Inspect(func(c *kvcache.Cache) {
		for id := range int32(c.Pool.NumBlocks()) {
			if _, _, cached := c.Pool.Primary(id); cached && c.Pool.Count(id) == 0 {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// Queues returns the ids of the requests in each queue, in order. V1 does not swap, so swapped is empty.
func (s *Scheduler) Queues() (waiting, running, swapped []int) {
	list := func(keys []sched.ID) []int {
		ids := []int{}
		for _, key := range keys {
			ids = append(ids, s.requests.At(s.ids[key]).id)
		}
		return ids
	}
	return list(s.s.Monitor.Waiting(nil)), list(s.s.Monitor.Running(nil)), []int{}
}
