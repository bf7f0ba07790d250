package capacity

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
)

// Runs keeps the points of runs in a folder, so that a search that was interrupted, or
// divided among machines, does not run them again. Each shard appends to a file of its
// own, runs-I-of-N.jsonl; all files of the folder are read. A run is known by everything
// its outcome depends on: this program, the scenario, the cost model, the trace, the
// objective, the horizon, the seed and the rate. A nil Runs keeps nothing. It is safe for
// concurrent use.
type Runs struct {
	base  []byte // digest of the program and the trace
	lock  sync.Mutex
	known map[string]Point
	left  map[string]bool // those that were there and are not taken yet
	file  *os.File
	Kept  int // points that were there, also those of other questions and programs, which are of no use
	Taken int // of these, those that did not have to be run
	Added int // points that were
}

// runLine is a line of the file.
type runLine struct {
	Key   string `json:"key"`
	Point Point  `json:"point"`
}

// OpenRuns opens the runs of a folder, which is made if need be. The caller closes them.
func OpenRuns(dir string, shard jobs.Shard, s scenario.Scenario) (*Runs, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
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
	paths, err := filepath.Glob(filepath.Join(dir, "runs-*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := r.read(path); err != nil {
			return nil, err
		}
	}
	r.Kept = len(r.known)
	for key := range r.known {
		r.left[key] = true
	}
	own := filepath.Join(dir, fmt.Sprintf("runs-%d-of-%d.jsonl", max(1, shard.Index), max(1, shard.Of)))
	if r.file, err = os.OpenFile(own, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	return r, r.endLine()
}

// endLine ends a last line that was cut off when a run was killed, so that the next
// one is whole.
func (r *Runs) endLine() error {
	info, err := r.file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := r.file.ReadAt(last[:], info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = r.file.Write([]byte("\n"))
	return err
}

// read adds the whole lines of a file. What is no point was cut off.
func (r *Runs) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var l runLine
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Key != "" {
			r.known[l.Key] = l.Point
		}
	}
	return lines.Err()
}

// Close closes the file.
func (r *Runs) Close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// point is what a run measures, or has measured before.
func (r *Runs) point(ctx context.Context, p *scenario.Plan, seed uint64, w *steadyRun) (Point, error) {
	if r == nil {
		return w.run(ctx, p, seed)
	}
	key, err := r.key(p, seed, w)
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
	point, err := w.run(ctx, p, seed)
	if err != nil {
		return point, err
	}
	return point, r.add(key, point)
}

// key is a digest of all that a run depends on. Bytes that are equal make equal runs:
// numbers are written with all of their digits.
func (r *Runs) key(p *scenario.Plan, seed uint64, w *steadyRun) (string, error) {
	text, err := json.Marshal(struct {
		Scenario       scenario.Scenario
		Cost, SLO      string
		Horizon        Horizon
		Seed           uint64
		Rate           float64
		Whole, Patient bool
	}{p.Scenario, fmt.Sprintf("%+v", *p.Model), fmt.Sprintf("%+v", []Objective(w.slo)), w.horizon, seed, w.rate, w.whole, w.patient})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.Join([][]byte{r.base, text}, nil))
	return hex.EncodeToString(sum[:16]), nil
}

func (r *Runs) add(key string, point Point) error {
	line, err := json.Marshal(runLine{key, point})
	if err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.known[key] = point
	r.Added++
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("a run cannot be kept (those kept so far are not run again): %w; make room or take another folder", err)
	}
	return nil
}
