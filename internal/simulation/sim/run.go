package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v1/ample"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/workload"
)

// Config describes a run.
type Config struct {
	Server   Server
	Decoding Decoding
	Cost     *cost.Model
	Seed     uint64 // of beams and drafts

	// From and Until are the window of Result.Window, in seconds; an Until of 0
	// is the end. With Stop the run ends at Until, and what is not answered then
	// never is; else it goes on until all that arrives is answered.
	From, Until float64
	Stop        bool

	// MaxConcurrency is how many requests are sent and not answered at most; others wait
	// with the clients, and their latency begins when they are sent. 0: any number.
	MaxConcurrency int

	Goodput Goodput

	// Ample takes for granted that memory is never short and that requests share nothing,
	// which makes a run many times as fast and changes nothing in what is reported. Where
	// that is not so, Run ends with ErrAmple: what it has reported by then is void, and
	// the run has to be made without Ample.
	Ample bool

	// Observe, if not nil, is called with the scheduler before the first request.
	Observe  func(serve.Scheduler) (Observer, error)
	Left     func(Departure)                          // nil; called for each request that leaves
	First    func(index int, now float64)             // nil; called for the first token of each answer
	Progress func(now float64, arrived, answered int) // nil; called now and then
}

// ErrStuck is wrapped when requests wait and nothing will ever run, or when what
// runs never gets to a token.
var ErrStuck = errors.New("nothing can run")

// Run serves the requests of a source. It ends with the context's error if that
// is done; the result is then of what has been run.
func Run(ctx context.Context, config Config, source workload.Source) (*Result, error) {
	r, err := newRun(config, source)
	if err != nil {
		return nil, err
	}
	err = r.serve(ctx)
	return r.result(), err
}

// NewScheduler makes the scheduler of a server, as Run does.
func NewScheduler(s Server, drafts int) (serve.Scheduler, error) {
	kind, err := Lookup(s.System)
	if err != nil {
		return nil, err
	}
	return kind.new(s.Complete(), drafts)
}

func (kind *System) new(s Server, drafts int) (serve.Scheduler, error) {
	if max(s.NumGPUBlocks, s.NumCPUBlocks) > mostBlocks {
		return nil, fmt.Errorf("%w: %d blocks and %d on the CPU: want at most %d", ErrConfig, s.NumGPUBlocks, s.NumCPUBlocks,
			mostBlocks)
	}
	if w := s.Watermark; w != -1 && !(w >= 0 && w < 1) {
		return nil, fmt.Errorf("%w: a watermark of %v: want a part of the blocks, more than 0 and less than 1, or -1 for "+
			"none", ErrConfig, w)
	}
	scheduler, err := kind.build(s, drafts)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, s.System, err)
	}
	return scheduler, nil
}

// mostWaiting is how many prompts may be unanswered; these take about 1 GB.
const mostWaiting = 1 << 22

// mostBlocks is more than any GPU has, and not too many to count.
const mostBlocks = 1 << 25

// A run is a simulation in progress.
type run struct {
	config      Config
	kind        *System
	scheduler   serve.Scheduler
	beams       serve.GroupScheduler // nil: no beams
	drafts      serve.Speculator     // nil: no drafts
	observer    Observer             // nil: none
	clients     *Clients
	rng         *rand.Rand
	requests    requestTable
	readsTokens bool

	now               float64
	stepsWithoutToken int              // iterations since the last token, or since a request left
	incoming          workload.Request // the one that arrives

	ample *ample.Scheduler // with Config.Ample, in place of scheduler
	step  ample.Step
	ended []int32

	it       serve.Iteration
	reforks  serve.Iteration // copies that beams make after an iteration
	done     []int
	answered []int

	replaced  []bool // beams of a request
	survivors []int  // those that are not

	window    window
	latencies Latencies
	r         Result
}

func newRun(config Config, source workload.Source) (*run, error) {
	config.Server = config.Server.Complete()
	if config.Decoding.Samples == 0 {
		config.Decoding.Samples = 1
	}
	kind, err := Lookup(config.Server.System)
	if err != nil {
		return nil, err
	}
	if err := config.Decoding.check(kind); err != nil {
		return nil, err
	}
	if config.MaxConcurrency < 0 {
		return nil, fmt.Errorf("%w: %d requests at once: want at least 1, or 0 for any number", ErrConfig,
			config.MaxConcurrency)
	}
	if config.Cost == nil || math.IsNaN(config.From) || math.IsNaN(config.Until) || config.Stop && config.Until <= 0 {
		return nil, fmt.Errorf("%w: a cost model: %t, from %v s until %v s", ErrConfig, config.Cost != nil, config.From,
			config.Until)
	}
	r := &run{
		config: config, kind: kind,
		rng:    rand.New(rand.NewPCG(config.Seed, 0x6265616d73)),
		window: window{from: config.From, until: config.Until},
	}
	r.requests.server, r.requests.kind = &r.config.Server, kind
	r.latencies.goodput = config.Goodput
	makeScheduler := r.schedule
	if config.Ample {
		makeScheduler = r.countOnMemory
	}
	if err := makeScheduler(); err != nil || source == nil { // nil: a Replica, which is given its requests
		return r, err
	}
	r.clients, err = NewClients(source, config.MaxConcurrency)
	return r, err
}

// schedule makes the scheduler.
func (r *run) schedule() (err error) {
	c := &r.config
	if r.scheduler, err = r.kind.new(c.Server, c.Decoding.Drafts); err != nil {
		return err
	}
	r.readsTokens = c.Server.readsTokens(r.kind)
	if c.Decoding.Beam && c.Decoding.Samples > 1 {
		r.beams = r.scheduler.(serve.GroupScheduler)
		r.replaced = make([]bool, c.Decoding.Samples)
	}
	if c.Decoding.Drafts > 0 {
		r.drafts = r.scheduler.(serve.Speculator)
	}
	if c.Observe != nil {
		r.observer, err = c.Observe(r.scheduler)
	}
	return err
}

// serve runs until all requests are answered, or until Config.Until.
func (r *run) serve(ctx context.Context) error {
	for turn := 1; ; turn++ {
		if r.config.Stop && r.now >= r.config.Until {
			return nil
		}
		if turn%1024 == 0 {
			if r.config.Progress != nil {
				r.config.Progress(r.now, r.r.Arrived, r.r.Answered)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if err := r.arrive(); err != nil {
			return err
		}
		if r.requests.live == 0 {
			if r.clients.Done() {
				return nil
			}
			r.now = r.clients.Arrival()
			continue
		}
		iterate := r.iterate
		if r.ample != nil {
			iterate = r.iterateAmple
		}
		if err := iterate(); err != nil {
			return err
		}
	}
}

// arrive adds the requests that have been sent by now.
func (r *run) arrive() error {
	c := r.clients
	for !c.Done() && c.Arrival() <= r.now && !c.Full(r.requests.live) {
		ofSource := c.Take(&r.incoming)
		if err := r.add(); err != nil {
			return err
		}
		if ofSource {
			if err := c.Pull(); err != nil {
				return err
			}
		}
	}
	return nil
}

// add gives the scheduler the incoming request: one, or one for each answer.
func (r *run) add() error {
	each, requests := r.config.Decoding.Samples, 1
	if !r.kind.Groups {
		each, requests = 1, each
	}
	if r.requests.live >= mostWaiting {
		return fmt.Errorf("%w: %d requests wait at %.3f s, far more than are served: take a lower rate", ErrConfig,
			r.requests.live, r.now)
	}
	index := r.r.Arrived
	r.r.Arrived++
	group := reqtable.None
	for sample := range requests {
		at := r.requests.insert(&r.incoming, each, group)
		q := &r.requests.all[at]
		q.index = int32(index)
		if r.ample != nil {
			return r.addAmple(at)
		}
		if r.readsTokens {
			q.tokens = r.tokens(q.tokens, index, sample)
		}
		err := r.scheduler.Add(serve.Request{ID: int(at), Prompt: q.prompt, Output: q.output, Seqs: each, Tokens: q.tokens})
		if err != nil {
			refused := *q
			r.requests.remove(at)
			if !errors.Is(err, serve.ErrRequest) || sample > 0 {
				return err
			}
			r.depart(&refused, false)
			if r.r.Refused++; r.r.Refused == 1 {
				r.r.Refusal = err.Error()
			}
			return nil
		}
		group = r.requests.all[at].group
	}
	return nil
}

// tokens returns the tokens of a prompt and of one of its answers. Answers differ from their
// first token on.
func (r *run) tokens(dst []int32, index, sample int) []int32 {
	dst = workload.Tokens(dst, &r.incoming, index)
	for i := r.incoming.Prompt; i < len(dst) && sample > 0; i++ {
		dst[i] ^= int32(sample) << 20
	}
	return dst
}

// result returns a copy, which does not keep the run in memory.
func (r *run) result() *Result {
	result := r.r
	result.Seconds = r.now
	r.latencies.Fill(&result)
	result.Window = r.window.average()
	return &result
}
