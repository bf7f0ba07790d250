package engine

import (
	"fmt"
	"time"

	"llmmemory/internal/engine/sampling"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/parallel"
	"llmmemory/internal/vllm/v1/sched"
)

// A step is the arrays of a step, which are used again by the next one.
type step struct {
	plan    sched.Step
	rows    []row
	message message
	counts  []int32
	sampled []int32
	outcome sched.Outcome
	drafts  int // of plan.Drafts that belong to rows so far

	proposal proposal
	job      sampleJob
	report   StepReport
}

// A row is a sequence in a step.
type row struct {
	q      *sequence
	from   int     // tokens that were computed before
	logits int     // first of its rows of logits
	wants  int     // rows of logits
	prompt bool    // they are about the prompt, too
	last   bool    // the last one is for the next token
	drafts []int32 // that stand after its tokens
	tokens []Token // what was sampled: one for each answer, or several with drafts
}

func (s *step) init(pool *parallel.Pool) {
	s.job.samplers = make([]sampling.Sampler, pool.Size())
	s.job.pool = pool
}

// runStep schedules, computes and samples once.
func (e *Engine) runStep() {
	begin := time.Now()
	e.step.report = StepReport{}
	e.mu.Lock()
	err := e.sched.Schedule(&e.step.plan)
	if err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
	e.buildBatch()
	e.noteSchedule()
	e.mu.Unlock()
	report := &e.step.report
	report.Schedule, report.Preempted, report.Tokens = time.Since(begin), len(e.step.plan.Preempted), e.step.plan.NumScheduledTokens
	if len(e.step.plan.Rows) == 0 {
		return
	}
	begin = time.Now()
	logits, err := e.workers.compute(&e.step.message)
	report.Model = time.Since(begin)
	begin = time.Now()
	if err == nil {
		e.sample(logits)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.fail(err)
		return
	}
	e.update()
	e.propose()
	report.Sample = time.Since(begin)
	stats := e.sched.TakeStats()
	report.CacheQueries, report.CacheHits = stats.Queries, stats.Hits
	e.observer.Step(*report)
	e.publish()
	e.showMemory(false)
}

// publish gives the events of the cache away.
func (e *Engine) publish() {
	if to := e.config.KVEvents; to != nil {
		e.sched.TakeEvents(&e.events)
		// An error says that the publisher is closed: nobody wants them then.
		_ = to.Publish(time.Now(), &e.events)
	}
}

// buildBatch turns the scheduler's step into the model's batch.
func (e *Engine) buildBatch() {
	s, now := &e.step, time.Now()
	b := &s.message.batch
	b.Tokens, b.Positions, b.SeqLens, b.Logits = b.Tokens[:0], b.Positions[:0], b.SeqLens[:0], b.Logits[:0]
	b.QueryStart = append(b.QueryStart[:0], 0)
	s.rows, s.message.copies, s.drafts = s.rows[:0], s.message.copies[:0], 0
	for _, id := range s.plan.Preempted {
		if q := e.live[id]; q != nil {
			q.table = q.table[:0]
		}
	}
	for _, c := range s.plan.Copies {
		s.message.copies = append(s.message.copies, kvstore.Pair{Src: c.Src, Dst: c.Dst})
		if q := e.live[c.ID]; q != nil && c.Index >= 0 && c.Index < len(q.table) {
			q.table[c.Index] = c.Dst
		}
	}
	stride := 0
	for i := range s.plan.Rows {
		stride = max(stride, e.addRow(i, now))
	}
	b.Slots = s.plan.Slots[0]
	b.TableStride, b.CommonPrefix = stride, e.commonPrefix()
	b.BlockTables = b.BlockTables[:0]
	for i := range s.rows {
		table := s.rows[i].q.table
		b.BlockTables = append(b.BlockTables, table...)
		for range stride - len(table) {
			b.BlockTables = append(b.BlockTables, 0)
		}
	}
}

// commonPrefix is how many tokens all rows have in the same blocks, before what they
// compute now: attention reads these once for all. (vLLM's num_common_prefix_blocks asks all
// running requests, of which some may not be in this step.)
func (e *Engine) commonPrefix() int {
	rows, size := e.step.rows, e.config.BlockSize
	if len(rows) < 2 || e.config.Model.SlidingWindow > 0 {
		return 0
	}
	first := rows[0].q.table
	n := rows[0].from / size
	for i := 1; i < len(rows) && n > 0; i++ {
		table := rows[i].q.table
		n = min(n, rows[i].from/size)
		for k := range n {
			if table[k] != first[k] {
				n = k
				break
			}
		}
	}
	return n * size
}

// addRow adds row i and returns the length of its block table. All requests of a
// step that was just scheduled are live: both happen under the lock.
func (e *Engine) addRow(i int, now time.Time) int {
	s := &e.step
	b, planned := &s.message.batch, &s.plan.Rows[i]
	q := e.live[planned.ID]
	from, n := planned.NumComputedTokens, planned.NumScheduledTokens
	start := s.plan.BlockStarts[i]
	if planned.Kind != sched.KindRunning {
		start = 0
	}
	q.table = append(q.table[:start], s.plan.RowBlocks(i, 0)...)
	if q.started.IsZero() {
		q.started = now
		q.stream.setCached(from)
		for _, a := range q.stream.answers {
			a.started = now
		}
	}
	first, drafts := len(b.Tokens), s.plan.Drafts[s.drafts:s.drafts+planned.NumDraftTokens]
	s.drafts += len(drafts)
	b.Tokens = append(b.Tokens, q.tokens[from:from+n-len(drafts)]...)
	for _, d := range drafts {
		b.Tokens = append(b.Tokens, max(d, 0)) // -1 is padding
	}
	for p := from; p < from+n; p++ {
		b.Positions = append(b.Positions, int32(p))
	}
	if len(s.rows) == cap(s.rows) {
		s.rows = append(s.rows, row{})[:len(s.rows)]
	}
	unused := s.rows[:len(s.rows)+1][len(s.rows)].tokens
	r := row{
		tokens: unused[:0],
		q:      q, from: from, logits: len(b.Logits), last: from+n == len(q.tokens)+len(drafts), drafts: drafts,
		prompt: q.stream.request.PromptLogprobs && from < q.prompt && q.index == 0,
	}
	switch {
	case r.prompt:
		for k := range n {
			b.Logits = append(b.Logits, int32(first+k))
		}
	case r.last:
		for k := n - 1 - len(drafts); k < n; k++ {
			b.Logits = append(b.Logits, int32(first+k))
		}
	}
	r.wants = len(b.Logits) - r.logits
	s.rows = append(s.rows, r)
	b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
	b.SeqLens = append(b.SeqLens, int32(from+n))
	if from >= q.prompt && n == 1+len(drafts) {
		s.report.Decodes++
		s.report.Context += from + n
	}
	s.report.PromptTokens += max(0, min(from+n, q.prompt)-from)
	return len(q.table)
}

// fail ends all requests of a step that could not be computed. Nothing that it
// should have written can be hit.
func (e *Engine) fail(cause error) {
	for i := range e.step.rows {
		s := e.step.rows[i].q.stream
		for _, q := range s.answers {
			if !q.done {
				e.drop(q)
				s.send(Event{Index: q.index, Finish: FinishError, Err: fmt.Errorf("the model failed: %w", cause)})
				e.observer.Finished(q.report(string(FinishError)))
			}
		}
	}
	if err := e.sched.StepFailed(); err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
}
