package disagg

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
)

// A Question is which ratio of servers sustains most.
type Question struct {
	Scenario scenario.Scenario // of one server; its workload is a named one
	SLO      capacity.SLO
	Servers  int     // together
	Link     float64 // GB/s
	Latency  float64 // s
	Seconds  float64 // of arrivals in each run, at least
	Pool     capacity.Pool
}

// A Ratio is what some servers of each kind sustain.
type Ratio struct {
	Prefill    int       `json:"prefill"` // 0: all servers do both
	Decode     int       `json:"decode"`
	Rate       float64   `json:"rate"`             // requests/s of all servers, to 3 % under the seed; 0: none of at least 0.001
	Values     []float64 `json:"values,omitempty"` // s, of the objectives at it
	Sent       float64   `json:"sent"`             // s; the mean time of a transfer
	Recomputed int       `json:"recomputed"`
}

// precision of a rate.
const precision = 0.03

// leastRate is where the search for one ends, in requests/s.
const leastRate = 1e-3

// answers is how many times as long as an answer takes without load requests come in each run.
const answers = 30

// Search finds what each ratio sustains, servers that do both first, in runs of Question.Seconds, or
// longer ones if answers are long: it says how long. It is no plan: there is one seed, and nothing is
// confirmed for an hour.
func Search(ctx context.Context, q Question) (ratios []Ratio, seconds float64, err error) {
	s := q.Scenario
	switch {
	case q.Servers < 2 || q.Servers > 64:
		return nil, 0, fmt.Errorf("%w: %d servers: want 2 to 64", scenario.ErrScenario, q.Servers)
	case !(q.Seconds >= 60) || q.Seconds > 1e5:
		return nil, 0, fmt.Errorf("%w: arrivals of %v s: want 60 to 1e5", scenario.ErrScenario, q.Seconds)
	case s.Trace != "" || s.MaxConcurrency > 0 || s.Turns > 0 || s.AtOnce:
		return nil, 0, fmt.Errorf("%w: the ratio is looked for with a workload that comes at a rate, not with a trace or sessions", scenario.ErrScenario)
	case !(q.Link > 0) || !(q.Latency >= 0) || math.IsInf(q.Link, 0) || math.IsInf(q.Latency, 0):
		return nil, 0, fmt.Errorf("%w: a link of %v GB/s, and %v s for each transfer: want more than 0 GB/s, and at least 0 s", scenario.ErrScenario, q.Link, q.Latency)
	}
	p, err := scenario.Open(s)
	if err != nil {
		return nil, 0, err
	}
	alone, err := q.alone(ctx, p)
	if err != nil {
		return nil, 0, err
	}
	q.Seconds = max(q.Seconds, math.Ceil(answers*alone))
	ratios = make([]Ratio, q.Servers)
	errs := make([]error, q.Servers)
	var wait sync.WaitGroup
	for prefill := range q.Servers {
		r := &ratios[prefill]
		r.Prefill, r.Decode = prefill, q.Servers-prefill
		wait.Go(func() {
			if errs[prefill] = q.Pool.Take(ctx); errs[prefill] == nil {
				errs[prefill] = q.find(ctx, p, r)
				q.Pool.Give()
			}
		})
	}
	wait.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, 0, err
	}
	return ratios, q.Seconds, nil
}

// alone is how many seconds a mean answer takes without load.
func (q Question) alone(ctx context.Context, p *scenario.Plan) (float64, error) {
	requests, err := q.requests(p, leastRate)
	if err != nil {
		return 0, err
	}
	if err := q.SLO.Judgeable(requests); err != nil {
		return 0, err
	}
	requests = requests[:least/4]
	done, _, err := Run(ctx, Config{Decode: 1, Server: p.Scenario.Server, Cost: p.Model}, requests)
	seconds := 0.0
	for _, a := range done {
		if !a.Refused {
			seconds += (a.Done - a.Arrival) / float64(len(done))
		}
	}
	return seconds, err
}

// chance is a gain that may be a seed's, and that of rates which are found to 3 %.
const chance = 0.07

// Best is the ratio to take: servers that do both, unless another sustains more than they do by more
// than chance. most is the one with the highest rate.
func Best(ratios []Ratio) (best, most Ratio) {
	most = ratios[0]
	for _, r := range ratios {
		if r.Rate > most.Rate {
			most = r
		}
	}
	if most.Rate > ratios[0].Rate*(1+chance) {
		return most, most
	}
	return ratios[0], most
}

// find doubles the rate from a low one until it fails, and bisects.
func (q Question) find(ctx context.Context, p *scenario.Plan, r *Ratio) error {
	low, high := 0.0, math.Inf(1)
	rate := 0.05 * float64(q.Servers)
	for high > low*(1+precision) && rate > leastRate && rate < 1e5 {
		holds, err := q.try(ctx, p, r, rate)
		if err != nil {
			return err
		}
		switch {
		case holds:
			low = rate
		default:
			high = rate
		}
		switch {
		case math.IsInf(high, 1):
			rate *= 2
		case low == 0:
			rate /= 2
		default:
			rate = math.Sqrt(low * high)
		}
	}
	return nil
}

// try runs a rate, and keeps what it shows if the objective holds.
func (q Question) try(ctx context.Context, p *scenario.Plan, r *Ratio, rate float64) (bool, error) {
	requests, err := q.requests(p, rate)
	if err != nil {
		return false, err
	}
	c := Config{
		Prefill: r.Prefill, Decode: r.Decode, Server: p.Scenario.Server, Cost: p.Model, TokenBytes: p.Setup.LLM.KVBytesPerToken(),
		Link: q.Link, Latency: q.Latency, Seed: p.Scenario.Seed,
	}
	all, recomputed, err := Run(ctx, c, requests)
	if err != nil {
		return false, err
	}
	warm := int(capacity.WarmUp * float64(len(all)))
	values := values(q.SLO, requests[warm:], all[warm:])
	if grows(all, warm) {
		return false, nil
	}
	for i, o := range q.SLO {
		if values[i] > o.Limit {
			return false, nil
		}
	}
	r.Rate, r.Values, r.Recomputed, r.Sent = rate, values, recomputed, 0
	for _, a := range all {
		r.Sent += a.Sent / float64(len(all))
	}
	return true, nil
}

// least is how many requests a run has at least: percentiles of fewer say nothing.
const least = 400

func (q Question) requests(p *scenario.Plan, rate float64) ([]workload.Request, error) {
	lengths, _, err := workload.Named(p.Scenario.Workload)
	if err != nil {
		return nil, err
	}
	shape := p.Scenario.Burstiness
	if shape == 0 {
		shape = 1
	}
	drawn, err := workload.Gamma(lengths, 1, shape, p.Scenario.Seed, 0, 0)
	if err != nil {
		return nil, err
	}
	fitting := workload.WithoutLonger(drawn, p.Scenario.Server.MaxModelLen)
	var all []workload.Request
	for {
		var r workload.Request
		if err := fitting.Next(&r); err != nil {
			return nil, err
		}
		if r.Arrival /= rate; r.Arrival > q.Seconds && len(all) >= least {
			return all, nil
		}
		r.Hashes = slices.Clone(r.Hashes)
		all = append(all, r)
	}
}

// values are those of the objectives, as a plan has them: up to 1 % refused do not count.
func values(slo capacity.SLO, requests []workload.Request, answers []Answer) []float64 {
	left := make([]sim.Departure, len(answers))
	for i, a := range answers {
		left[i] = sim.Departure{Index: i, Arrival: a.Arrival, First: a.First, Done: a.Done, Output: a.Output, Answered: !a.Refused}
	}
	return slo.ValuesOf(requests, left)
}

// grows is a plan's rule for a queue: here that of the requests without an answer, because first
// tokens do not wait for decode servers.
func grows(answers []Answer, warm int) bool {
	done := make([]float64, 0, len(answers))
	for _, a := range answers {
		if !a.Refused {
			done = append(done, a.Done)
		}
	}
	slices.Sort(done)
	queue := make([]capacity.Sample, 0, len(answers))
	arrived, left := 0, 0
	for _, a := range answers {
		if a.Refused {
			continue
		}
		arrived++
		for left < len(done) && done[left] <= a.Arrival {
			left++
		}
		queue = append(queue, capacity.Sample{Now: a.Arrival, Waiting: arrived - left})
	}
	return capacity.Grows(queue, answers[warm].Arrival, answers[len(answers)-1].Arrival, len(answers)-warm)
}
