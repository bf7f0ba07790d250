package kvoffload

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"llmmemory/internal/scheduling/blockhash"
)

// ErrFolder is wrapped by errors of NewFolder.
var ErrFolder = errors.New("the folder for keys and values cannot be used")

// A Folder is a Tier with one file for each block. Several processes of a host can share it. A file is written under
// another name and then renamed. A process removes files if it finds the folder too large. The size limit counts the
// blocks of all spaces, not files that are being written; the least recently used files are removed first.
type Folder struct {
	path        string // the folder with all spaces
	spaceFolder string // the folder of this space
	space       Space
	maxBytes    int64 // of all files

	budget atomic.Int64            // bytes that may be stored before the folder is measured again
	calls  chan struct{}           // one element for each call in progress
	remove func(name string) error // os.Remove

	evicting sync.Mutex
	full     error     // why not enough files could be removed, or nil
	retry    time.Time // when to try again to remove files
}

const (
	spacePrefix   = "llmkv-1-" // begins the names of the folders of spaces; 1 is the number of the format
	partialPrefix = "partial-"

	// abandonedAfter is the age from which a partial file is removed. The process that wrote it is then assumed to have
	// ended.
	abandonedAfter = 10 * time.Minute
	// removeInterval is the time after a failed removal of files until the folder tries to remove files
	// again.
	removeInterval = time.Minute
	// useInterval is the shortest time between two uses of a block that are both recorded. It limits the
	// writes of file times.
	useInterval = time.Minute
	// concurrentCalls is the largest number of calls in progress. Each occupies a thread, even after its
	// caller has given up because the disk does not answer.
	concurrentCalls = 16
)

// NewFolder opens a folder, creating it if necessary. It removes blocks of other formats and partial files older than
// abandonedAfter. The error wraps ErrFolder.
func NewFolder(path string, space Space, maxBytes int64) (*Folder, error) {
	f := &Folder{
		path: path, spaceFolder: filepath.Join(path, spacePrefix+space.String()), space: space, maxBytes: maxBytes,
		calls: make(chan struct{}, concurrentCalls), remove: os.Remove,
	}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return f, nil
}

func (f *Folder) open() error {
	if f.maxBytes < 1 {
		return fmt.Errorf("%s may hold %d bytes", f.path, f.maxBytes)
	}
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	if err := checkOwner(f.path, os.Stat); err != nil {
		return err
	}
	if err := os.MkdirAll(f.spaceFolder, 0o700); err != nil {
		return err
	}
	if err := checkOwner(f.spaceFolder, os.Lstat); err != nil {
		return err
	}
	probe, err := os.CreateTemp(f.spaceFolder, partialPrefix)
	if err != nil {
		return err
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return err
	}
	f.clean()
	_ = f.evict(0) // if files cannot be removed, the next Store returns the error
	return nil
}

// checkOwner returns an error if path is not a folder, if it belongs to another user, or if every user can write to it.
// Otherwise other users could decide what is read from the folder. Through links, they could also decide which files of
// this user are removed. Folders of the superuser and group-writable folders are allowed.
func checkOwner(path string, stat func(string) (fs.FileInfo, error)) error {
	info, err := stat(path)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("every user can write to %s, and so decide what is read from it: chmod o-w", path)
	case known && owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user, who decides what is read from it", path)
	}
	return nil
}

// Close does nothing. The files stay.
func (f *Folder) Close() error { return nil }

func (f *Folder) name(block *blockhash.Hash) string {
	text := hex.EncodeToString(block[:])
	return filepath.Join(f.spaceFolder, text[:2], text)
}

// Count implements Tier.
func (f *Folder) Count(ctx context.Context, blocks []blockhash.Hash) (int, error) {
	return f.inTime(ctx, func(n *atomic.Int64) error {
		for i := range blocks {
			if _, err := os.Stat(f.name(&blocks[i])); err != nil {
				return unlessMissing(err)
			}
			n.Add(1)
		}
		return nil
	})
}

// Load implements Tier.
func (f *Folder) Load(ctx context.Context, blocks []blockhash.Hash, dst [][]byte) (int, error) {
	return f.inTime(ctx, func(n *atomic.Int64) error {
		for i := range blocks {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := f.load(&blocks[i], dst[i]); err != nil {
				return unlessMissing(err)
			}
			n.Add(1)
		}
		return nil
	})
}

// inTime runs work in a goroutine, when fewer than concurrentCalls calls of work run. It waits until work has returned
// or the context is done. It then returns the value of the counter that it passed to work, and the error of work or of
// the context. A system call for a file cannot be interrupted, so work may still run after inTime has returned.
func (f *Folder) inTime(ctx context.Context, work func(count *atomic.Int64) error) (int, error) {
	select {
	case f.calls <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var count atomic.Int64
	ended := make(chan error, 1)
	go func() {
		defer func() { <-f.calls }()
		if ctx.Err() == nil {
			ended <- work(&count)
		}
	}()
	select {
	case err := <-ended:
		return int(count.Load()), err
	case <-ctx.Done():
		return int(count.Load()), ctx.Err()
	}
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *Folder) load(block *blockhash.Hash, dst []byte) error {
	name := f.name(block)
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var header [headerSize]byte
	_, err = io.ReadFull(file, header[:])
	if err == nil {
		_, err = io.ReadFull(file, dst)
	}
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !short {
		return err
	}
	if short || info.Size() != int64(headerSize+len(dst)) || !f.space.intact(header[:], block, dst) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w, and cannot be removed: %w", name, ErrDamaged, err)
		}
		return fmt.Errorf("%s: %w; it was removed", name, ErrDamaged)
	}
	f.noteUse(name, info)
	return nil
}

func (f *Folder) noteUse(name string, info fs.FileInfo) {
	if now := time.Now(); now.Sub(info.ModTime()) > useInterval {
		_ = os.Chtimes(name, now, now) // fails on another user's file, which is then only removed earlier
	}
}

// Store implements Tier.
func (f *Folder) Store(ctx context.Context, block blockhash.Hash, m Memory) error {
	_, err := f.inTime(ctx, func(*atomic.Int64) error { return f.store(block, m) })
	return err
}

func (f *Folder) store(block blockhash.Hash, m Memory) error {
	name := f.name(&block)
	if info, err := os.Stat(name); err == nil {
		f.noteUse(name, info)
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := f.reserve(int64(headerSize + m.size)); err != nil {
		return err
	}
	return f.write(name, &block, m)
}

func (f *Folder) write(name string, block *blockhash.Hash, m Memory) error {
	file, err := os.CreateTemp(f.spaceFolder, partialPrefix) // mode 0600
	if err != nil {
		return err
	}
	err = errors.Join(writeUnbuffered(file, m.whole, len(m.stored(&f.space, block))), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// ours matches the names of folders of spaces, in any format.
var ours = regexp.MustCompile(`^llmkv-[0-9]+-[0-9a-f]{32}$`)

func (f *Folder) clean() {
	spaces, err := os.ReadDir(f.path)
	if err != nil {
		return
	}
	for _, s := range spaces {
		if s.IsDir() && ours.MatchString(s.Name()) && !strings.HasPrefix(s.Name(), spacePrefix) {
			_ = os.RemoveAll(filepath.Join(f.path, s.Name()))
		}
	}
	for _, name := range f.glob(spacePrefix + "*/" + partialPrefix + "*") {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > abandonedAfter {
			_ = os.Remove(name)
		}
	}
}

func (f *Folder) glob(pattern string) []string {
	files, _ := fs.Glob(os.DirFS(f.path), pattern) // unlike filepath.Glob, it does not interpret the folder's path
	for i, name := range files {
		files[i] = filepath.Join(f.path, name)
	}
	return files
}

// A file is a stored block.
type file struct {
	name string
	size int64
	used time.Time
}

func (f *Folder) measure() (all []file, total int64) {
	for _, name := range f.glob(spacePrefix + "*/??/*") {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			all = append(all, file{name, info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	return all, total
}

// reserve removes blocks until size bytes fit, or returns an error.
func (f *Folder) reserve(size int64) error {
	switch {
	case size > f.maxBytes:
		return fmt.Errorf("%s may hold %d bytes, and a block has %d", f.path, f.maxBytes, size)
	case f.budget.Add(-size) >= 0:
		return nil
	}
	return f.evict(size)
}

// evict makes space for a new file of the given size. It first measures the folder. If the folder would exceed its
// limit with the new file, evict removes the least recently used files. It stops when a tenth of the limit is free
// and the new file fits. A file that another process has removed meanwhile counts as removed.
//
// Other processes may store blocks in the folder, which this process does not count. So the folder is measured again
// when this process has stored a tenth of the limit or used the free space. If a file could not be removed and so less
// than a tenth is free, evict does not try again for a minute. Until then, blocks are stored only in the free space.
func (f *Folder) evict(size int64) error {
	f.evicting.Lock()
	defer f.evicting.Unlock()
	if time.Now().Before(f.retry) {
		return f.full
	}
	f.full, f.retry = nil, time.Time{}
	all, total := f.measure()
	if total+size > f.maxBytes {
		total = f.removeOldest(all, total, size)
	}
	f.budget.Store(min(f.maxBytes-total, f.maxBytes/10) - size)
	if total+size > f.maxBytes {
		return f.full
	}
	return nil
}

// removeOldest removes the least recently used files until a tenth of the limit is free and a file of the given size
// fits, or until it has tried all files. In the second case, it sets f.full and f.retry if a file could not be removed.
// The parameter total is the number of bytes in all files. removeOldest returns the number of bytes in the files that
// it has not removed.
func (f *Folder) removeOldest(all []file, total, size int64) int64 {
	slices.SortFunc(all, func(a, b file) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name))
	})
	var failed error
	for _, e := range all {
		if total <= f.maxBytes-max(f.maxBytes/10, size) {
			return total
		}
		if err := f.remove(e.name); err == nil || errors.Is(err, fs.ErrNotExist) {
			total -= e.size
		} else if failed == nil {
			failed = err
		}
	}
	if failed != nil {
		f.full = fmt.Errorf("%s may hold %d bytes and holds %d, and files cannot be removed: %w", f.path, f.maxBytes, total, failed)
		f.retry = time.Now().Add(removeInterval)
	}
	return total
}
