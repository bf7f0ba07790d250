package jobs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Temporary is a folder for temporary files. It is locked as long as its process
// lives, so that the next run can tell what a killed one has left.
type Temporary struct {
	Path string
	lock *os.File
}

// NewTemporary makes a folder whose name begins with prefix, and removes those of
// that prefix that killed processes of this user have left. The prefix has to be
// used for nothing else.
func NewTemporary(prefix string) (*Temporary, error) {
	sweep(prefix)
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Open(dir)
	if err == nil {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = lock.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return &Temporary{Path: dir, lock: lock}, nil
}

// Remove removes the folder with everything in it.
func (t *Temporary) Remove() error { return errors.Join(os.RemoveAll(t.Path), t.lock.Close()) }

// newest is the least age of a folder that is removed: a younger one may not be
// locked yet.
const newest = time.Minute

// sweep removes the folders that nobody has locked. What cannot be removed stays.
func sweep(prefix string) {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		path := filepath.Join(os.TempDir(), e.Name())
		if info, err := os.Lstat(path); err == nil && abandoned(path, info) {
			_ = os.RemoveAll(path)
		}
	}
}

func abandoned(path string, info fs.FileInfo) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known || int(owner.Uid) != os.Getuid() || time.Since(info.ModTime()) < newest {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
