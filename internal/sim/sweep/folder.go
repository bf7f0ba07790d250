package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim"
)

// A Folder keeps what a sweep has finished. One process has it, or one for each shard.
type Folder struct {
	Path  string
	Sweep *Sweep
	Shard jobs.Shard

	log   *jobs.Log
	State *State // of the whole folder, when it was opened
}

// OpenFolder makes the folder if it is not there, and locks it. A folder of another sweep, or one that another
// process uses, is not changed.
func OpenFolder(path string, s *Sweep, shard jobs.Shard) (*Folder, error) {
	if _, err := s.isIn(path); err != nil {
		return nil, err
	}
	log, err := jobs.OpenLog(path, "results", shard, func() error { return s.writeTo(path) })
	if err != nil {
		return nil, err
	}
	f := &Folder{Path: path, Sweep: s, Shard: shard, log: log}
	if f.State, err = f.Read(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close lets other processes use the folder.
func (f *Folder) Close() error { return f.log.Close() }

// save keeps an outcome.
func (f *Folder) save(o Outcome) error {
	if err := f.log.Append(o); err != nil {
		return fmt.Errorf("%s: %w", o.Job, err)
	}
	return nil
}

const sweepName = "sweep.json"

// isIn reports whether the folder is of the sweep. The error wraps ErrOther if it is of another one.
func (s *Sweep) isIn(dir string) (bool, error) {
	path := filepath.Join(dir, sweepName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	other := &Sweep{}
	if err == nil {
		err = json.Unmarshal(text, other)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if err := s.same(other); err != nil {
		return false, fmt.Errorf("the folder %s is %w; take another folder", dir, err)
	}
	return true, nil
}

// writeTo writes sweep.json if it is not there. Of two processes that write it at the same time the second
// does not replace the file of the first, which has to be of the same sweep.
func (s *Sweep) writeTo(dir string) error {
	if found, err := s.isIn(dir); found || err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := jobs.Replace(filepath.Join(fresh, sweepName), append(text, '\n')); err != nil {
		return err
	}
	if err := os.Link(filepath.Join(fresh, sweepName), filepath.Join(dir, sweepName)); !errors.Is(err, fs.ErrExist) {
		return err
	}
	_, err = s.isIn(dir)
	return err
}

// An Outcome is the result of a job: a line of a results file.
type Outcome struct {
	Job
	Result *sim.Result `json:"result,omitempty"`
	Error  string      `json:"error,omitempty"` // why there is no result

	// of the fastest and of the slowest server that the margin of the times leaves open, if the load is a
	// concurrency; empty without a margin
	Range []*sim.Result `json:"range,omitempty"`
}

// A State has the outcomes of a sweep so far.
type State struct {
	*Sweep
	Outcomes []*Outcome // of each job; nil: it has not been run

	where []string // the line that each is from
}

var (
	// ErrResults is wrapped when a line of a results file cannot be used.
	ErrResults = errors.New("no line of this sweep's results")
	// ErrTwice is wrapped when a job has two results.
	ErrTwice = errors.New("run twice, with different results")
	// ErrMissing is wrapped when jobs have not been run.
	ErrMissing = errors.New("missing")
)

// Read reads the results in the folder, also those of other shards.
func (f *Folder) Read() (*State, error) {
	s := f.Sweep
	st := &State{Sweep: s, Outcomes: make([]*Outcome, len(s.Jobs)), where: make([]string, len(s.Jobs))}
	at := map[string]int{}
	for i, j := range s.Jobs {
		at[j.Key] = i
	}
	return st, f.log.Read(func(line []byte, where string) error {
		o := &Outcome{}
		if err := json.Unmarshal(line, o); err != nil {
			return fmt.Errorf("%s: %w: %w; remove the line, and the job is run again", where, ErrResults, err)
		}
		i, found := at[o.Key]
		if !found || o.Job != s.Jobs[i] || (o.Result == nil) == (o.Error == "") {
			return fmt.Errorf("%s: %w; remove it", where, ErrResults)
		}
		return st.add(i, o, where)
	})
}

// add adds an outcome. A result replaces a failure, and a later failure an earlier one.
func (st *State) add(i int, o *Outcome, where string) error {
	switch was := st.Outcomes[i]; {
	case was == nil || was.Result == nil:
		st.Outcomes[i], st.where[i] = o, where
	case o.Result != nil && !reflect.DeepEqual(was.Result, o.Result):
		return fmt.Errorf("%s: %w: %s and %s; remove the line that is wrong", o.Job, ErrTwice, st.where[i], where)
	}
	return nil
}

// Failed returns a shard's jobs that were run without a result.
func (st *State) Failed(shard jobs.Shard) []*Outcome {
	var all []*Outcome
	of := st.shards(shard.Of)
	for i, o := range st.Outcomes {
		if o != nil && o.Result == nil && of[i] == shard.Index {
			all = append(all, o)
		}
	}
	return all
}

// Missing returns the jobs that have not been run.
func (st *State) Missing() []Job {
	var all []Job
	for i, o := range st.Outcomes {
		if o == nil {
			all = append(all, st.Jobs[i])
		}
	}
	return all
}
