package sizing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/scenario"
)

// A Question is what is to be found out.
type Question struct {
	Scenario   scenario.Scenario
	SLO        capacity.SLO
	Seeds      int              // 3
	Precision  float64          // of a capacity; 0.02
	AllSystems bool             // compare with Orca and FasterTransformer too
	Target     float64          // requests/s that are wanted; 0: none
	Lasts      capacity.Horizon // for how long the answer has to hold; zero: capacity.DefaultHorizon

	Runs     int                   // at the same time; 0: one for each processor. Results do not depend on it
	Progress func(done, total int) // nil; searches. Called by one goroutine at a time
}

// A Report is the answer. Rates are requests a second.
type Report struct {
	Verdict  string            `json:"verdict"` // one line
	Scenario scenario.Scenario `json:"scenario"`
	Setup    string            `json:"setup"`
	SLO      string            `json:"slo"`
	Load     Load              `json:"load"`
	Cost     string            `json:"cost"` // how long iterations take
	Memory   Memory            `json:"memory"`
	Capacity capacity.Capacity `json:"capacity"`

	Limit      string   `json:"limit"`  // one of Limits' names; empty: none of them raises the capacity
	Limits     []Change `json:"limits"` // from the greatest gain to the least; empty at a capacity of 0
	BlockSizes []Change `json:"blockSizes"`
	Systems    []Change `json:"systems"`
	Take       Take     `json:"take"`
	Target     *Target  `json:"target,omitempty"`

	slo    capacity.SLO
	system *sim.System
}

// Load is what arrives.
type Load struct {
	About    string   `json:"about"`
	Seeds    []uint64 `json:"seeds"`
	Requests int      `json:"requests"`         // of a run; 0: what comes in the scenario's duration
	Own      float64  `json:"ownRate"`          // of a trace as it is
	TooLong  int      `json:"tooLong"`          // left out
	Prompt   float64  `json:"meanPromptTokens"` // tokens
	Output   float64  `json:"meanOutputTokens"`
}

// Memory is the memory for keys and values.
type Memory struct {
	TokenBytes int64 `json:"bytesPerToken"` // over all layers and GPUs
	BlockSize  int   `json:"blockSize"`
	Blocks     int   `json:"blocks"`
	Slots      int   `json:"slots"`
	Bytes      int64 `json:"bytes"`
	Fit        int   `json:"sequencesThatFit"` // of the mean length, at their ends
}

// A Change is the capacity when one thing is different.
type Change struct {
	Name string `json:"name"`
	Is   Kind   `json:"kind"`

	Rate float64 `json:"rate"` // the report's capacity with the median gain
	Low  float64 `json:"low"`
	High float64 `json:"high"`

	// Gains are relative to the report's capacity, seed by seed: 0.38 is 38 % more.
	Gain     float64 `json:"gain"` // median
	GainLow  float64 `json:"gainLow"`
	GainHigh float64 `json:"gainHigh"`

	Base    bool   `json:"base,omitempty"`    // it is the scenario itself
	Trouble string `json:"trouble,omitempty"` // why there is no rate

	rates []float64
	size  int    // block size
	sys   policy // system
}

// sizer is a question under way.
type sizer struct {
	Question
	plan  *scenario.Plan
	load  *capacity.Load
	pool  capacity.Pool
	base  capacity.Capacity
	near  capacity.Capacity // the same with the horizon of changes, to compare them with
	lock  sync.Mutex
	done  int
	total int
}

// Size answers a question. The error is that of a name, a trace or a setting, or
// the context's; nothing is answered then.
func Size(ctx context.Context, q Question) (*Report, error) {
	if len(q.SLO) == 0 {
		return nil, fmt.Errorf("%w: there is none", capacity.ErrSLO)
	}
	if !(q.Target >= 0) || math.IsInf(q.Target, 0) {
		return nil, fmt.Errorf("%w: a target of %v requests a second", scenario.ErrScenario, q.Target)
	}
	if q.Seeds < 0 || !(q.Precision >= 0) || q.Precision > 1 {
		return nil, fmt.Errorf("%w: %d seeds, rates to a part of %v: want seeds of at least 1 and a part of 0 to 1", scenario.ErrScenario, q.Seeds, q.Precision)
	}
	if q.Precision == 0 {
		q.Precision = 0.02
	}
	if q.Runs <= 0 {
		q.Runs = runtime.GOMAXPROCS(0)
	}
	if q.Seeds == 0 {
		q.Seeds = 3
	}
	s := &sizer{Question: q, pool: capacity.NewPool(q.Runs)}
	var err error
	if s.plan, err = scenario.Open(q.Scenario); err != nil {
		return nil, err
	}
	if s.load, err = capacity.NewSteadyLoad(s.plan, q.Seeds, confirmingSeeds); err != nil {
		return nil, err
	}
	return s.report(ctx)
}

func (s *sizer) report(ctx context.Context) (*Report, error) {
	r := &Report{Scenario: s.plan.Scenario, Setup: s.name(), SLO: s.SLO.String(), slo: s.SLO, system: s.plan.System, Load: s.facts(), Memory: s.memory(), Cost: s.plan.Model.Describe()}
	limits, sizes, systems := s.limits(), s.blockSizes(), s.systems()
	s.total = 1 + len(limits) + len(sizes) + len(systems)
	var err error
	s.base, err = s.load.Find(ctx, s.plan, s.SLO, s.answer(capacity.DefaultCurve))
	if err != nil {
		return nil, err
	}
	r.Capacity = s.base
	s.tick(1)
	if s.base.Rate == 0 {
		// Nothing is gained over nothing: another block or policy does not make a
		// request that is alone faster.
		r.Verdict = r.verdict()
		if s.Question.Target > 0 {
			r.Verdict += fmt.Sprintf("; no number of such servers holds it at %s requests/s", rate(s.Question.Target))
		}
		return r, nil
	}
	if s.near = s.base; s.load.Own == 0 { // a trace comes as a whole in every run
		if s.near, err = s.load.Find(ctx, s.plan, s.SLO, s.compare(s.base.Rates())); err != nil {
			return nil, err
		}
	}
	all, err := s.changes(ctx, append(append(limits, sizes...), systems...))
	if err != nil {
		return nil, err
	}
	r.Limits = ranked(all[:len(limits)])
	r.BlockSizes = all[len(limits):][:len(sizes)]
	r.Systems = all[len(limits)+len(sizes):]
	if i := limiting(r.Limits, s.Precision); i >= 0 {
		r.Limit = r.Limits[i].Name
	}
	if r.Take, err = s.take(ctx, r.BlockSizes, r.Systems); err != nil {
		return nil, err
	}
	if s.Question.Target > 0 {
		if r.Target, err = s.target(ctx); err != nil {
			return nil, err
		}
	}
	r.Verdict = r.verdict()
	return r, nil
}

// confirmingSeeds are runs of an hour, besides those of the search, that have to
// hold at what is answered.
const confirmingSeeds = 4

// answer are the options of a search whose result is promised.
func (s *sizer) answer(curve []float64) capacity.Options {
	return capacity.Options{Precision: s.Precision, Pool: s.pool, Horizon: &capacity.SearchHorizon, Confirm: confirmingSeeds, ConfirmHorizon: s.Lasts, Curve: curve}
}

// compare are the options of a search whose result is compared with others.
func (s *sizer) compare(near []float64) capacity.Options {
	return capacity.Options{Precision: s.Precision, Pool: s.pool, Near: near, Horizon: &capacity.CompareHorizon}
}

func (s *sizer) tick(n int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.done += n
	s.total = max(s.total, s.done)
	if s.Progress != nil {
		s.Progress(s.done, s.total)
	}
}

func (s *sizer) facts() Load {
	l := Load{About: s.plan.About, Seeds: s.load.Seeds, Requests: s.load.Requests(), Own: s.load.Own, TooLong: s.load.TooLong}
	if s.plan.Trust != "" {
		l.About = fmt.Sprintf("%s (%s): %s", s.plan.Scenario.Workload, s.plan.Trust, l.About)
	}
	l.Prompt, l.Output = s.load.Means()
	return l
}

func (s *sizer) memory() Memory {
	v := s.plan.Scenario.Server
	m := Memory{TokenBytes: s.plan.Setup.LLM.KVBytesPerToken(), BlockSize: v.BlockSize, Blocks: v.NumGPUBlocks, Slots: v.NumGPUBlocks * v.BlockSize}
	m.Bytes = m.TokenBytes * int64(m.Slots)
	prompt, output := s.load.Means()
	m.Fit = v.NumGPUBlocks / int(math.Ceil((prompt+output)/float64(v.BlockSize)))
	return m
}

// A trial is a change that is to be tried.
type trial struct {
	Change
	setup  cost.Setup
	server sim.Server
	slo    capacity.SLO
	times  float64 // what the rate found counts
}

// changes finds the capacities of trials, all at the same time.
func (s *sizer) changes(ctx context.Context, trials []trial) ([]Change, error) {
	all := make([]Change, len(trials))
	errs := make([]error, len(trials))
	var wait sync.WaitGroup
	for i := range trials {
		wait.Go(func() {
			all[i], errs[i] = s.change(ctx, trials[i])
			s.tick(1)
		})
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

// change finds the capacity of one trial. That it cannot be is no error.
func (s *sizer) change(ctx context.Context, t trial) (Change, error) {
	c := t.Change
	found := s.near
	if !c.Base {
		plan, err := s.plan.With(t.setup, t.server)
		if err == nil {
			found, err = s.load.Find(ctx, plan, t.slo, s.compare(s.near.Rates()))
		}
		switch {
		case ctx.Err() != nil:
			return c, ctx.Err()
		case errors.Is(err, sim.ErrConfig), errors.Is(err, cost.ErrMemory), errors.Is(err, cost.ErrFile), errors.Is(err, capacity.ErrUnbounded):
			c.Trouble = err.Error()
			return c, nil
		case errors.Is(err, capacity.ErrShort):
			c.Trouble = "the requests are too few to tell"
			return c, nil
		case err != nil:
			return c, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	c.rates = found.Rates()
	for i := range c.rates {
		c.rates[i] *= t.times
	}
	c.Gain, c.GainLow, c.GainHigh = gains(c.rates, s.near.Rates())
	for i := range c.rates {
		c.rates[i] *= s.base.Rate / s.near.Rate
	}
	c.Rate, c.Low, c.High = s.base.Rate*(1+c.Gain), s.base.Rate*(1+c.GainLow), s.base.Rate*(1+c.GainHigh)
	return c, nil
}

// gains compare rates seed by seed, where there is something to compare with.
func gains(rates, base []float64) (median, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	var all []float64
	for i := range rates {
		if base[i] == 0 {
			continue
		}
		g := rates[i]/base[i] - 1
		all = append(all, g)
		low, high = min(low, g), max(high, g)
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	return capacity.Median(all), low, high
}

// name is the model and the GPUs, however they were named.
func (s *sizer) name() string {
	c := s.plan.Setup
	return fmt.Sprintf("%s on %d x %s", c.LLM.Name, c.Workers, c.GPU.Name)
}
