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

// A Question is what Size answers.
type Question struct {
	Scenario  scenario.Scenario
	SLO       capacity.SLO
	Seeds     int              // default 3
	Precision float64          // of a capacity, relative; default 0.02
	Target    float64          // requests/s; 0 if there is no target
	Lasts     capacity.Horizon // how long a rate must hold; default capacity.DefaultHorizon

	// Folder has the results of runs, so that an interrupted Size can resume. If it is "", results are not stored.
	Folder string

	Runs     int                   // concurrent runs; default one for each processor. They do not change the results
	Progress func(done, total int) // counts searches; may be nil. Size calls it from one goroutine at a time
}

const maxTarget = 1e6 // requests/s

// A Report is the answer to a Question. Rates are requests/s.
type Report struct {
	Verdict  string            `json:"verdict"` // one line
	Scenario scenario.Scenario `json:"scenario"`
	Setup    string            `json:"setup"`
	SLO      string            `json:"slo"`
	Load     Load              `json:"load"`
	Cost     string            `json:"cost"` // source of the times of iterations

	Constants string            `json:"constants"` // terms of these times
	Memory    Memory            `json:"memory"`
	Capacity  capacity.Capacity `json:"capacity"`
	Range     *Range            `json:"range,omitempty"` // nil if not known, or if no rate holds

	Limit      string   `json:"limit"`  // a name in Limits, or "" if no change raises the capacity
	Limits     []Change `json:"limits"` // in order of decreasing gain; empty if the capacity is 0
	BlockSizes []Change `json:"blockSizes"`
	Systems    []Change `json:"systems"`
	Take       Take     `json:"take"`
	Target     *Target  `json:"target,omitempty"`

	Kept string `json:"-"` // describes the results that were read from Question.Folder

	slo    capacity.SLO
	system *sim.System
	asIs   []float64 // requests/s of the unchanged server, by seed, for figures
}

// Load describes the requests.
type Load struct {
	About    string   `json:"about"`
	Seeds    []uint64 `json:"seeds"`
	Requests int      `json:"requests"`         // of a run; 0 if their number depends on the rate
	Own      float64  `json:"ownRate"`          // the rate of a trace as recorded; 0 for a workload
	TooLong  int      `json:"tooLong"`          // requests of a trace that are left out because they are too long
	LeftOut  float64  `json:"leftOut"`          // fraction of a workload's requests that are too long; not in rates
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
	Fit        int   `json:"sequencesThatFit"` // complete sequences of the mean length

	// fraction of each GPU's memory that vLLM may use; 0 if the number of blocks was given
	Utilization float64 `json:"utilization,omitempty"`
}

// A Change is the capacity with one thing changed.
type Change struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`

	Rate float64 `json:"rate"` // the report's capacity with the median gain
	Low  float64 `json:"low"`
	High float64 `json:"high"`

	// Gain is the median over seeds of the rate relative to the capacity without the change, minus 1: 0.38
	// means 38 % more. GainLow and GainHigh are the extremes.
	Gain     float64 `json:"gain"` // median
	GainLow  float64 `json:"gainLow"`
	GainHigh float64 `json:"gainHigh"`

	Base    bool   `json:"base,omitempty"`    // nothing is changed
	Trouble string `json:"trouble,omitempty"` // why there is no rate

	rates []float64 // by seed
	size  int       // block size
	sys   policy    // system
}

// sizer is the state of Size.
type sizer struct {
	Question
	plan        *scenario.Plan
	load        *capacity.Load
	pool        capacity.Pool
	found       capacity.Capacity // the search's result, with runs of capacity.SearchHorizon
	byShortRuns capacity.Capacity // the same with runs of capacity.CompareHorizon, which changes are compared with
	confirmed   capacity.Capacity // found, after confirmation by long runs: the report's capacity
	others      []otherServer     // with other numbers of GPUs; nil before otherServers
	lock        sync.Mutex
	done        int
	total       int
}

// Size answers a question. It returns an error if a name, a trace or a setting is invalid, or if ctx is canceled.
func Size(ctx context.Context, q Question) (*Report, error) {
	if !(q.Target >= 0 && q.Target <= maxTarget) {
		return nil, fmt.Errorf("%w: a target of %v requests a second: want more than 0, and at most %.0f",
			scenario.ErrScenario, q.Target, float64(maxTarget))
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

func newSizer(q Question) (*sizer, error) {
	if len(q.SLO) == 0 {
		return nil, fmt.Errorf("%w: there is none", capacity.ErrSLO)
	}
	if q.Seeds < 0 || q.Seeds > capacity.MaxSeeds || !(q.Precision >= 0) || q.Precision > 1 {
		return nil, fmt.Errorf("%w: %d seeds, a precision of %v: want 1 to %d seeds and a precision of 0 to 1",
			scenario.ErrScenario, q.Seeds, q.Precision, capacity.MaxSeeds)
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
