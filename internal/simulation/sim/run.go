package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/workload"
)

// Config describes a run.
type Config struct {
	Server   Server
	Decoding Decoding
	Cost     *cost.Model
	Seed     uint64 // of beams and drafts

	// Result.Window covers the iterations that begin at From or later and before Until, in seconds. If Until is 0, it
	// has no end. If Stop is true, the run ends at Until, even if requests are not answered; otherwise it ends when
	// all requests are answered.
	From, Until float64
	Stop        bool

	// MaxConcurrency is the highest number of requests that are sent and not answered. Further requests wait
	// at the clients, and their latency begins when they are sent. 0 means no limit.
	MaxConcurrency int

	Goodput Goodput

	// Ample asks for a faster scheduler. It assumes that memory is never short and no request shares a block. If this
	// is so, the results are the same. If not, Run returns ErrAmple, and the caller must run again without Ample.
	Ample bool

	// Functions that are called during the run; each may be nil. Observe is called once, before the first request.
	Observe  func(serve.Scheduler) (Observer, error)
	Departed func(Departure)                          // called for each request that leaves
	First    func(index int, now float64)             // called for a prompt's first token, or for that of each answer if System.Groups is false
	Progress func(now float64, arrived, answered int) // called from time to time
}

// ErrStuck is wrapped when requests can never be answered. Either none of the waiting requests can ever run, or the
// running requests never generate a token.
var ErrStuck = errors.New("nothing can run")

// Run serves the requests of a source. If ctx is canceled, Run returns ctx's error and the result so far.
func Run(ctx context.Context, config Config, source workload.Source) (*Result, error) {
	r, err := newRun(config, source)
	if err != nil {
		return nil, err
	}
	err = r.serve(ctx)
	return r.result(), err
}

// NewScheduler returns the scheduler that Run uses for a server.
func NewScheduler(s Server, drafts int) (serve.Scheduler, error) {
	kind, err := Lookup(s.System)
	if err != nil {
		return nil, err
	}
	return kind.new(s.Complete(), drafts)
}

func (kind *System) new(s Server, drafts int) (serve.Scheduler, error) {
	if max(s.NumGPUBlocks, s.NumCPUBlocks) > maxBlocks {
		return nil, fmt.Errorf("%w: %d blocks and %d on the CPU: want at most %d", ErrConfig, s.NumGPUBlocks, s.NumCPUBlocks,
			maxBlocks)
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

// maxWaiting limits the unanswered prompts to about 1 GB.
const maxWaiting = 1 << 22

// maxBlocks is more than any GPU has.
const maxBlocks = 1 << 25

// A run is a simulation in progress.
type run struct {
	config      Config
	kind        *System
	scheduler   serve.Scheduler
	beams       serve.GroupScheduler // nil without beams
	drafts      serve.Speculator     // nil without drafts
	observer    Observer             // may be nil
	clients     *Clients
	rng         *rand.Rand
	requests    requestTable
	readsTokens bool

	now               float64
	stepsWithoutToken int // iterations since a token was generated or a request was ignored

	ample *ampleScheduler // with Config.Ample, instead of scheduler
	step  ampleStep
	ended []int32

	iter     serve.Iteration
	reforks  serve.Iteration // block copies of beams after an iteration
	done     []int
	answered []int

	replaced  []bool // by beam of a request
	survivors []int  // beams that are not replaced

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
		window: window{start: config.From, end: config.Until},
	}
	r.requests.server, r.requests.kind = &r.config.Server, kind
	r.latencies.goodput = config.Goodput
	makeScheduler := r.schedule
	if config.Ample {
		makeScheduler = r.startAmple
	}
	if err := makeScheduler(); err != nil || source == nil { // a Replica has no source
		return r, err
	}
	r.clients, err = NewClients(source, config.MaxConcurrency)
	return r, err
}

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

func (r *run) arrive() error { return r.clients.SendDue(r.now, &r.requests.live, r.add) }

// add passes a request to the scheduler: once, or once for each answer if the scheduler has no groups.
func (r *run) add(incoming *workload.Request) error {
	each, requests := r.config.Decoding.Samples, 1
	if !r.kind.Groups {
		each, requests = 1, each
	}
	if r.requests.live >= maxWaiting {
		return fmt.Errorf("%w: %d requests wait at %.3f s, far more than are served: take a lower rate", ErrConfig,
			r.requests.live, r.now)
	}
	index := r.r.Arrived
	r.r.Arrived++
	group := reqtable.None
	for sample := range requests {
		i := r.requests.insert(incoming, each, group)
		q := &r.requests.all[i]
		q.index = int32(index)
		if r.ample != nil {
			return r.addAmple(i, incoming)
		}
		if r.readsTokens {
			q.tokens = tokens(q.tokens, incoming, index, sample)
		}
		err := r.scheduler.Add(serve.Request{ID: int(i), Prompt: q.prompt, Output: q.output, Seqs: each, Tokens: q.tokens})
		if err != nil {
			refused := *q
			r.requests.remove(i)
			if !errors.Is(err, serve.ErrRequest) || sample > 0 {
				return err
			}
			r.depart(&refused, false)
			if r.r.Refused++; r.r.Refused == 1 {
				r.r.Refusal = err.Error()
			}
			return nil
		}
		group = r.requests.all[i].group
	}
	return nil
}

// tokens appends to dst, which must be empty, the tokens of a request's prompt and of one of its answers. answer is the
// number of this answer. Answers to one prompt differ from the first token on. index is the number of the request.
func tokens(dst []int32, r *workload.Request, index, answer int) []int32 {
	dst = workload.Tokens(dst, r, index)
	for i := r.Prompt; i < len(dst) && answer > 0; i++ {
		dst[i] ^= int32(answer) << 20
	}
	return dst
}

// result returns the result so far. It is a copy, so that the garbage collector can free the run.
func (r *run) result() *Result {
	result := r.r
	result.Seconds = r.now
	r.latencies.Fill(&result)
	result.Window = r.window.average()
	return &result
}
