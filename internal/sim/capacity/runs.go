package capacity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
)

// Runs keeps the points of runs in a folder, so that a search that was interrupted does not run them again. A
// run is identified by everything its outcome depends on: this program, the scenario, the cost model, the trace,
// the objective, the horizon, the seed and the rate. A nil Runs keeps nothing. It is safe for concurrent use.
type Runs struct {
	base  []byte // digest of the program and the trace
	lock  sync.Mutex
	known map[string]Point
	left  map[string]bool // those that were there and have not been taken yet
	log   *jobs.Log
	Kept  int // points that were there, also those of other questions and programs
	Taken int // of these, points that did not have to be run
	Added int // points that were run
}

// runLine is a line of the file.
type runLine struct {
	Key   string `json:"key"`
	Point Point  `json:"point"`
}

// OpenRuns opens the runs of a folder, which is made if necessary. The caller closes them.
func OpenRuns(dir string, s scenario.Scenario) (*Runs, error) {
	r := &Runs{known: map[string]Point{}, left: map[string]bool{}}
	var err error
	if r.base, err = jobs.Program(); err != nil {
		return nil, err
	}
	if s.Trace != "" {
		digest, err := workload.Digest(s.Trace)
		if err != nil {
			return nil, err
		}
		r.base = append(r.base, digest...)
	}
	if r.log, err = jobs.OpenLog(dir, "runs", jobs.Shard{Index: 1, Of: 1}, nil); err != nil {
		return nil, err
	}
	err = r.log.Read(func(line []byte, _ string) error {
		var l runLine
		if json.Unmarshal(line, &l) == nil && l.Key != "" { // another line is of another version of this program
			r.known[l.Key], r.left[l.Key] = l.Point, true
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, r.log.Close())
	}
	r.Kept = len(r.known)
	return r, nil
}

// Close closes the file.
func (r *Runs) Close() error {
	if r == nil {
		return nil
	}
	return r.log.Close()
}

// point returns what a run measures, or has measured before.
func (r *Runs) point(of *runner, rate float64, e effort, run func() (Point, error)) (Point, error) {
	if r == nil {
		return run()
	}
	key, err := r.key(of, rate, e)
	if err != nil {
		return Point{}, err
	}
	r.lock.Lock()
	known, ok := r.known[key]
	if r.left[key] {
		delete(r.left, key)
		r.Taken++
	}
	r.lock.Unlock()
	if ok {
		return known, nil
	}
	point, err := run()
	if err != nil {
		return point, err
	}
	return point, r.add(key, point)
}

// key returns a digest of all that a run depends on. Bytes that are equal make equal runs:
// numbers are written with all of their digits.
func (r *Runs) key(of *runner, rate float64, e effort) (string, error) {
	text, err := json.Marshal(struct {
		Scenario  scenario.Scenario
		Cost, SLO string
		Horizon   Horizon
		Seed      uint64
		Rate      float64
		Effort    effort
	}{of.plan.Scenario, fmt.Sprintf("%+v", *of.plan.Model), fmt.Sprintf("%+v", []Objective(of.slo)), of.horizon, of.set.seed,
		rate, e})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(slices.Clone(r.base), text...))
	return hex.EncodeToString(sum[:16]), nil
}

func (r *Runs) add(key string, point Point) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.known[key] = point
	r.Added++
	if err := r.log.Append(runLine{key, point}); err != nil {
		return fmt.Errorf("a run cannot be kept (those kept so far are not run again): %w; free disk space or take "+
			"another folder", err)
	}
	return nil
}
