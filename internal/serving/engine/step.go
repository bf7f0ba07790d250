package engine

import (
	"fmt"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// A step is the arrays of a step, which are used again by a later one.
type step struct {
	plan    sched.Step
	rows    []row
	message message
	draws   []draw
	first   int // of the draws whose logits were asked for last
	last    int
	counts  []int32
	sampled []int32
	outcome sched.Outcome
	drafts  int // of plan.Drafts that belong to rows so far

	begun    time.Time // its launch, or its scheduling if no other step was running
	launched time.Time // when the workers got it
	report   StepReport
}

// A row is a sequence in a step.
type row struct {
	q           *sequence
	from        int     // tokens that were computed before
	scored      int     // tokens of the prompt whose log probabilities are known after the step; 0: not wanted
	last        bool    // its last token is followed by the next one
	placeholder int     // place in the batch of a token that the step before samples, or -1
	drafts      []int32 // that stand after its tokens
	tokens      []Token // what was sampled: one for each answer, or several with drafts
}

// The loop has up to two steps in flight (vLLM's asynchronous scheduling). While the
// workers compute step k, it delivers what step k-1 sampled and schedules step k+1, with
// placeholders for the tokens that step k will sample. When step k is computed it is sampled,
// its tokens take the place of the placeholders, and step k+1 starts. A sequence that turns
// out to have ended has a row in the step that was scheduled before that was known, which counts
// for nothing.
//
// A step on a CPU takes much longer than scheduling the next one, so step k+1 is scheduled
// late: when the workers have computed all layers of step k and begin the logits. A request that
// comes before that is in the next step.
func (e *Engine) loop() {
	defer close(e.stopped)
	var current *step
	for {
		if current == nil {
			if !e.awaitWork() {
				return
			}
			begin := time.Now()
			if current = e.schedule(nil); current == nil {
				continue
			}
			e.launch(current)
			current.begun = begin
		}
		current = e.advance(current)
	}
}

// awaitWork returns when there are requests, or false when the engine is closed and gets none.
func (e *Engine) awaitWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for (len(e.live) == 0 || e.offload.nothingToDo()) && !e.over() {
		e.showMemory(true)
		e.waits.Store(0)
		e.changed.Wait()
	}
	if len(e.live) == 0 {
		e.waits.Store(0)
		return false
	}
	e.waits.CompareAndSwap(0, time.Now().UnixNano())
	return true
}

// schedule makes the next step while the workers compute current, which may be nil. It
// returns nil if nothing can run.
func (e *Engine) schedule(current *step) *step {
	s := &e.steps[0]
	if s == current {
		s = &e.steps[1]
	}
	s.report = StepReport{}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.sched.Schedule(&s.plan); err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
	e.offload.start(&s.plan)
	e.buildBatch(s)
	e.noteSchedule(s)
	if len(s.plan.Rows) == 0 {
		e.preempted += len(s.plan.Preempted)
		return nil
	}
	s.report.Preempted, s.report.Tokens = e.preempted+len(s.plan.Preempted), s.plan.NumScheduledTokens
	e.preempted = 0
	return s
}

// launch gives a step to the workers.
func (e *Engine) launch(s *step) {
	s.launched = time.Now()
	s.begun = s.launched
	e.workers.start(&s.message)
}

// A draw is what is taken from a few rows of logits: the next token of a row, or several with
// drafts, or the log probability of a token of its prompt.
type draw struct {
	row      int
	from, to int // logits of the step
	place    int // in the prompt; 0: the next token
	finite   bool
}

// maxLogits is how many rows of logits are held at a time. It is at least what a draw takes, and large
// enough that multiplying, not reading the matrix, takes the time.
const maxLogits = 64

// nextLogits moves on to the next logits to compute, and reports whether there are any.
func (s *step) nextLogits() bool {
	m := &s.message
	m.from, s.first = m.to, s.last
	for s.last < len(s.draws) && s.draws[s.last].to-m.from <= maxLogits {
		m.to = s.draws[s.last].to
		s.last++
	}
	return s.last > s.first
}

// advance waits for s, samples it, and starts the step after it if that could be scheduled
// meanwhile; then it delivers what was sampled.
func (e *Engine) advance(s *step) (next *step) {
	e.workers.awaitNearEnd()
	if e.async && !s.forks() {
		next = e.schedule(s)
	}
	if err := e.sampleAll(s); err != nil {
		e.fail(s, err)
		return nil
	}
	if next != nil {
		next.fill()
		if e.config.Remote != nil {
			e.offload.store(s, next)
		}
		e.launch(next)
		s.report.Elapsed = next.begun.Sub(s.begun)
	}
	e.finish(s, next)
	return next
}

// sampleAll waits for s, and samples it some logits at a time, whose memory the next ones get.
func (e *Engine) sampleAll(s *step) error {
	for asked := s.launched; ; {
		output, computedAt, err := e.workers.wait()
		s.report.Model += computedAt.Sub(asked)
		if err != nil {
			return err
		}
		e.sample(s, output)
		asked = time.Now()
		if !s.nextLogits() {
			break
		}
		e.workers.start(&s.message)
	}
	for i := range s.rows {
		r := &s.rows[i]
		r.q.stream.scored = max(r.q.stream.scored, r.scored)
	}
	return nil
}

// forks reports whether answers will be forked after s, which they can be with no other step in
// flight.
func (s *step) forks() bool {
	for i := range s.rows {
		if r := &s.rows[i]; r.last && r.q.waiting > 0 {
			return true
		}
	}
	return false
}

// fill puts the tokens that were sampled since in the place of placeholders.
func (s *step) fill() {
	for i := range s.rows {
		if r := &s.rows[i]; r.placeholder >= 0 {
			s.message.batch.Tokens[r.placeholder] = r.q.sampled
		}
	}
}

// finish tells the scheduler and the users what came out of s.
func (e *Engine) finish(s, next *step) {
	if next == nil || e.config.Remote == nil {
		e.offload.store(s, next)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.update(s)
	e.propose(s)
	report := &s.report
	stats := e.sched.Monitor.TakeStats()
	report.CacheQueries, report.CacheHits = stats.Queries, stats.Hits
	external := e.sched.Monitor.TakeCounters().External
	report.ExternalQueries, report.ExternalHits = external.Queries, external.Hits
	if next == nil {
		report.Elapsed = time.Since(s.begun)
	}
	e.offload.measure(report)
	e.offload.wake()
	e.observer.Step(*report)
	e.publish()
	e.showMemory(false)
	e.waits.Store(time.Now().UnixNano())
}

// publish gives the events of the cache away.
func (e *Engine) publish() {
	if to := e.config.KVEvents; to != nil {
		e.sched.Monitor.TakeEvents(&e.events)
		// An error means that the publisher is closed; then the events are not needed.
		_ = to.Publish(time.Now(), &e.events)
	}
}

// fail ends all requests of a step that could not be computed. Blocks that it should have
// written, or a step scheduled after it, cannot be hit.
func (e *Engine) fail(s *step, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range s.rows {
		e.failAnswers(s.rows[i].q.stream, fmt.Errorf("the model failed: %w", cause))
	}
	if err := e.sched.StepFailed(); err != nil {
		panic("engine: " + err.Error()) // only this package's own mistakes lead there
	}
	e.offload.wake()
	e.publish() // what the step should have written is not in the cache
	e.waits.Store(time.Now().UnixNano())
}
