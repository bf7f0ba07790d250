package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model"
)

// A step holds the plan, the input and the results of one step. Its arrays are reused by later steps.
type step struct {
	plan    sched.Step
	rows    []row
	input   modelInput
	draws   []draw
	choices []sampling.Choice // of the first logits, if a Device chooses their tokens
	first   int               // draws[first:last] are sampled next, from the logits [input.start, input.end)
	last    int
	counts  []int32
	sampled []int32
	outcome sched.Outcome
	drafts  int // elements of plan.Drafts that rows have used

	begun    time.Time // its launch, or its scheduling if no other step was running
	launched time.Time
	report   StepReport
}

// A row is a sequence in a step.
type row struct {
	q           *sequence
	computed    int     // tokens computed before the step
	scored      int     // tokens of the prompt with known log probabilities after the step; 0 if not requested
	last        bool    // the row's last token is the sequence's last one, so the step samples the token after it
	placeholder int     // index in the batch of the token that the step before has not sampled yet, or -1
	drafts      []int32 // speculative tokens, the last of the row
	firstState  int     // the hidden states [firstState, endState) of the batch are pooled
	endState    int
	pooled      int     // position in the prompt of the token of the first of these states
	tokens      []Token // sampled tokens: one for each answer of the request, or with drafts several for one answer
}

// loop runs steps until the engine is closed. Up to two steps are in flight (vLLM's asynchronous scheduling).
// While the workers compute step k, the loop delivers the tokens of step k-1 and schedules step k+1, with
// placeholders for the tokens that step k will sample. When these are sampled, they replace the placeholders,
// and step k+1 starts. If a sequence has ended meanwhile, the result of its row in step k+1 is discarded.
//
// A step on a CPU takes much longer than scheduling the next one. Step k+1 is therefore scheduled late: when
// the workers have computed all layers of step k and begin the logits. Requests that arrive before then are
// in step k+1.
//
// On a Device, step k+1 is scheduled as soon as step k is launched. If the device chooses the tokens of step k, step
// k+1 is launched before step k ends. The device is then not idle between the steps. How the tokens of step k are chosen
// is sent when the tokens of step k-1 are known, since masks and penalties depend on them; meanwhile the device computes
// the layers of step k. If the device does not choose the tokens, the loop only sends the inputs of step k+1 before step
// k ends.
func (e *Engine) loop() {
	defer close(e.stopped)
	var current *step
	for {
		if current == nil {
			if !e.awaitWork() {
				return
			}
			if !e.awake() {
				continue
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

// awaitWork waits for requests, or until the engine shall wake up. It returns false if the engine is closed and has no
// requests.
func (e *Engine) awaitWork() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for (len(e.live) == 0 || e.offload.nothingToDo()) && !e.canEnd() && !e.sleep.wake {
		e.showMemory(true)
		e.lastStep.Store(0)
		if !e.idle() {
			e.changed.Wait()
		}
	}
	e.busy()
	if e.canEnd() {
		e.lastStep.Store(0)
		return false
	}
	e.lastStep.CompareAndSwap(0, time.Now().UnixNano())
	return true
}

// schedule makes the next step. current is the step that the workers compute meanwhile, or nil. schedule returns
// nil if no request can run.
func (e *Engine) schedule(current *step) *step {
	s := &e.steps[0]
	if s == current {
		s = &e.steps[1]
	}
	s.report = StepReport{}
	e.mu.Lock()
	defer e.mu.Unlock()
	must(e.sched.Schedule(&s.plan))
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

// must panics if err is not nil. The scheduler refuses a call only if this package has a defect.
func must(err error) {
	if err != nil {
		panic("engine: " + err.Error())
	}
}

func (e *Engine) launch(s *step) {
	s.launched = time.Now()
	s.begun = s.launched
	e.workers.start(&s.input)
}

// A draw takes one result from consecutive rows of logits. For a row of a step, the result is the tokens that the row
// samples. These are one token, or several if the row has drafts or the request wants several answers. For a token of
// a prompt, the result is the log probability of that token.
type draw struct {
	row        int
	start, end int   // the logits [start, end) of the step
	position   int   // of the token in the prompt; 0 for the next token
	err        error // why nothing could be taken
}

// nextLogits selects the next rows of logits to compute, at most maxRows, and reports whether there are any.
func (s *step) nextLogits(maxRows int) bool {
	m := &s.input
	m.start, s.first = m.end, s.last
	for s.last < len(s.draws) && s.draws[s.last].end-m.start <= maxRows {
		m.end = s.draws[s.last].end
		s.last++
	}
	return s.last > s.first
}

// advance waits until s is computed, and samples and delivers its tokens. If possible, it schedules the next step
// before s ends. It launches the next step after sampling, or at once if a Device chooses the tokens of s. It returns
// the next step, or nil if there is none or s has failed.
func (e *Engine) advance(s *step) (next *step) {
	e.prepareMasks(s)
	e.chooseOnDevice(s)
	e.workers.awaitNearEnd()
	if e.async && !s.forks() {
		next = e.schedule(s)
	}
	follows := next != nil && e.followsOnDevice(s)
	queued := follows && s.linkPlaceholders(next)
	switch {
	case queued:
		e.launch(next)
	case follows:
		e.workers.prepare(&next.input)
	}
	ended, err := e.sampleAll(s)
	switch {
	case err != nil:
		if queued {
			_, _, _ = e.workers.wait() // its requests fail with those of s
		}
		e.fail(s, err)
		return nil
	case queued:
		next.begun, next.launched = ended, ended
		s.report.Elapsed = ended.Sub(s.begun)
	case next != nil:
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

// sampleAll waits for the logits of s and samples from them. The result ended is the time when the last logits were
// computed.
func (e *Engine) sampleAll(s *step) (ended time.Time, err error) {
	for asked := s.launched; ; {
		var output modelOutput
		if output, ended, err = e.workers.wait(); err != nil {
			return ended, err
		}
		s.report.Model += ended.Sub(asked)
		if s.input.start == 0 {
			s.pool(output.states, e.config.Model.HiddenSize)
		}
		e.sample(s, output)
		asked = time.Now()
		if !s.nextLogits(e.config.maxLogits()) {
			break
		}
		e.workers.start(&s.input)
	}
	for i := range s.rows {
		r := &s.rows[i]
		r.q.stream.scored = max(r.q.stream.scored, r.scored)
	}
	return ended, nil
}

// followsOnDevice reports whether the inputs of the next step can be sent to a device before s ends. They
// cannot be sent if s has more logits or states than are computed with the layers, or if s could not be launched.
func (e *Engine) followsOnDevice(s *step) bool {
	return e.config.Device != nil && s.last == len(s.draws) && len(s.input.batch.States) <= e.config.maxLogits() && !e.workers.failed()
}

// linkPlaceholders fills the Placeholders of next, the step after s. The device will replace them by the tokens that
// it chooses for s. It returns false if this process must choose one of these tokens from its logits.
func (s *step) linkPlaceholders(next *step) bool {
	for i, d := range s.draws {
		if d.position == 0 {
			s.rows[d.row].q.lastDraw = i
		}
	}
	b := &next.input.batch
	for i := range next.rows {
		r := &next.rows[i]
		if r.placeholder < 0 {
			continue
		}
		logits := s.draws[r.q.lastDraw].start
		if logits >= len(s.choices) || s.choices[logits].Params == nil {
			b.Placeholders = b.Placeholders[:0]
			return false
		}
		b.Placeholders = append(b.Placeholders, model.Placeholder{Token: int32(r.placeholder), Logits: int32(logits)})
	}
	return true
}

// forks reports whether answers will be forked after s. No other step may be in flight during a fork.
func (s *step) forks() bool {
	return slices.ContainsFunc(s.rows, func(r row) bool { return r.last && r.q.waiting > 0 })
}

// fill replaces placeholders by the tokens sampled meanwhile.
func (s *step) fill() {
	for i := range s.rows {
		if r := &s.rows[i]; r.placeholder >= 0 {
			s.input.batch.Tokens[r.placeholder] = r.q.sampled
		}
	}
}

// finish reports the tokens of s to the scheduler, the streams and the observer.
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
	e.lastStep.Store(time.Now().UnixNano())
}

// publish publishes the events of the prefix cache.
func (e *Engine) publish() {
	if publisher := e.config.KVEvents; publisher != nil {
		e.sched.Monitor.TakeEvents(&e.events)
		_ = publisher.Publish(time.Now(), &e.events) // fails only if the publisher is closed and no one reads the events
	}
}

// fail ends all requests of a step that could not be computed. It removes from the prefix cache the blocks that this
// step, or the step scheduled after it, should have written.
func (e *Engine) fail(s *step, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.config.Device != nil && !errors.Is(cause, model.ErrBatch) {
		e.deviceFailed(&DeviceFailure{Cause: cause})
	}
	for i := range s.rows {
		e.failAnswers(s.rows[i].q.stream, fmt.Errorf("the model failed: %w", cause))
	}
	must(e.sched.StepFailed())
	e.offload.wake()
	e.publish()
	e.lastStep.Store(time.Now().UnixNano())
}
