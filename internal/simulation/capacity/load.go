package capacity

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/workload"
)

// ErrLoad is wrapped when the rate of requests cannot be changed, or when no request is short enough for the model.
var ErrLoad = errors.New("no capacity of these requests")

// A Load has the requests of a plan, for runs at any rate. Each request is drawn or read once. A Load is safe
// for concurrent use.
type Load struct {
	Seeds   []uint64 // of searches
	Own     float64  // requests/s of a trace as recorded; 0 for a workload
	TooLong int      // requests of a trace that are left out because they are longer than sequences may be
	Longest int      // tokens of the longest request that NewLoad drew for the first seed
	LeftOut float64  // fraction of a workload's requests that are too long; the rate does not count them

	prompt, output float64 // see Means

	sets []*requestSet // one for each seed
	runs *runs.Store   // nil if results are not kept

	lock   sync.Mutex
	others []*requestSet                          // for Confirm
	draw   func(seed uint64) (*requestSet, error) // nil for a trace
}

// A requestSet has the requests of one seed. Its arrivals are scaled to a mean rate of one request a second.
type requestSet struct {
	seed     uint64
	shape    float64 // of the gamma distribution of gaps between arrivals; 0 for a trace
	lock     sync.Mutex
	requests []workload.Request
	source   workload.Source // of more requests; nil if there are no more
}

func (d *requestSet) steady() bool { return d.shape > 0 }

// Keep makes searches take the results of earlier runs from a store, and add the results of their own runs to it.
func (l *Load) Keep(store *runs.Store) { l.runs = store }

const firstDrawn = 2000

// MaxSeeds is the highest number of seeds of a search. The requests of each are kept in memory.
const MaxSeeds = 100

// NewLoad returns the load of a plan under the given number of seeds, the first of which is the scenario's.
// Requests of a workload are drawn when runs need them. A trace is read once, up to the scenario's Duration
// and Requests, and has only one seed. Plans with the same requests can share a load.
func NewLoad(p *scenario.Plan, seeds int) (*Load, error) {
	s := p.Scenario
	// If requests wait for answers, the server determines the rate.
	if s.MaxConcurrency > 0 || s.Turns > 0 || s.AtOnce {
		return nil, fmt.Errorf("%w: requests that wait for answers (at most %d at once, %v turns) arrive as fast as they are "+
			"served; a plan needs requests that arrive independently of answers", ErrLoad, s.MaxConcurrency, s.Turns)
	}
	if s.Trace != "" {
		return readLoad(p)
	}
	lengths, _, err := s.Lengths()
	if err != nil {
		return nil, err
	}
	if seeds < 1 || seeds > MaxSeeds {
		return nil, fmt.Errorf("%w: %d seeds: want 1 to %d", ErrLoad, seeds, MaxSeeds)
	}
	shape := s.Burstiness
	if shape == 0 {
		shape = 1
	}
	l := &Load{draw: func(seed uint64) (*requestSet, error) {
		drawn, err := workload.Gamma(lengths, 1, shape, seed, 0, 0)
		if err != nil {
			return nil, err
		}
		d := &requestSet{seed: seed, shape: shape, source: fitting(drawn, p)}
		_, err = d.first(firstDrawn)
		return d, err
	}}
	for i := range uint64(seeds) {
		d, err := l.draw(s.Seed + i)
		if err != nil {
			return nil, err
		}
		l.Seeds, l.sets = append(l.Seeds, d.seed), append(l.sets, d)
	}
	l.LeftOut = l.sets[0].source.(*workload.Fitted).LeftOut()
	return l, l.check(p)
}

func fitting(source workload.Source, p *scenario.Plan) *workload.Fitted {
	return workload.WithoutLonger(source, p.Scenario.Server.MaxModelLen)
}

func readLoad(p *scenario.Plan) (*Load, error) {
	s := p.Scenario
	t, err := workload.Open(s.Trace)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	var source workload.Source = t
	if s.Duration > 0 {
		source = workload.ArrivingBefore(source, s.Duration)
	}
	if s.Requests > 0 {
		source = workload.FirstRequests(source, s.Requests)
	}
	fit := fitting(source, p)
	d := &requestSet{seed: s.Seed, source: fit}
	if _, err := d.first(-1); err != nil {
		return nil, err
	}
	l := &Load{Seeds: []uint64{s.Seed}, TooLong: fit.Dropped, sets: []*requestSet{d}}
	if err := l.check(p); err != nil {
		return nil, err
	}
	first, last := d.requests[0].Arrival, d.requests[len(d.requests)-1].Arrival
	if last == first {
		return nil, fmt.Errorf("%w: the %d of %s all arrive at once, which no rate changes; take more of it, or --workload",
			ErrLoad, len(d.requests), s.Trace)
	}
	l.Own = float64(len(d.requests)-1) / (last - first)
	for i := range d.requests {
		d.requests[i].Arrival = (d.requests[i].Arrival - first) * l.Own
	}
	return l, nil
}

func (l *Load) check(p *scenario.Plan) error {
	first := l.sets[0].requests
	if len(first) == 0 {
		return fmt.Errorf("%w: none is within the %d tokens of a sequence (%d are longer); raise --max-len or take "+
			"another model",
			ErrLoad, p.Scenario.Server.MaxModelLen, l.TooLong)
	}
	for i := range first {
		l.Longest = max(l.Longest, first[i].Prompt+first[i].Output)
		l.prompt += float64(first[i].Prompt) / float64(len(first))
		l.output += float64(first[i].Output) / float64(len(first))
	}
	return nil
}

// Means returns the mean lengths, in tokens, of the requests that NewLoad drew for the first seed.
func (l *Load) Means() (prompt, output float64) { return l.prompt, l.output }

// Requests returns the number of requests of a trace. It returns 0 for a workload, where the number depends
// on the rate.
func (l *Load) Requests() int {
	if l.sets[0].steady() {
		return 0
	}
	return len(l.sets[0].requests)
}

// confirming returns n sets for Confirm, or none for a trace.
func (l *Load) confirming(n int) ([]*requestSet, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.draw == nil {
		return nil, nil
	}
	for len(l.others) < n {
		d, err := l.draw(l.Seeds[0] + uint64(len(l.Seeds)+len(l.others)))
		if err != nil {
			return nil, err
		}
		l.others = append(l.others, d)
	}
	return l.others[:n], nil
}

// first returns at least n requests, or all requests if there are fewer than n or if n is -1.
func (d *requestSet) first(n int) ([]workload.Request, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.requests = slices.Grow(d.requests, max(0, n-len(d.requests)))
	for d.source != nil && (n < 0 || len(d.requests) < n) {
		var r workload.Request
		switch err := d.source.Next(&r); {
		case errors.Is(err, io.EOF):
			d.source = nil
		case err != nil:
			return nil, err
		default:
			r.Hashes = slices.Clone(r.Hashes) // the source writes over them
			d.requests = append(d.requests, r)
		}
	}
	return d.requests, nil
}
