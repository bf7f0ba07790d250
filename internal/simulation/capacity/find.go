package capacity

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/scenario"
)

// Options are the options of Find.
type Options struct {
	Precision float64 // of a seed's capacity, relative
	Pool      Pool    // if nil, each seed has one run at a time
	Horizon   Horizon // how long runs are

	// Start has the rate at which the search begins under each seed, for example the capacity of a similar
	// scenario. If it is nil, the search begins at an estimate from the cost model.
	Start []float64
}

// A Pool limits the number of concurrent runs. Several searches may share it.
type Pool chan struct{}

// NewPool returns a pool for n concurrent runs.
func NewPool(n int) Pool { return make(Pool, max(1, n)) }

// Take waits until a run may start, or returns ctx's error. If it returns nil, the caller must call Give
// after the run. A nil Pool never waits.
func (p Pool) Take(ctx context.Context) error {
	if p == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Give ends a run that Take allowed.
func (p Pool) Give() {
	if p != nil {
		<-p
	}
}

// A Capacity is the highest rate that meets the objective, in requests a second.
type Capacity struct {
	// Find sets Rate to the median over the seeds of the search. The rate of a seed is 0 if even a request that runs
	// alone misses the objective.
	//
	// Confirm replaces Rate with a rate that meets the objective for the whole horizon under every seed of the search.
	// For a workload, Confirm also takes other seeds. Of all its seeds, at most a sixteenth miss the objective at Rate.
	//
	// Confirm also sets the field Most, and lowers the rate from there. If the requests come from a workload, it begins
	// at Most divided by 1.03. With a trace, it begins at Most itself.
	Rate      float64 `json:"rate"`
	Low       float64 `json:"low"`  // lowest of the seeds
	High      float64 `json:"high"` // highest of the seeds
	Precision float64 `json:"precision"`
	Seeds     []Seed  `json:"seeds"`
	Confirmed []Point `json:"confirmed,omitempty"` // whole runs at Rate, under the seeds of the search
	Most      float64 `json:"most,omitempty"`      // highest rate of a grid with 3 % steps that holds under most seeds
	// Tried is the number of seeds that Confirm took: those of the search, and the further ones that it drew. Held is
	// how many of them meet the objective at Rate or at a higher rate.
	Held  int    `json:"held,omitempty"`
	Tried int    `json:"tried,omitempty"`
	Curve []Step `json:"curve,omitempty"`
}

// A Seed is the search under one seed.
type Seed struct {
	Seed     uint64  `json:"seed"`
	Rate     float64 `json:"rate"`
	Fails    float64 `json:"fails"` // the lowest rate that failed
	Monotone bool    `json:"monotone"`
	Points   []Point `json:"points"` // all runs, by rate
}

// A Step is a rate of Capacity.Curve. It has the runs at this rate, one for each seed, in the order of the seeds.
type Step struct {
	Rate   float64 `json:"rate"`
	Points []Point `json:"points"`
}

// At returns the point at the seed's capacity. If the capacity is 0, it returns the point at the lowest rate
// that was run.
func (s Seed) At() Point {
	i := slices.IndexFunc(s.Points, func(p Point) bool { return p.Rate == s.Rate })
	return s.Points[max(0, i)]
}

// Rates returns the capacities under the seeds, for Options.Start.
func (c Capacity) Rates() []float64 {
	var all []float64
	for _, s := range c.Seeds {
		all = append(all, s.Rate)
	}
	return all
}

// Find searches for the capacity of a plan with the requests of l. It ignores Rate, From, Until and Stop of
// the plan's scenario. The number of concurrent runs does not change the result.
func (l *Load) Find(ctx context.Context, p *scenario.Plan, slo SLO, o Options) (Capacity, error) {
	request, err := l.sets[0].first(1)
	if err == nil {
		err = slo.judgeable(request)
	}
	if err != nil {
		return Capacity{}, err
	}
	searches := l.searches(p, slo, o)
	err = forEach(len(searches), func(i int) error {
		s := searches[i]
		if i < len(o.Start) && o.Start[i] > 0 {
			return s.settle(ctx, o.Start[i], 1+o.Precision) // two runs if the capacity is the same
		}
		return s.settle(ctx, s.estimate, 1.5)
	})
	if err != nil {
		return Capacity{}, err
	}
	return collect(searches, o.Precision), nil
}

// forEach calls f(0) to f(n-1) concurrently and waits for all. If several calls fail, it returns the error of the
// lowest index.
func forEach(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = f(i) })
	}
	wait.Wait()
	return cmp.Or(errs...)
}

func collect(searches []*search, precision float64) Capacity {
	c := Capacity{Precision: precision}
	for _, s := range searches {
		low, high := s.bracket()
		if high <= s.lowestRate() {
			low = 0
		}
		c.Seeds = append(c.Seeds, Seed{Seed: s.set.seed, Rate: low, Fails: high, Monotone: s.monotone(), Points: s.points})
	}
	rates := c.Rates()
	c.Rate, c.Low, c.High = Median(rates), slices.Min(rates), slices.Max(rates)
	return c
}

// Median returns the median of values. Of an even number of values, it returns the lower one in the middle.
func Median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[(len(values)-1)/2]
}

// Holds reports whether runs of CompareHorizon at a rate meet the objective under all seeds.
func (l *Load) Holds(ctx context.Context, p *scenario.Plan, slo SLO, rate float64, pool Pool) (bool, error) {
	for _, s := range l.searches(p, slo, Options{Pool: pool, Horizon: CompareHorizon}) {
		if err := s.try(ctx, rate, brief); err != nil {
			return false, err
		}
		if !s.points[0].Holds {
			return false, nil
		}
	}
	return true, nil
}

// curveParts are the rates of Curve as multiples of the capacity. They show the flat part of a latency curve
// and its rise.
var curveParts = []float64{0.25, 0.5, 0.75, 0.9, 0.95, 1, 1.05, 1.1, 1.25}

// Curve runs the scenario at multiples of the capacity under every seed of the search, and sets c.Curve. A
// run ends at SearchHorizon, or earlier if the queue grows without end.
func (l *Load) Curve(ctx context.Context, p *scenario.Plan, slo SLO, pool Pool, c *Capacity) error {
	runs := l.runners(p, slo, SearchHorizon, pool, l.sets)
	c.Curve = make([]Step, len(curveParts))
	return forEach(len(curveParts), func(i int) (err error) {
		step := Step{Rate: c.Rate * curveParts[i], Points: make([]Point, len(runs))}
		for k := range runs {
			if step.Points[k], err = runs[k].runAt(ctx, step.Rate, patient); err != nil {
				return err
			}
		}
		c.Curve[i] = step
		return nil
	})
}

// estimate computes the rate of requests with which the server runs full batches. A full batch has as many sequences,
// each with a mean prompt and half of a mean answer, as fit in memory, but at most MaxNumSeqs.
func (l *Load) estimate(p *scenario.Plan) float64 {
	v := &p.Scenario.Server
	prompt, output := l.Means()
	answers := float64(max(1, p.Scenario.Decoding.Samples))
	context := prompt + output/2
	batch := min(float64(v.MaxNumSeqs), float64(v.NumGPUBlocks*v.BlockSize)/context)
	batch = max(1, batch)
	work := cost.Work{Seqs: int(batch), Context: int(batch * context), Prompt: int(batch * prompt / output)}
	work.PromptContext = int64(float64(work.Prompt) * prompt / 2)
	return batch / (output * answers * p.Model.Seconds(work))
}
