package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/kvstore"
)

// An Engine answers requests. Its methods are safe for concurrent use.
type Engine struct {
	config  Config
	store   kvstore.Config
	workers workers // nil while the engine sleeps
	sched   *sched.Scheduler

	mu        sync.Mutex // protects the fields up to sleep; not held while the model computes
	changed   sync.Cond  // signalled when there may be work, and when the engine closes
	live      map[sched.ID]*sequence
	closed    bool // Submit refuses requests
	canceling bool // Drain cancels requests, and Series.Submit refuses them, too
	series    int  // series that have begun and not ended
	unforked  int  // answers that will be forked from the first answer to their request
	observer  Observer
	memory    MemoryObserver // may be nil
	change    MemoryChange
	events    pool.Events
	number    int      // requests submitted so far
	offload   *offload // nil without tiers
	failure   error    // a *DeviceFailure or nil
	sleep     sleepState

	// lastStep is the time, in Unix nanoseconds, when the last step ended or, after an idle time, when a request
	// arrived. It is 0 while the engine has no work.
	lastStep atomic.Int64

	stopped chan struct{} // closed when the loop has ended
	release func() error  // closes the tiers and workers; runs once

	// Only the loop uses these fields.
	async     bool // two steps are in flight
	steps     [2]step
	sampling  sampleJob
	proposal  proposal
	preempted int // requests preempted in steps without rows
}

// New makes an engine and starts its loop. observer may be nil.
func New(config Config, observer Observer) (*Engine, error) {
	if want := config.Model.Part().Size; want != config.workers() {
		return nil, fmt.Errorf("%w: a model of %d parts for %d workers", ErrConfig, want, config.workers())
	}
	if config.Remote != nil && len(config.Peers) > 0 {
		return nil, fmt.Errorf("%w: with a Remote, each process has one worker, so there can be no Peers", ErrConfig)
	}
	if n := config.Model.Adapters(); n != len(config.Adapters) {
		return nil, fmt.Errorf("%w: a model with %d adapters, and the texts of %d", ErrConfig, n, len(config.Adapters))
	}
	store, err := config.complete(&config.Model.Config, config.workers())
	if err != nil {
		return nil, err
	}
	ends := slices.Concat(config.End, config.Model.End, config.Tokenizer.Ends()) // as in vLLM
	slices.Sort(ends)
	config.End = slices.DeleteFunc(slices.Compact(ends), func(id int32) bool { return int(id) >= config.Model.VocabSize })
	e := &Engine{config: config, store: store, sleep: sleepState{changed: make(chan struct{})}, live: map[sched.ID]*sequence{}, observer: observer, stopped: make(chan struct{})}
	e.changed.L = &e.mu
	if observer == nil {
		e.observer = NoObserver{}
	}
	if e.sched, err = config.scheduler(store.NumBlocks); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if e.workers, err = newWorkers(&config, store); err != nil {
		return nil, err
	}
	e.offload = e.newOffload(store.BlockBytes() * config.workers())
	e.sampling.init(config.Pool)
	e.release = sync.OnceValue(func() error { return errors.Join(e.offload.close(), e.workers.close()) })
	e.async = config.asyncScheduling()
	go e.loop()
	return e, nil
}

// Config returns the configuration with defaults filled in.
func (e *Engine) Config() Config { return e.config }

// Submit adds a request. If it refuses the request, it returns an error of Request.Check, ErrBusy, ErrClosed or a
// *DeviceFailure.
func (e *Engine) Submit(r Request) (*Stream, error) { return e.submit(r, nil) }

// submit adds a request, which belongs to series unless series is nil.
func (e *Engine) submit(r Request, series *Series) (*Stream, error) {
	r.N = max(r.N, 1)
	if err := r.Check(e.config.MaxModelLen, e.config.Model.VocabSize); err != nil {
		return nil, err
	}
	if n := len(e.config.Adapters); r.Adapter < 0 || r.Adapter > n {
		return nil, bad("model", "There is no adapter %d; there are %d.", r.Adapter, n)
	}
	if r.Pooling != "" {
		r = Request{
			Prompt: r.Prompt, Pooling: r.Pooling, Adapter: r.Adapter, CacheSalt: r.CacheSalt,
			N: 1, MaxTokens: 1, Params: sampling.Default(),
		}
	}
	s := &Stream{engine: e, request: &r, open: r.N, wake: make(chan struct{}, 1)}
	maxTokens := min(r.MaxTokens, e.config.MaxModelLen-len(r.Prompt))
	q := &sequence{
		tables: make([][]int32, len(e.config.groups)), stream: s, params: r.Params, tokens: slices.Clone(r.Prompt), prompt: len(r.Prompt), maxTokens: maxTokens,
		waiting: r.N - 1, text: text{stops: r.Stop, include: r.IncludeStop}, arrived: time.Now(),
	}
	if r.Pooling != "" {
		q.pool = pooling.New(r.Pooling)
	}
	q.ends = slices.Clone(r.StopTokenIDs)
	if !r.IgnoreEOS {
		q.ends = append(q.ends, e.config.End...)
	}
	switch {
	case r.Matcher != nil:
		q.matcher = r.Matcher.Fork()
	case r.Constraint != nil:
		q.matcher = r.Constraint.NewMatcher()
	}
	s.answers = append(s.answers, q)
	for i := 1; i < r.N; i++ {
		s.answers = append(s.answers, q.fork(i))
	}
	external := e.offload.find(q)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuses(series); err != nil {
		e.offload.release(q)
		return nil, err
	}
	id, err := e.sched.Add(sched.Spec{
		Tokens: r.Prompt, MaxTokens: maxTokens, MinTokens: min(r.MinTokens, maxTokens), Stop: q.ends, NoRead: r.needsAllStates(),
		Extras: e.extras(&r), LoRAID: int64(r.Adapter), External: external,
	})
	if err != nil {
		e.offload.release(q)
		return nil, err
	}
	e.number++
	s.number = e.number
	q.id = id
	e.live[id] = q
	e.unforked += q.waiting
	e.offload.wake()
	e.changed.Signal()
	return s, nil
}

// extras returns what the hashes of a request's blocks depend on besides the tokens.
func (e *Engine) extras(r *Request) blockhash.Extras {
	x := blockhash.Extras{Salt: r.CacheSalt}
	if r.Adapter > 0 {
		x.LoRA = e.config.Adapters[r.Adapter-1]
	}
	return x
}

// cancel ends all answers of a stream.
func (e *Engine) cancel(s *Stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endAnswers(s, ErrCanceled, "abort")
}

// ErrCanceled is the error of answers that Stream.Cancel has ended.
var ErrCanceled = errors.New("canceled")

// drop ends a sequence and frees its blocks. If a step in flight writes to a block, the scheduler does not give the
// block to another request before that step ends.
func (e *Engine) drop(q *sequence) {
	q.done = true
	e.offload.release(q)
	e.offload.wake()
	e.noteLeft(q.stream)
	if q.id != 0 {
		e.sched.Abort(q.id)
		delete(e.live, q.id)
		q.id = 0
		e.unforked -= q.waiting
	}
}

// Drain refuses new requests and waits until the accepted requests are answered. If done is closed before that, Drain
// cancels them. Then it closes the tiers and frees the workers' memory.
func (e *Engine) Drain(done <-chan struct{}) error {
	e.mu.Lock()
	e.closed = true
	e.changed.Broadcast()
	e.mu.Unlock()
	select {
	case <-e.stopped:
	case <-done:
		e.mu.Lock()
		e.canceling = true
		e.changed.Broadcast()
		for _, q := range e.live {
			go q.stream.Cancel()
		}
		e.mu.Unlock()
		<-e.stopped
	}
	return e.release()
}

// Close cancels all requests; otherwise it is like Drain.
func (e *Engine) Close() error {
	now := make(chan struct{})
	close(now)
	return e.Drain(now)
}

// Load returns the numbers of requests and blocks in use.
func (e *Engine) Load() sched.Load { return e.sched.Monitor.Load() }

// SinceStep returns how long the engine has had work without finishing a step, or 0 if it has no work. It does not
// take the engine's lock.
func (e *Engine) SinceStep() time.Duration {
	since := e.lastStep.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, since)))
}
