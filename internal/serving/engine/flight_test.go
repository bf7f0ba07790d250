package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
)

// A relay passes steps from an engine to its worker, and calls the test's functions in each step.
type relay struct {
	steps    int
	nearEnd  func(step int, m *modelInput) // before the engine learns that the step is near its end
	computed func(step int, m *modelInput) error
}

// startRelayed starts an engine with the hand-built model. Its steps go through the relay r.
func startRelayed(t *testing.T, r *relay, change func(*Config)) *Engine {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := HandBuilt()
	require.NoError(t, err)
	c := Config{Model: m, Tokenizer: induction.Tokenizer(), Pool: pool, KVCacheBytes: 8 << 20, MaxModelLen: 200}
	if change != nil {
		change(&c)
	}
	e, err := New(c, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	real := e.workers[0]
	w := &worker{inputs: make(chan *modelInput), results: make(chan workerResult), nearEnd: make(chan struct{}, 1), runner: real.runner}
	e.workers = workers{w}
	go func() {
		defer close(real.inputs)
		for m := range w.inputs {
			real.inputs <- m
			if m.start == 0 {
				r.steps++
				<-real.nearEnd
				if r.nearEnd != nil {
					r.nearEnd(r.steps, m)
				}
				w.nearEnd <- struct{}{}
			}
			c := <-real.results
			if r.computed != nil {
				if err := r.computed(r.steps, m); err != nil {
					c = workerResult{modelOutput{}, err, time.Now()}
				}
			}
			w.results <- c
		}
	}()
	return e
}

const knowledge = "The code is 7Kx-31. "

func request(prompt string, maxTokens int) Request {
	r := Request{MaxTokens: maxTokens, Params: sampling.Default()}
	r.Temperature = 0
	for _, b := range []byte(prompt) {
		r.Prompt = append(r.Prompt, int32(b))
	}
	return r
}

func ask(t *testing.T, e *Engine, prompt string, maxTokens int) *Stream {
	s, err := e.Submit(request(prompt, maxTokens))
	require.NoError(t, err)
	return s
}

func answer(t *testing.T, s *Stream) (text string, err error) {
	for {
		events, failed := s.Next(context.Background())
		require.NoError(t, failed)
		if events == nil {
			return text, err
		}
		for _, event := range events {
			text += event.Text
			err = errors.Join(err, event.Err)
		}
	}
}

// inFlight waits until n steps are in flight.
func inFlight(e *Engine, n int) {
	for e.sched.Monitor.Load().InFlight < n {
		time.Sleep(50 * time.Microsecond)
	}
}

// Ensure that while the workers compute a step, the engine schedules the next step and delivers the tokens of the
// previous one. The next step has a placeholder for the token that is not sampled yet. With NoAsyncScheduling at most
// one step may be in flight.
func TestTheNextStepIsScheduledWhileOneIsComputed(t *testing.T) {
	var e *Engine
	r := &relay{}
	together := 0
	r.computed = func(step int, _ *modelInput) error {
		if step < 10 {
			inFlight(e, 2)
			together++
		}
		return nil
	}
	e = startRelayed(t, r, nil)
	got, err := answer(t, ask(t, e, knowledge+"The code", 11))
	require.NoError(t, err)
	require.Equal(t, " is 7Kx-31.", got)
	require.Equal(t, 9, together)
	require.Equal(t, 11, r.steps, "no step is computed for nothing: the scheduler knows where an answer ends")

	r = &relay{}
	most := 0
	r.computed = func(int, *modelInput) error {
		most = max(most, e.sched.Monitor.Load().InFlight)
		return nil
	}
	e = startRelayed(t, r, func(c *Config) { c.NoAsyncScheduling = true })
	got, _ = answer(t, ask(t, e, knowledge+"The code", 11))
	require.Equal(t, " is 7Kx-31.", got)
	require.Equal(t, 1, most)
}

// Ensure that if a request is submitted while the layers of a step are computed, it is in the next step.
func TestARequestIsInTheNextStepIfItComesBeforeTheLogits(t *testing.T) {
	var e *Engine
	var late *Stream
	r := &relay{}
	tokens := map[int]int{}
	r.nearEnd = func(step int, m *modelInput) {
		tokens[step] = len(m.batch.Tokens)
		if step == 3 {
			late = ask(t, e, knowledge+"The code", 3)
		}
	}
	e = startRelayed(t, r, nil)
	_, err := answer(t, ask(t, e, knowledge+"The code", 11))
	require.NoError(t, err)
	got, err := answer(t, late)
	require.NoError(t, err)
	require.Equal(t, " is", got)
	require.Equal(t, 1, tokens[3])
	require.Greater(t, tokens[4], 10, "a decode and a prompt, of which a block was computed before")
}

// Ensure that when an answer ends with a stop string, its row in the step in flight has no effect. The scheduler
// does not know stop strings, so it has scheduled that row.
func TestAStopStringVoidsTheRowInFlight(t *testing.T) {
	var e *Engine
	r := &relay{computed: func(step int, _ *modelInput) error {
		if step < 4 {
			inFlight(e, 2)
		}
		return nil
	}}
	e = startRelayed(t, r, nil)
	stopped := request(knowledge+"The code", 50)
	stopped.Stop = []string{"is"}
	s, err := e.Submit(stopped)
	require.NoError(t, err)
	got, err := answer(t, s)
	require.NoError(t, err)
	require.Equal(t, " ", got)
	requireDrained(t, e)
	require.Equal(t, 4, r.steps, "three tokens, and a void row")
}

// Ensure that when a step fails after the next one is scheduled, the requests of the failed step end with the
// error. A request that is only in the next step is answered, and no block is lost.
func TestAFailedStepVoidsTheNextOne(t *testing.T) {
	var e *Engine
	var late *Stream
	broken := errors.New("broken")
	r := &relay{}
	r.nearEnd = func(step int, _ *modelInput) {
		if step == 3 {
			late = ask(t, e, knowledge+"The code", 11)
		}
	}
	r.computed = func(step int, _ *modelInput) error {
		if step == 3 {
			inFlight(e, 2)
			return broken
		}
		return nil
	}
	e = startRelayed(t, r, nil)
	got, err := answer(t, ask(t, e, knowledge+"The code", 11))
	require.ErrorIs(t, err, broken)
	require.Equal(t, " i", got)
	got, err = answer(t, late)
	require.NoError(t, err)
	require.Equal(t, " is 7Kx-31.", got)
	requireDrained(t, e)
}

// requireDrained waits until no step is in flight, and requires that all blocks are free then.
func requireDrained(t *testing.T, e *Engine) {
	for e.sched.Monitor.Load().InFlight > 0 {
		time.Sleep(50 * time.Microsecond)
	}
	l := e.Load()
	require.Zero(t, l.Running+l.Waiting+l.Deferred)
	require.Equal(t, l.Blocks, l.FreeBlocks)
	require.NoError(t, e.sched.Check())
}

// A blackboard is an EventPublisher. It counts in hashes how often each hash is in the prefix cache, according to the
// events that the engine publishes.
type blackboard struct {
	mu     sync.Mutex
	hashes map[blockhash.Hash]int
	stored int
}

func (b *blackboard) SetGroups([]kvcache.Group) {}

func (b *blackboard) Publish(_ time.Time, events *pool.Events) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range events.List {
		v := &events.List[i]
		for _, h := range events.Hashes(v) {
			if v.Kind == pool.Stored {
				b.hashes[h]++
				b.stored++
			} else {
				b.hashes[h]--
			}
		}
	}
	return nil
}

// Ensure that the events of a failed step are published immediately, because there may be no later
// step.
func TestTheBlocksOfAFailedStepAreRemovedAtOnce(t *testing.T) {
	b := &blackboard{hashes: map[blockhash.Hash]int{}}
	var e *Engine
	broken := errors.New("broken")
	r := &relay{computed: func(step int, _ *modelInput) error {
		if step == 1 {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.publish() // as the update of a step before would have
			return broken
		}
		return nil
	}}
	e = startRelayed(t, r, func(c *Config) { c.KVEvents = b })
	_, err := answer(t, ask(t, e, knowledge+"The code", 11))
	require.ErrorIs(t, err, broken)
	requireDrained(t, e)
	e.mu.Lock() // the step has failed as a whole
	defer e.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NotZero(t, b.stored)
	for h, n := range b.hashes {
		require.Zero(t, n, "%x", h)
	}
}
