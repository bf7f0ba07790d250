package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"llmmemory/internal/jobs"
)

// ErrBusy is wrapped when another process works in the folder.
var ErrBusy = errors.New("another process works in it")

// A Folder keeps what a sweep has finished. One process has it, or one for each
// shard.
type Folder struct {
	Path  string
	Sweep *Sweep
	Shard jobs.Shard

	lock, results *os.File
	State         *State // of the whole folder, when it was opened
}

// OpenFolder makes the folder if it is not there, and locks it. If it is of
// another sweep, or if somebody works in it, it is left as it is.
func OpenFolder(path string, s *Sweep, shard jobs.Shard) (*Folder, error) {
	if _, err := s.isIn(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	f := &Folder{Path: path, Sweep: s, Shard: shard}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Folder) open() (err error) {
	// Shards of one sweep may share a folder; the whole of it shares with nobody.
	if f.lock, err = os.OpenFile(filepath.Join(f.Path, "lock"), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	if err = lock(f.lock, f.Shard.Of == 1); err != nil {
		return fmt.Errorf("the folder %s: %w: wait for it, or take another folder", f.Path, err)
	}
	if err = f.Sweep.writeTo(f.Path); err != nil {
		return err
	}
	if f.results, err = os.OpenFile(filepath.Join(f.Path, resultsName(f.Shard)), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644); err != nil {
		return err
	}
	if err = lock(f.results, true); err != nil {
		return fmt.Errorf("shard %v in the folder %s: %w: wait for it", f.Shard, f.Path, err)
	}
	if err = tidy(f.results); err != nil {
		return err
	}
	f.State, err = f.Sweep.read(f.Path)
	return err
}

// Close lets others work in the folder.
func (f *Folder) Close() error {
	var err error
	for _, file := range []*os.File{f.results, f.lock} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

func resultsName(s jobs.Shard) string { return fmt.Sprintf("results-%d-of-%d.jsonl", s.Index, s.Of) }

// tidy cuts off a line that a killed process has not finished. A line is written
// in one go, newline last.
func tidy(f *os.File) error {
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	if whole := bytes.LastIndexByte(text, '\n') + 1; whole < len(text) {
		return f.Truncate(int64(whole))
	}
	return nil
}

// save keeps an outcome: its line is on the disk, or not in the file.
func (f *Folder) save(o Outcome) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	info, err := f.results.Stat()
	if err != nil {
		return err
	}
	if _, err = f.results.Write(append(line, '\n')); err == nil {
		err = f.results.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", o.Job, err), f.results.Truncate(info.Size()))
	}
	return nil
}

const sweepName = "sweep.json"

// readSweep reads which sweep a folder is of.
func readSweep(dir string) (*Sweep, error) {
	path := filepath.Join(dir, sweepName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Sweep{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// isIn says whether the folder is of the sweep. The error wraps ErrOther if it is
// of another one.
func (s *Sweep) isIn(dir string) (bool, error) {
	other, err := readSweep(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.same(other); err != nil {
		return false, fmt.Errorf("the folder %s is %w; take another folder", dir, err)
	}
	return true, nil
}

// writeTo writes which sweep it is, if that is not there. Two that begin at once
// do not overwrite each other: the second one has to be of the same sweep.
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

// lock locks a file until it is closed or the process ends, however it ends.
// It does not wait: the error is errBusy if another process is in the way.
func lock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}
