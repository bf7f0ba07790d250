package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/jobs"
)

// ErrMissing is wrapped when jobs have been run nowhere.
var ErrMissing = errors.New("missing")

const mostNamed = 10 // missing jobs

// Merge brings folders of one sweep together in another, which may be one of
// them, or have been begun. Nothing is written if a job is missing.
func Merge(to string, dirs []string) (*State, error) {
	var s *Sweep
	for _, dir := range dirs {
		other, err := readSweep(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no %s in it: has llmsim sweep written there?", dir, sweepName)
		}
		if err != nil {
			return nil, err
		}
		if s == nil {
			s = other
		} else if err := s.same(other); err != nil {
			return nil, fmt.Errorf("%s is, beside %s, %w", dir, dirs[0], err)
		}
	}
	switch begun, err := s.isIn(to); {
	case err != nil:
		return nil, err
	case begun:
		dirs = append(slices.Clone(dirs), to)
	}
	all, err := s.read(distinct(dirs)...)
	if err != nil {
		return nil, err
	}
	if err := all.whole(); err != nil {
		return nil, err
	}
	return all, all.write(to)
}

// distinct are folders, each once.
func distinct(dirs []string) []string {
	var all []string
	for _, dir := range dirs {
		if dir = filepath.Clean(dir); !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}

// write writes all outcomes to a folder as if it had run them itself.
func (st *State) write(dir string) error {
	f, err := OpenFolder(dir, st.Sweep, jobs.Shard{Index: 1, Of: 1})
	if err != nil {
		return err
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, o := range st.Outcomes {
		if err := lines.Encode(o); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(jobs.Replace(f.results.Name(), text.Bytes()), f.Close())
}

// whole is nil if every job has been run, and else says what has to be done.
func (st *State) whole() error {
	missing := st.Missing()
	if len(missing) == 0 {
		return nil
	}
	var b strings.Builder
	for i, j := range missing {
		if i == mostNamed {
			fmt.Fprintf(&b, "  and %d more\n", len(missing)-i)
			break
		}
		fmt.Fprintf(&b, "  %s\n", j)
	}
	return fmt.Errorf("%d of %d jobs are %w:\n%srun\n  %s\nand merge then", len(missing), len(st.Jobs), ErrMissing, &b,
		strings.Join(st.rerun(), "\n  "))
}

// rerun are the commands that run what is missing: each shard where it was
// begun, if it was.
func (st *State) rerun() []string {
	of := 1
	for _, f := range st.files {
		of = max(of, f.shard.Of)
	}
	shards := st.shards(of)
	var need []int
	for i, o := range st.Outcomes {
		if o == nil && !slices.Contains(need, shards[i]) {
			need = append(need, shards[i])
		}
	}
	slices.Sort(need)
	var all []string
	for _, index := range need {
		shard := jobs.Shard{Index: index, Of: of}
		at := slices.IndexFunc(st.files, func(f resultsFile) bool { return f.shard == shard })
		dir := st.dirs[0] // shards may share a folder
		if at >= 0 {
			dir = st.files[at].dir
		}
		all = append(all, st.CommandOf(shard, dir))
	}
	return all
}

// CommandOf is what to type to run a shard in a folder.
func (s *Sweep) CommandOf(shard jobs.Shard, dir string) string {
	words := slices.Clone(s.Command)
	if shard.Of > 1 {
		words = append(words, "--shard", shard.String())
	}
	words = append(words, "-o", dir)
	for i, w := range words {
		words[i] = quoted(w)
	}
	return strings.Join(words, " ")
}

// quoted is a word as a shell reads it.
func quoted(w string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("-_./,:=+@%", r)
	}
	if w != "" && !strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
