package jobs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// ErrBusy is wrapped when another process uses a folder.
var ErrBusy = errors.New("another process works in it")

// A Log keeps results in a folder, one line of JSON each, so that a command that was interrupted, or divided
// among machines, does not compute them again. Shard I of N appends to PREFIX-I-of-N.jsonl. The folder is
// locked: one process has all of it, or one for each shard.
type Log struct {
	dir, prefix string
	shard       Shard
	lock, file  *os.File
}

// OpenLog opens the log of a shard, and makes the folder if necessary. Begin, if not nil, is called when the
// folder is locked, before the shard's file is made.
func OpenLog(dir, prefix string, shard Shard, begin func() error) (*Log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l := &Log{dir: dir, prefix: prefix, shard: shard}
	if err := l.open(begin); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Log) open(begin func() error) (err error) {
	if l.lock, err = os.OpenFile(filepath.Join(l.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	if err = lock(l.lock, l.shard.Of == 1); err != nil {
		return fmt.Errorf("the folder %s: %w: wait until it ends; another shard can work in it at the same time", l.dir, err)
	}
	if begin != nil {
		if err = begin(); err != nil {
			return err
		}
	}
	if l.file, err = os.OpenFile(l.name(l.shard), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644); err != nil {
		return err
	}
	if err = lock(l.file, true); err != nil {
		return fmt.Errorf("shard %v in the folder %s: %w: wait for it", l.shard, l.dir, err)
	}
	return l.truncate()
}

// name returns the path of the file of a shard.
func (l *Log) name(s Shard) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s-%d-of-%d.jsonl", l.prefix, s.Index, s.Of))
}

// truncate removes a last line that a killed process did not finish: the newline is written last.
func (l *Log) truncate() error {
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		return err
	}
	if whole := bytes.LastIndexByte(text, '\n') + 1; whole < len(text) {
		return l.file.Truncate(int64(whole))
	}
	return nil
}

// Close unlocks the folder, also if a process that is being started still has the files.
func (l *Log) Close() error {
	var err error
	for _, file := range []*os.File{l.file, l.lock} {
		if file != nil {
			err = errors.Join(err, syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
		}
	}
	return err
}

// Append writes a line. If it returns an error, the file is as before.
func (l *Log) Append(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if _, err = l.file.Write(append(line, '\n')); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(err, l.file.Truncate(info.Size()))
	}
	return nil
}

// Read calls each for every whole line of all shards. At names the line for errors.
func (l *Log) Read(each func(line []byte, at string) error) error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var s Shard
		path := filepath.Join(l.dir, e.Name())
		if n, _ := fmt.Sscanf(e.Name(), l.prefix+"-%d-of-%d.jsonl", &s.Index, &s.Of); n != 2 || path != l.name(s) {
			continue
		}
		if err := readLines(path, each); err != nil {
			return err
		}
	}
	return nil
}

func readLines(path string, each func(line []byte, at string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without an end is being written
		}
		if err == nil {
			err = each(line, fmt.Sprintf("line %d of %s", n, path))
		}
		if err != nil {
			return err
		}
	}
}

// lock locks a file until it is closed or the process ends. It does not wait: the error is ErrBusy if another
// process has the lock.
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
