// Package runs keeps the results of runs in a folder, so that an interrupted command does not repeat them.
package runs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"llmmemory/internal/jobs"
	"llmmemory/internal/simulation/workload"
)

var (
	// ErrBusy is wrapped when another process uses a folder.
	ErrBusy = errors.New("another process works in it")
	// ErrChanged is wrapped when the trace has changed since the store was opened, so results may be of other
	// requests.
	ErrChanged = errors.New("changed while it was used")
)

// A Store keeps results in the file runs.jsonl of a folder, as one line of JSON each. Only one process can
// use a folder at a time; goroutines can share a Store. A nil Store keeps nothing.
type Store struct {
	dir     string
	base    []byte // digest of the program and the trace
	trace   string
	changed time.Time // the trace, last

	lock    sync.Mutex
	file    *os.File
	known   map[string]json.RawMessage
	unused  map[string]bool // results that the file had when it was opened and that Do has not returned yet
	initial int             // results that the file had when it was opened, of all questions and programs
	added   int
}

// line is a line of the file.
type line struct {
	Key    string          `json:"key"`
	Result json.RawMessage `json:"result"`
}

// Open opens the store of a folder, and creates the folder if necessary. It finds only results of this version of the
// program and, if trace is not "", of the trace's present contents. The caller must close the store.
func Open(dir, trace string) (*Store, error) {
	s := &Store{dir: dir, trace: trace, known: map[string]json.RawMessage{}, unused: map[string]bool{}}
	var err error
	if s.base, err = jobs.Program(); err != nil {
		return nil, err
	}
	if trace != "" {
		s.changed = modified(trace)
		digest, err := workload.Digest(trace)
		if err != nil {
			return nil, err
		}
		s.base = append(s.base, digest...)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if s.file, err = os.OpenFile(filepath.Join(dir, "runs.jsonl"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// read locks the file and reads its results. If a killed process left an incomplete last line, read removes
// this line.
func (s *Store) read() error {
	err := syscall.Flock(int(s.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("the folder %s: %w: wait until it ends, or take another folder", s.dir, ErrBusy)
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.file.Name())
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	for row := range bytes.Lines(text[:whole]) {
		var l line
		if json.Unmarshal(row, &l) == nil && l.Key != "" && l.Result != nil { // else it is of another version
			s.known[l.Key], s.unused[l.Key] = l.Result, true
		}
	}
	s.initial = len(s.known)
	if whole < len(text) {
		return s.file.Truncate(int64(whole))
	}
	return nil
}

// Close unlocks the folder and closes the file. Without the explicit unlock, a child process that has
// inherited the file would keep the lock.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	return errors.Join(syscall.Flock(int(s.file.Fd()), syscall.LOCK_UN), s.file.Close())
}

// Do returns the result that the store has for a key. If there is none, it calls run and stores the result. Keys are
// compared as JSON. A key must contain everything on which the result depends, except the program and the trace.
func Do[T any](s *Store, key any, run func() (T, error)) (result T, err error) {
	if s == nil {
		return run()
	}
	text, err := json.Marshal(key)
	if err != nil {
		return result, err
	}
	sum := sha256.Sum256(slices.Concat(s.base, fmt.Appendf(nil, "%T ", result), text))
	name := hex.EncodeToString(sum[:16])
	if known := s.take(name); known != nil && json.Unmarshal(known, &result) == nil {
		return result, nil
	}
	if result, err = run(); err != nil {
		return result, err
	}
	if s.trace != "" && !modified(s.trace).Equal(s.changed) {
		return result, fmt.Errorf("%s %w: run it again", s.trace, ErrChanged)
	}
	return result, s.add(name, result)
}

// take returns the stored result for a key, or nil.
func (s *Store) take(name string) json.RawMessage {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.unused, name)
	return s.known[name]
}

// add appends a result to the file. If this fails, it restores the file's length.
func (s *Store) add(name string, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	row, err := json.Marshal(line{name, text})
	if err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.known[name] = text
	s.added++
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if _, err = s.file.Write(append(row, '\n')); err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("a run cannot be kept (those kept so far are not run again): %w; free disk space or take "+
			"another folder", errors.Join(err, s.file.Truncate(info.Size())))
	}
	return nil
}

// String says how many results the file had when it was opened, how many of them were used, and how many were added.
func (s *Store) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return fmt.Sprintf("%d of the %d runs kept in %s were taken, %d were added", s.initial-len(s.unused), s.initial, s.dir, s.added)
}

// modified returns a file's modification time, or the zero time if there is no such file.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
