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

// A Temporary is a folder for temporary files. It is locked while its process lives. So a later run can recognise
// the folder of a killed process, and remove it.
type Temporary struct {
	Path string
	lock *os.File
}

// NewTemporary makes a folder whose name begins with prefix. It also removes folders with this prefix that killed
// processes of this user have left. The prefix must not be used for anything else.
func NewTemporary(prefix string) (*Temporary, error) {
	sweep(prefix)
	// The folder is locked before it gets its final name. So a folder with such a name and without a lock was
	// abandoned.
	unlocked, err := os.MkdirTemp("", "."+prefix)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(unlocked), filepath.Base(unlocked)[1:])
	lock, err := os.Open(unlocked)
	if err == nil {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			err = os.Rename(unlocked, path)
		}
		if err != nil {
			_ = lock.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(unlocked))
	}
	return &Temporary{Path: path, lock: lock}, nil
}

// Remove removes the folder with everything in it.
func (t *Temporary) Remove() error { return errors.Join(os.RemoveAll(t.Path), t.lock.Close()) }

const newest = time.Minute // age from which an unnamed folder is removed; a process may just be locking a younger one

// sweep removes the folders that no process has locked. It ignores errors.
func sweep(prefix string) {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		name, unnamed := strings.CutPrefix(e.Name(), ".")
		if !e.IsDir() || !strings.HasPrefix(name, prefix) {
			continue
		}
		path := filepath.Join(os.TempDir(), e.Name())
		info, err := os.Lstat(path)
		if err != nil || unnamed && time.Since(info.ModTime()) < newest {
			continue
		}
		if abandoned(path, info) {
			_ = os.RemoveAll(path)
		}
	}
}

func abandoned(path string, info fs.FileInfo) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known || int(owner.Uid) != os.Getuid() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
