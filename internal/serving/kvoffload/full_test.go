package kvoffload_test

import (
	"bytes"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/kvoffload"
)

// Ensure that a folder still loads blocks if it cannot remove files. The folder must not search for files to remove
// more often than once a minute.
func TestAFolderOfWhichNothingCanBeRemovedStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxBytes = 20 * blockBytes
		dir := t.TempDir()
		f := newFolder(t, dir, maxBytes)
		tried, allowed := 0, false
		f.SetRemove(func(name string) error {
			if tried++; allowed {
				return os.Remove(name)
			}
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
		})
		blocks := named(60)
		storeSome := func() (stored int, last error) {
			for i, b := range blocks {
				if err := f.Store(t.Context(), b, memoryOf(content(i))); err != nil {
					last = err
				} else {
					stored++
				}
			}
			require.LessOrEqual(t, sizeOf(t, dir), int64(maxBytes))
			return stored, last
		}
		stored, err := storeSome()
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, dir+" may hold 20000 bytes and holds ")
		have := len(files(t, dir))
		require.Equal(t, stored, have)
		require.Greater(t, have, 15)
		require.Equal(t, have, tried, "the folder is walked once")

		again, err := storeSome()
		require.ErrorIs(t, err, fs.ErrPermission)
		require.Equal(t, have, again, "they are there")
		require.Equal(t, have, tried, "it is not walked within a minute")
		requireLoads(t, f, blocks[:have], have)

		time.Sleep(time.Minute)
		_, err = storeSome()
		require.ErrorIs(t, err, fs.ErrPermission)
		require.Equal(t, 2*have, tried, "it is walked once more")

		allowed = true
		_, err = storeSome()
		require.ErrorIs(t, err, fs.ErrPermission, "for the rest of the minute")
		time.Sleep(time.Minute)
		_, err = storeSome()
		require.NoError(t, err)
		n, err := f.Count(t.Context(), blocks[59:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// Ensure that a folder with unremovable files still stores blocks if there is space. The folder must look for files to
// remove at most once a minute.
func TestAFolderUsesTheSpaceBesideFilesThatCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxBytes = 100 * blockBytes
		dir := t.TempDir()
		storeAll(t, newFolder(t, dir, 2*maxBytes), named(92))
		fixed := map[string]bool{}
		for _, name := range files(t, dir) {
			fixed[name] = true
		}
		first, walks := files(t, dir)[0], 0
		f := newFolder(t, dir, maxBytes)
		f.SetRemove(func(name string) error {
			if !fixed[name] {
				return os.Remove(name)
			}
			if name == first {
				walks++
			}
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
		})
		blocks := named(200)
		for i := 92; i < len(blocks); i++ {
			_ = f.Store(t.Context(), blocks[i], memoryOf(content(i)))
			require.LessOrEqual(t, sizeOf(t, dir), int64(maxBytes))
		}
		require.Len(t, files(t, dir), 93)
		require.Equal(t, 1, walks)
		for minute := range 3 {
			time.Sleep(time.Minute)
			require.NoError(t, f.Store(t.Context(), blockhash.Hash{9, byte(minute)}, memoryOf(content(0))))
			require.LessOrEqual(t, sizeOf(t, dir), int64(maxBytes))
		}
	})
}

func TestAFullFolderIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t, t.TempDir(), 3*blockBytes)
		f.SetRemove(func(string) error { return fs.ErrPermission })
		var text bytes.Buffer
		o := kvoffload.New(kvoffload.Config{
			Tier: f, BlockBytes: blockBytes, Stores: true, Loads: true, Log: log.New(&text, "", 0),
		})
		for i, b := range named(90) {
			o.Offer(b, func(dst []byte) { copy(dst, content(i)) })
			time.Sleep(2 * time.Second)
		}
		require.NoError(t, o.Close())
		require.Equal(t, 3, strings.Count(text.String(), "files cannot be removed"), text.String())
	})
}

// Ensure that no block is removed to make space for a block larger than the folder's limit.
func TestAFolderStoresNoBlockThatIsLargerThanItself(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(t, dir, 2*blockBytes)
	storeAll(t, f, named(1))
	err := f.Store(t.Context(), named(2)[1], memoryOf(make([]byte, 2*blockBytes)))
	require.EqualError(t, err, dir+" may hold 2000 bytes, and a block has 2064")
	requireLoads(t, f, named(1), 1)
}

// Ensure that storing a block fails if the disk is full. No part of the block must remain.
func TestAFullDiskCostsABlock(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	defer func() { require.NoError(t, unix.Unmount(dir, 0)) }()
	f := newFolder(t, dir, 1<<30)
	blocks, failed := named(200), 0
	for i, b := range blocks {
		if err := f.Store(t.Context(), b, memoryOf(content(i))); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			failed++
		}
	}
	require.Positive(t, failed)
	left, err := filepath.Glob(filepath.Join(dir, "*", "partial-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	for i := range blocks {
		to := memory(1)
		n, err := f.Load(t.Context(), blocks[i:i+1], to)
		require.NoError(t, err)
		if n == 1 {
			require.Equal(t, content(i), to[0])
		}
	}
}
