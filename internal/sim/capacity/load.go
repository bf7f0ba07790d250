package capacity

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
)

// ErrLoad is wrapped when requests have no rate that could be changed.
var ErrLoad = errors.New("no capacity of these requests")

// A Load is the requests of a plan, drawn or read once, for runs at any rate.
// It is safe for concurrent use.
type Load struct {
	Seeds   []uint64
	Own     float64 // requests/s of a trace as it is; 0: a named workload
	TooLong int     // requests of a trace that are longer than sequences may be, and left out
	Longest int     // tokens of the longest one, of the first seed
	LeftOut float64 // part of a workload's requests that is longer, and left out; the rate is that of the others

	prompt, output float64 // see Means

	sets []*requestSet // one for each seed

	others     []*requestSet // to confirm with; none of a trace
	otherSeeds []uint64
	draw       func(seed uint64) (*requestSet, error) // more of them; nil: a trace
	drawing    sync.Mutex
}

// A requestSet is requests that arrive at a rate of one a second.
type requestSet struct {
	lock     sync.Mutex
	requests []workload.Request
	source   workload.Source // of more; nil: these are all
	steady   bool            // arrivals are
	shape    float64         // of their gaps, where they are
	duration float64         // s of arrivals at any rate; 0: all requests
	endless  bool            // there are as many as a run needs
	runs     *Runs           // nil: nothing is kept
}

// Keep makes searches with a horizon use the results in runs, and add theirs to it.
func (l *Load) Keep(runs *Runs) {
	for _, d := range append(slices.Clone(l.sets), l.others...) {
		d.runs = runs
	}
}

// defaultRequests is how many requests are drawn, or read from a trace, if the scenario does
// not say.
const defaultRequests = 2000

// MostSeeds is how many seeds a search has at most: each keeps its requests in memory.
const MostSeeds = 100

// NewLoad draws the requests of a plan, with the given number of seeds from the scenario's on.
// Plans with the same requests can share it. A trace has no randomness: it is read once, and its first Duration
// seconds as it is, or its first Requests ones, are all the load.
func NewLoad(p *scenario.Plan, seeds int) (*Load, error) {
	s := p.Scenario
	if err := openLoop(s); err != nil {
		return nil, err
	}
	if s.Trace != "" {
		return readLoad(p, defaultRequests)
	}
	lengths, _, err := s.Lengths()
	if err != nil {
		return nil, err
	}
	l := &Load{}
	for i := range uint64(seeds) {
		d := &requestSet{steady: true, shape: burstiness(p)}
		count := s.Requests
		if s.Duration > 0 {
			d.duration = s.Duration
		} else if count == 0 {
			count = defaultRequests
		}
		drawn, err := workload.Gamma(lengths, 1, burstiness(p), s.Seed+i, 0, count)
		if err != nil {
			return nil, err
		}
		d.source = fitting(drawn, p)
		first := -1 // all
		if d.duration > 0 {
			first = defaultRequests
		}
		if err := d.draw(first); err != nil {
			return nil, err
		}
		l.Seeds, l.sets = append(l.Seeds, s.Seed+i), append(l.sets, d)
	}
	return l, l.check(p)
}

// NewSteadyLoad is NewLoad for searches with a horizon: requests of a workload are
// drawn as long as a run needs more, others is how many more seeds there are to
// confirm with, and all rows of a trace are taken, if the scenario does not say
// otherwise.
func NewSteadyLoad(p *scenario.Plan, seeds, others int) (*Load, error) {
	s := p.Scenario
	if err := openLoop(s); err != nil {
		return nil, err
	}
	if s.Trace != "" {
		return readLoad(p, 0)
	}
	lengths, _, err := s.Lengths()
	if err != nil {
		return nil, err
	}
	if seeds < 1 || seeds > MostSeeds {
		return nil, fmt.Errorf("%w: %d seeds: want 1 to %d", ErrLoad, seeds, MostSeeds)
	}
	l := &Load{}
	l.draw = func(seed uint64) (*requestSet, error) {
		drawn, err := workload.Gamma(lengths, 1, burstiness(p), seed, 0, 0)
		if err != nil {
			return nil, err
		}
		fitted := fitting(drawn, p)
		d := &requestSet{steady: true, shape: burstiness(p), endless: true, source: fitted}
		err = d.draw(defaultRequests)
		if seed == s.Seed {
			l.LeftOut = fitted.LeftOut()
		}
		return d, err
	}
	for i := range uint64(seeds + others) {
		d, err := l.draw(s.Seed + i)
		if err != nil {
			return nil, err
		}
		if i < uint64(seeds) {
			l.Seeds, l.sets = append(l.Seeds, s.Seed+i), append(l.sets, d)
		} else {
			l.otherSeeds, l.others = append(l.otherSeeds, s.Seed+i), append(l.others, d)
		}
	}
	return l, l.check(p)
}

// confirming returns the sets to confirm with and their seeds, at least n of them, but none
// of a trace.
func (l *Load) confirming(n int) ([]*requestSet, []uint64, error) {
	l.drawing.Lock()
	defer l.drawing.Unlock()
	for l.draw != nil && len(l.others) < n {
		seed := l.Seeds[0] + uint64(len(l.Seeds)+len(l.others))
		d, err := l.draw(seed)
		if err != nil {
			return nil, nil, err
		}
		d.runs = l.sets[0].runs
		l.others, l.otherSeeds = append(l.others, d), append(l.otherSeeds, seed)
	}
	n = min(n, len(l.others))
	return slices.Clone(l.others[:n]), slices.Clone(l.otherSeeds[:n]), nil
}

// openLoop refuses requests that wait for answers: a rate of those says nothing of
// what the server could do.
func openLoop(s scenario.Scenario) error {
	if s.MaxConcurrency > 0 || s.Turns > 0 || s.AtOnce {
		return fmt.Errorf("%w: requests that wait for answers (at most %d at once, %v turns) arrive as fast as they are "+
			"served; a plan needs requests that arrive independently of answers", ErrLoad, s.MaxConcurrency, s.Turns)
	}
	return nil
}

// burstiness returns the shape of the gaps between arrivals.
func burstiness(p *scenario.Plan) float64 {
	if p.Scenario.Burstiness == 0 {
		return 1
	}
	return p.Scenario.Burstiness
}

func fitting(source workload.Source, p *scenario.Plan) *workload.Fitted {
	return workload.WithoutLonger(source, p.Scenario.Server.MaxModelLen)
}

// readLoad is NewLoad for a trace; usual is how many requests are taken where the
// scenario does not say, 0: all.
func readLoad(p *scenario.Plan, usual int) (*Load, error) {
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
	switch {
	case s.Requests > 0:
		source = workload.FirstRequests(source, s.Requests)
	case s.Duration == 0 && usual > 0:
		source = workload.FirstRequests(source, usual)
	}
	fit := fitting(source, p)
	d := &requestSet{source: fit}
	if err := d.draw(-1); err != nil {
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

// Means returns the mean lengths in tokens, of the first seed and of what was drawn at first:
// they are the same however many requests runs have drawn since.
func (l *Load) Means() (prompt, output float64) { return l.prompt, l.output }

// Requests returns the number of requests for a seed, or 0 if it depends on the rate.
func (l *Load) Requests() int {
	if l.sets[0].duration > 0 || l.sets[0].endless {
		return 0
	}
	return len(l.sets[0].requests)
}

// draw reads requests until there are n; -1: to the end.
func (d *requestSet) draw(n int) error {
	d.requests = slices.Grow(d.requests, max(0, n-len(d.requests)))
	for d.source != nil && (n < 0 || len(d.requests) < n) {
		var r workload.Request
		err := d.source.Next(&r)
		if errors.Is(err, io.EOF) {
			d.source = nil
			return nil
		}
		if err != nil {
			return err
		}
		r.Hashes = slices.Clone(r.Hashes) // the source writes over them
		d.requests = append(d.requests, r)
	}
	return nil
}

// at returns the requests that come at a rate. They stay as they are.
func (d *requestSet) at(rate float64) ([]workload.Request, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.duration == 0 {
		return d.requests, nil
	}
	end := rate * d.duration
	for d.source != nil && d.requests[len(d.requests)-1].Arrival < end {
		expected := int(end) - len(d.requests) // more: one a second arrives
		if err := d.draw(len(d.requests) + max(defaultRequests, expected)); err != nil {
			return nil, err
		}
	}
	n, _ := slices.BinarySearchFunc(d.requests, end, func(r workload.Request, end float64) int {
		if r.Arrival < end {
			return -1
		}
		return 1
	})
	return d.requests[:max(1, n)], nil
}

// A scaled source is requests of a set at a rate.
type scaled struct {
	requests []workload.Request
	rate     float64
	next     int
}

func (s *scaled) Next(r *workload.Request) error {
	if s.next == len(s.requests) {
		return io.EOF
	}
	*r = s.requests[s.next]
	r.Arrival /= s.rate
	s.next++
	return nil
}
