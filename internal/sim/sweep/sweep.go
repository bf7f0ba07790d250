package sweep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim"
	"llmmemory/internal/sim/scenario"
)

// A Job is one run of a sweep.
type Job struct {
	// Key is a hash of all that the result depends on: the complete scenario, the
	// times of its model, the text of its trace, and this program.
	Key            string  `json:"key"`
	System         string  `json:"system"`
	BlockSize      int     `json:"blockSize"`
	Rate           float64 `json:"rate"`
	MaxConcurrency int     `json:"maxConcurrency,omitempty"` // of Grid.Concurrencies
	Seed           uint64  `json:"seed"`
	Requests       int     `json:"requests"` // expected number of arrivals
}

func (j Job) String() string {
	return fmt.Sprintf("%s, blocks of %d, %s, seed %d", j.System, j.BlockSize, j.load(), j.Seed)
}

// A Sweep is a grid, and the jobs that it is.
type Sweep struct {
	Grid    Grid   `json:"grid"`
	About   string `json:"about"`           // model and requests
	Program string `json:"program"`         // SHA-256
	Trace   string `json:"trace,omitempty"` // SHA-256 of the file
	Jobs    []Job  `json:"jobs"`

	plan    *scenario.Plan // of any of the jobs; it has read the trace
	changed time.Time      // the trace, last
}

// ErrChanged is wrapped when a file is not what it was when the sweep began.
var ErrChanged = errors.New("changed while the sweep ran")

// Open looks up all names of a grid, and checks every job before any is run.
func Open(g Grid) (*Sweep, error) {
	g, err := g.ordered()
	if err != nil {
		return nil, err
	}
	s := &Sweep{Grid: g, plan: new(scenario.Plan)}
	program, err := jobs.Program()
	if err != nil {
		return nil, err
	}
	s.Program = hex.EncodeToString(program)
	if g.Base.Trace != "" {
		if s.changed, err = modified(g.Base.Trace); err != nil {
			return nil, err
		}
		digest, err := jobs.Digest(g.Base.Trace)
		if err != nil {
			return nil, err
		}
		s.Trace = hex.EncodeToString(digest)
	}
	s.Jobs = g.jobs()
	for i := range s.Jobs {
		if err := s.open(&s.Jobs[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Jobs[i], err)
		}
	}
	s.About = fmt.Sprintf("Model: %s. Requests: %s.", s.plan.Setup.Name, s.plan.About)
	if m := s.plan.Setup.Margin(); m != nil {
		s.About += fmt.Sprintf(" Times: %s.", m)
	}
	return s, nil
}

// open finds the key of a job.
func (s *Sweep) open(j *Job) error {
	plan, err := s.plan.Vary(s.Grid.scenario(*j))
	if err != nil {
		return err
	}
	if err := plan.Scenario.Decoding.Check(j.System); err != nil {
		return err
	}
	s.plan = plan
	j.Requests = plan.Expected()
	j.Key, err = s.key(plan)
	return err
}

// key identifies a plan by contents, not by names: a setup by its times and memory, a
// trace by its text.
func (s *Sweep) key(plan *scenario.Plan) (string, error) {
	c := plan.Scenario
	c.Trace, c.Setup, c.Model, c.GPU, c.Workers = "", "", "", "", 0
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%+v\n%+v\n", s.Program, s.Trace, text, *plan.Model, plan.Setup.Margin())
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// run runs a job, and one of a closed loop also within the margin of its times.
func (s *Sweep) run(ctx context.Context, j Job) (r *sim.Result, ends []*sim.Result, err error) {
	plan, err := s.plan.Vary(s.Grid.scenario(j))
	if err != nil {
		return nil, nil, err
	}
	switch key, err := s.key(plan); {
	case err != nil:
		return nil, nil, err
	case key != j.Key:
		return nil, nil, fmt.Errorf("a file of the model or the GPU %w: run it again in another folder", ErrChanged)
	}
	r, err = plan.Run(ctx, nil, nil)
	if err == nil && s.Grid.closed() {
		ends, err = plan.RunWithin(ctx)
	}
	if s.Grid.Base.Trace == "" {
		return r, ends, err
	}
	if now, stat := modified(s.Grid.Base.Trace); stat != nil || !now.Equal(s.changed) {
		return nil, nil, errors.Join(fmt.Errorf("%s %w: run it again in another folder", s.Grid.Base.Trace, ErrChanged),
			stat)
	}
	return r, ends, err
}

func modified(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// ErrOther is wrapped when a folder is of another sweep.
var ErrOther = errors.New("of another sweep")

// same returns an error that names a difference if the jobs of two sweeps differ.
func (s *Sweep) same(other *Sweep) error {
	if reflect.DeepEqual(s.Jobs, other.Jobs) {
		return nil
	}
	a, b := &s.Grid, &other.Grid
	for _, d := range []struct {
		what string
		a, b any
	}{
		{"the systems", a.Systems, b.Systems}, {"block sizes", a.BlockSizes, b.BlockSizes},
		{"the rates", a.Rates, b.Rates}, {"concurrencies", a.Concurrencies, b.Concurrencies},
		{"the seeds", a.Seeds, b.Seeds},
	} {
		if !reflect.DeepEqual(d.a, d.b) {
			return fmt.Errorf("%w: it has %s %v, not %v", ErrOther, d.what, d.b, d.a)
		}
	}
	switch {
	case s.Trace != other.Trace:
		return fmt.Errorf("%w: its trace has other requests in it", ErrOther)
	case s.Program != other.Program:
		return fmt.Errorf("%w: it was run by another build of this program, whose results need not be the same", ErrOther)
	}
	was, _ := json.Marshal(b.Base)
	is, _ := json.Marshal(a.Base)
	return fmt.Errorf("%w: its settings are\n  %s, not\n  %s\nor a file that they name has changed", ErrOther, was, is)
}
