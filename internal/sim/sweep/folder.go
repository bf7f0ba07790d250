package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

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
	log, err := jobs.OpenLog(path, "results", shard, func() error { return s.begin(path) })
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

const sweepName = "sweep.json"

// begin writes sweep.json if the folder has none. The error wraps ErrOther if it is of another sweep.
func (s *Sweep) begin(dir string) error {
	path := filepath.Join(dir, sweepName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.create(path); !errors.Is(err, fs.ErrExist) {
			return err
		}
		text, err = os.ReadFile(path) // of another shard, which began at the same time
	}
	other := &Sweep{}
	if err == nil {
		err = json.Unmarshal(text, other)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := s.same(other); err != nil {
		return fmt.Errorf("the folder %s is %w; take another folder", dir, err)
	}
	return nil
}

// create writes the sweep to a file that does not exist yet.
func (s *Sweep) create(path string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	whole := filepath.Join(dir, sweepName)
	if err := jobs.Replace(whole, append(text, '\n')); err != nil {
		return err
	}
	return os.Link(whole, path)
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
	for _, i := range slices.Sorted(slices.Values(st.part(shard))) {
		if o := st.Outcomes[i]; o != nil && o.Result == nil {
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
