package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

// A Question is what is to be found out.
type Question struct {
	Scenario  scenario.Scenario
	SLO       capacity.SLO
	Seeds     int              // 3
	Precision float64          // of a capacity; 0.02
	Target    float64          // requests/s that are wanted; 0: none
	Lasts     capacity.Horizon // for how long the answer has to hold; zero: capacity.DefaultHorizon

	Folder string // keeps what was run, so that the same question resumes; empty: nothing is kept

	Runs     int                   // at the same time; 0: one for each processor. Results do not depend on it
	Progress func(done, total int) // nil; searches. Called by one goroutine at a time
}

// mostTarget is more requests a second than all servers of the world get.
const mostTarget = 1e6

// A Report is the answer. Rates are requests a second.
type Report struct {
	Verdict  string            `json:"verdict"` // one line
	Scenario scenario.Scenario `json:"scenario"`
	Setup    string            `json:"setup"`
	SLO      string            `json:"slo"`
	Load     Load              `json:"load"`
	Cost     string            `json:"cost"` // what the times of iterations rest on
	// what makes up these times
	Constants string            `json:"constants"`
	Memory    Memory            `json:"memory"`
	Capacity  capacity.Capacity `json:"capacity"`
	Range     *Range            `json:"range,omitempty"` // nil: not known, or no rate holds

	Limit      string   `json:"limit"`  // one of Limits' names; empty: none of them raises the capacity
	Limits     []Change `json:"limits"` // from the greatest gain to the least; empty at a capacity of 0
	BlockSizes []Change `json:"blockSizes"`
	Systems    []Change `json:"systems"`
	Take       Take     `json:"take"`
	Target     *Target  `json:"target,omitempty"`

	Kept string `json:"-"` // what was taken from Question.Folder; not part of the answer

	slo    capacity.SLO
	system *sim.System
	asIs   []float64 // requests/s of the server as it is, by seed, to draw beside changes
}

// Load is what arrives.
type Load struct {
	About    string   `json:"about"`
	Seeds    []uint64 `json:"seeds"`
	Requests int      `json:"requests"`         // of a run; 0: what comes in the scenario's duration
	Own      float64  `json:"ownRate"`          // of a trace as it is
	TooLong  int      `json:"tooLong"`          // of a trace, left out
	LeftOut  float64  `json:"leftOut"`          // the part of a workload that is too long; rates are those of the others
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

	// part of each GPU's memory that may be used; 0: the blocks were given
	Utilization float64 `json:"utilization,omitempty"`
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
	plan   *scenario.Plan
	load   *capacity.Load
	pool   capacity.Pool
	found  capacity.Capacity // of the search, whose runs are shorter than what is promised
	near   capacity.Capacity // the same with the horizon of changes, to compare them with
	base   capacity.Capacity // what is answered: found, confirmed
	others []otherServer     // with more GPUs or fewer; nil: not looked for
	lock   sync.Mutex
	done   int
	total  int
}

// Size answers a question. The error is that of a name, a trace or a setting, or
// the context's; nothing is answered then.
func Size(ctx context.Context, q Question) (*Report, error) {
	if !(q.Target >= 0 && q.Target <= mostTarget) {
		return nil, fmt.Errorf("%w: a target of %v requests a second: want more than 0, and at most %.0f",
			scenario.ErrScenario, q.Target, float64(mostTarget))
	}
	s, err := newSizer(q)
	if err != nil {
		return nil, err
	}
	if s.plan, err = scenario.Open(q.Scenario); err != nil {
		return nil, err
	}
	if s.load, err = capacity.NewLoad(s.plan, s.Seeds); err != nil {
		return nil, err
	}
	if q.Folder == "" {
		return s.report(ctx)
	}
	store, err := runs.Open(q.Folder, q.Scenario.Trace)
	if err != nil {
		return nil, fmt.Errorf("the runs of a plan: %w", err)
	}
	s.load.Keep(store)
	report, err := s.report(ctx)
	if err == nil {
		report.Kept = store.String()
	}
	return report, errors.Join(err, store.Close())
}

// newSizer checks a question and fills in what is zero.
func newSizer(q Question) (*sizer, error) {
	if len(q.SLO) == 0 {
		return nil, fmt.Errorf("%w: there is none", capacity.ErrSLO)
	}
	if q.Seeds < 0 || q.Seeds > capacity.MostSeeds || !(q.Precision >= 0) || q.Precision > 1 {
		return nil, fmt.Errorf("%w: %d seeds, rates to a part of %v: want 1 to %d seeds and a part of 0 to 1",
			scenario.ErrScenario, q.Seeds, q.Precision, capacity.MostSeeds)
	}
	if q.Precision == 0 {
		q.Precision = 0.02
	}
	if q.Runs <= 0 {
		q.Runs = runtime.GOMAXPROCS(0)
	}
	q.Seeds = cmp.Or(q.Seeds, 3)
	return &sizer{Question: q, pool: capacity.NewPool(q.Runs)}, nil
}
