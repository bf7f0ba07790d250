// Package scenario describes a simulation run as one value: numbers, and the names of a workload, a model, a
// GPU and a system. The result depends only on the scenario and the files that it names. It has the same
// bytes on all amd64 machines; other processors may round differently.
//
// The simulation is in package sim, and the paper's experiments are in package experiment.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

// ErrScenario is wrapped by errors about a Scenario itself. Errors about its system, workload or model wrap errors
// of other packages.
var ErrScenario = errors.New("bad scenario")

// A Scenario describes one run. Open sets fields that are zero to their defaults. The comments of the fields state
// the defaults.
type Scenario struct {
	Load
	Clients
	Machine
	Server   sim.Server   `json:"server"`
	Decoding sim.Decoding `json:"decoding"`
	Window
}

// PaperSetup is OPT-13B on one A100 with 40 GB, fitted to two numbers of the paper (simulation/PAPER.md §3).
const PaperSetup = "paper-opt-13b"

// A Plan is a scenario with all defaults. It has the system, the setup and the workload that the scenario names.
type Plan struct {
	Scenario Scenario // with defaults filled in
	System   *sim.System
	Setup    cost.Setup
	Timing   cost.Setup // has the times; equals Setup, except for FasterTransformer on the paper's machine
	Model    *cost.Model
	Trust    workload.Trust    // of a named workload
	About    string            // description of the workload in one line
	Trace    *workload.Summary // nil without a trace
	lengths  workload.Lengths  // nil with a trace
	factor   float64           // by which the arrival rate of a trace is multiplied
}

// Open returns the plan of a scenario. It reads a trace to the end, so that a bad row is reported before the run.
func Open(s Scenario) (*Plan, error) {
	return new(Plan).Vary(s)
}

// Vary returns the plan of another scenario. If s has the same trace and Requests as p's scenario, the trace
// is not read again. Vary does not change p.
func (p *Plan) Vary(s Scenario) (*Plan, error) {
	summary := p.Trace
	if s.Trace != p.Scenario.Trace || s.Requests != p.Scenario.Requests {
		summary = nil
	}
	p = &Plan{Scenario: s, Trace: summary}
	for _, step := range []func() error{p.openSetup, p.openRequests, p.openServer} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// With returns a plan with the requests of p, and with another setup and server. Zero fields of the server
// get defaults.
func (p *Plan) With(setup cost.Setup, server sim.Server) (*Plan, error) {
	q := *p
	q.Setup, q.Scenario.Server = setup, server
	if err := q.openServer(); err != nil {
		return nil, err
	}
	return &q, nil
}

func (p *Plan) openSetup() error {
	s := &p.Scenario
	if err := s.Machine.check(); err != nil {
		return err
	}
	if err := p.openModel(); err != nil {
		return err
	}
	if s.MemoryUtilization != 0 {
		p.Setup.Memory.Utilization = s.MemoryUtilization
	}
	if s.Cost == "" {
		return nil
	}
	measured, err := cost.OpenMeasured(s.Cost)
	if err != nil {
		return err
	}
	p.Setup = p.Setup.Timed(measured)
	return nil
}

func (p *Plan) openModel() (err error) {
	s := &p.Scenario
	if s.Model == "" {
		s.Setup = cmp.Or(s.Setup, PaperSetup)
		p.Setup, err = cost.Open(s.Setup)
		p.Setup.SwapGigabytes = s.SwapGB
		return err
	}
	if p.Setup, err = cost.New(s.Model, s.GPU, max(1, s.Workers)); err != nil {
		return err
	}
	p.Setup.Memory.Utilization = DefaultMemoryUtilization
	p.Setup.Stages, p.Setup.ExpertsApart, p.Setup.SwapGigabytes = s.Stages, s.Apart, s.SwapGB
	if p.Setup, err = p.Setup.Quantised(s.Weights, s.KV); err != nil {
		return err
	}
	return p.chooseEngine()
}

// openRequests finds the workload, or reads the trace.
func (p *Plan) openRequests() (err error) {
	s := &p.Scenario
	if err := cmp.Or(s.Load.check(), s.Clients.check(), s.Window.check(s.Duration)); err != nil {
		return err
	}
	p.factor = 1
	if s.Trace != "" {
		if p.Trace == nil {
			summary, err := workload.Check(s.Trace, s.Requests)
			if err != nil {
				return err
			}
			p.Trace = &summary
		}
		summary := p.Trace
		p.About = fmt.Sprintf("%s: %d requests in %s s, means %.0f and %.0f tokens", summary.Format, summary.Requests,
			Digits(summary.Span), summary.MeanPrompt, summary.MeanOutput)
		if summary.Skipped > 0 {
			p.About += fmt.Sprintf("; %d rows with 0 tokens of prompt or answer are left out", summary.Skipped)
		}
		if s.Turns > 0 && summary.Hashed == 0 {
			return bad("%s has no hash_ids, by which turns of a conversation are found", s.Trace)
		}
		if s.Rate == 0 {
			return nil
		}
		if summary.Rate() == 0 {
			return bad("all requests taken from %s arrive at once, so they have no rate to change", s.Trace)
		}
		p.factor = s.Rate / summary.Rate()
		return nil
	}
	if s.Workload == "" && !s.random() {
		s.Workload = "sharegpt"
	}
	if s.Rate == 0 && !s.AtOnce {
		s.Rate = 1
	}
	if !s.AtOnce && s.Duration == 0 && s.Requests == 0 {
		s.Duration = 1000
	}
	var info workload.Info
	p.lengths, info, err = s.Lengths()
	p.Trust, p.About = info.Trust, info.Description
	return err
}

func (p *Plan) openServer() (err error) {
	v := &p.Scenario.Server
	asked := *v
	if v.MaxModelLen == 0 {
		v.MaxModelLen = p.Setup.LLM.MaxLength
	}
	p.useDefaults(v)
	*v = v.Complete()
	if asked.NumGPUBlocks == 0 || asked.NumCPUBlocks == 0 {
		gpu, cpu, err := p.Setup.Pool(v.BlockSize)
		if err != nil {
			return err
		}
		if asked.NumGPUBlocks == 0 {
			v.NumGPUBlocks = gpu
		}
		if asked.NumCPUBlocks == 0 {
			v.NumCPUBlocks = cpu
		}
	}
	if asked.BatchSize == 0 {
		v.BatchSize = p.staticBatch()
	}
	v.Prefix = cmp.Or(v.Prefix, workload.SharedBy(p.lengths)) // p.lengths is nil for a trace
	kind, err := sim.Lookup(v.System)
	if err != nil {
		return err
	}
	p.System, p.Timing = kind, p.Setup
	if kind.Memory == sim.Static && p.Scenario.Setup == PaperSetup && p.Setup.Name == PaperSetup && p.Scenario.Cost == "" {
		// FasterTransformer's times were measured on the paper's machine too.
		if p.Timing, err = cost.Open("fastertransformer-opt-13b"); err != nil {
			return err
		}
	}
	if p.Model, err = p.Timing.Model(v.BlockSize); err != nil {
		return err
	}
	_, err = sim.NewScheduler(*v, p.Scenario.Decoding.Drafts)
	return err
}

// staticBatches has the largest batches of FasterTransformer (simulation/PAPER.md §1), first for Alpaca, then
// for other workloads.
var staticBatches = map[string][2]int{
	"opt-13b on 1 x a100-40gb":  {14, 5},
	"opt-66b on 4 x a100-40gb":  {8, 2},
	"opt-175b on 8 x a100-80gb": {80, 24},
}

// staticBatch returns the size of FasterTransformer's largest batch. On the paper's GPUs, this is the size in the
// artifact. Otherwise it is the number of sequences of the greatest length that fit in memory.
func (p *Plan) staticBatch() int {
	v := &p.Scenario.Server
	batch, ok := staticBatches[fmt.Sprintf("%s on %d x %s", p.Setup.LLM.Name, p.Setup.GPUs(), p.Setup.GPU.Name)]
	if all, _, err := p.Setup.Pool(v.BlockSize); !ok || err != nil || v.NumGPUBlocks != all { // or the number was given
		return max(1, v.NumGPUBlocks*v.BlockSize/v.MaxModelLen)
	}
	if strings.HasPrefix(p.Scenario.Workload, "alpaca") {
		return batch[0]
	}
	return batch[1]
}

// Expected returns about how many requests will arrive, for a progress bar.
func (p *Plan) Expected() int {
	s := &p.Scenario
	n := math.MaxInt
	if p.Trace != nil {
		n = p.Trace.Requests
		if s.Duration > 0 && p.Trace.Span > 0 {
			n = min(n, int(p.Trace.Rate()*p.factor*s.Duration))
		}
	} else if s.Duration > 0 {
		n = int(s.Rate * s.Duration)
	}
	if s.Requests > 0 {
		n = min(n, s.Requests)
	}
	return n
}

// Run simulates the plan. observe and progress may be nil; see sim.Config.
func (p *Plan) Run(ctx context.Context, observe func(serve.Scheduler) (sim.Observer, error),
	progress func(now float64, arrived, answered int)) (*sim.Result, error) {
	source, done, err := p.Source()
	if err != nil {
		return nil, err
	}
	defer done()
	s := &p.Scenario
	end := s.Window.end(s.Duration)
	return sim.Run(ctx, sim.Config{
		Server: s.Server, Decoding: s.Decoding, Cost: p.Model, Seed: s.Seed,
		MaxConcurrency: s.MaxConcurrency, Goodput: s.Goodput,
		From: s.From, Until: end, Stop: s.Stop && end > 0,
		Observe: observe, Progress: progress,
	}, source)
}

// Within returns a copy of the plan with other times. The time of every iteration is multiplied by factor. firstToken
// is the time, in seconds, that the server spends outside iterations until a first token reaches the client. A
// cost.Margin has two such pairs of numbers, one for the fastest times and one for the slowest; its times are in ms.
func (p *Plan) Within(factor, firstToken float64) *Plan {
	q := *p
	q.Model = p.Model.Within(factor, firstToken)
	return &q
}

// RunWithin runs the plan twice, with the fastest and with the slowest times in the margin of its setup. It
// returns nil if the setup has no margin.
func (p *Plan) RunWithin(ctx context.Context) (ends []*sim.Result, err error) {
	m := p.Setup.Margin()
	if m == nil {
		return nil, nil
	}
	for _, q := range []*Plan{p.Within(m.Least, m.First.Least/1000), p.Within(m.Most, m.First.Most/1000)} {
		r, err := q.Run(ctx, nil, nil)
		if err != nil {
			return nil, err
		}
		ends = append(ends, r)
	}
	return ends, nil
}

// Run opens a scenario and runs it.
func Run(ctx context.Context, s Scenario) (*sim.Result, error) {
	p, err := Open(s)
	if err != nil {
		return nil, err
	}
	return p.Run(ctx, nil, nil)
}
