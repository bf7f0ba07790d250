package sweep

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"

	"llmmemory/internal/jobs"
	"llmmemory/internal/sim"
)

// An Outcome is what became of a job: a line of a results file.
type Outcome struct {
	Job
	Result *sim.Result `json:"result,omitempty"`
	Error  string      `json:"error,omitempty"` // why there is no result
}

// A State is what is there of a sweep.
type State struct {
	*Sweep
	Outcomes []*Outcome // of each job; nil: it has not been run

	at    map[string]int // by key
	where []string       // the line that each is from
	dirs  []string
	files []resultsFile
}

type resultsFile struct {
	dir   string
	shard jobs.Shard
}

var (
	// ErrResults is wrapped when a line of a results file is none.
	ErrResults = errors.New("no line of this sweep's results")
	// ErrTwice is wrapped when a job has two results.
	ErrTwice = errors.New("run twice, with different results")
)

// read reads what folders have of the sweep. What is being written is not there
// yet.
func (s *Sweep) read(dirs ...string) (*State, error) {
	st := &State{Sweep: s, Outcomes: make([]*Outcome, len(s.Jobs)), where: make([]string, len(s.Jobs)), at: map[string]int{}, dirs: dirs}
	for i, j := range s.Jobs {
		st.at[j.Key] = i
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var shard jobs.Shard
			if n, _ := fmt.Sscanf(e.Name(), "results-%d-of-%d.jsonl", &shard.Index, &shard.Of); n != 2 || e.Name() != resultsName(shard) {
				continue
			}
			st.files = append(st.files, resultsFile{dir, shard})
			if err := st.readFile(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return st, nil
}

func (st *State) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := fmt.Sprintf("line %d of %s", n, path)
		o := &Outcome{}
		if err := json.Unmarshal(line, o); err != nil {
			return fmt.Errorf("%s: %w: %w; remove the line, and the job is run again", at, ErrResults, err)
		}
		i, found := st.at[o.Key]
		if !found || o.Job != st.Jobs[i] || (o.Result == nil) == (o.Error == "") {
			return fmt.Errorf("%s: %w; remove it", at, ErrResults)
		}
		if err := st.add(i, o, at); err != nil {
			return err
		}
	}
}

// add adds an outcome. One that failed counts for less than a result, and for
// less than one that failed later.
func (st *State) add(i int, o *Outcome, at string) error {
	switch was := st.Outcomes[i]; {
	case was == nil || was.Result == nil:
		st.Outcomes[i], st.where[i] = o, at
	case o.Result != nil && !reflect.DeepEqual(was.Result, o.Result):
		return fmt.Errorf("%s: %w: %s and %s; remove the line that is wrong", o.Job, ErrTwice, st.where[i], at)
	}
	return nil
}

// Failed are a shard's jobs that have been run without a result.
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

// Missing are the jobs that have not been run.
func (st *State) Missing() []Job {
	var all []Job
	for i, o := range st.Outcomes {
		if o == nil {
			all = append(all, st.Jobs[i])
		}
	}
	return all
}
