package kvoffload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/kvoffload"
)

const blockBytes = 1000

var space = kvoffload.NewSpace("a model")

func named(n int) (blocks []blockhash.Hash) {
	for i := range n {
		blocks = append(blocks, blockhash.Hash{byte(i), byte(i >> 8), 1})
	}
	return blocks
}

func content(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i + 1)}, blockBytes/2) }

func memoryOf(block []byte) kvoffload.Memory {
	m := kvoffload.NewMemory(len(block))
	copy(m.Block(), block)
	return m
}

func memory(n int) (dst [][]byte) {
	for range n {
		dst = append(dst, make([]byte, blockBytes))
	}
	return dst
}

func storeAll(t *testing.T, tier kvoffload.Tier, blocks []blockhash.Hash) {
	t.Helper()
	for i, b := range blocks {
		require.NoError(t, tier.Store(t.Context(), b, memoryOf(content(i))))
	}
}

// requireLoads requires that exactly the first n blocks are loaded, with the right contents.
func requireLoads(t *testing.T, tier kvoffload.Tier, blocks []blockhash.Hash, n int) {
	t.Helper()
	to := memory(len(blocks))
	came, err := tier.Load(t.Context(), blocks, to)
	require.NoError(t, err)
	require.Equal(t, n, came)
	for i := range came {
		require.Equal(t, content(i), to[i], "block %d", i)
	}
	have, err := tier.Count(t.Context(), blocks)
	require.NoError(t, err)
	require.Equal(t, n, have)
}

func newFolder(t *testing.T, dir string, maxBytes int64) *kvoffload.Folder {
	t.Helper()
	f, err := kvoffload.NewFolder(dir, space, maxBytes)
	require.NoError(t, err)
	return f
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	all, err := fs.Glob(os.DirFS(dir), "*/??/*")
	require.NoError(t, err)
	for i := range all {
		all[i] = filepath.Join(dir, all[i])
	}
	return all
}

func TestWhatAFolderKeepsAnotherProcessReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	blocks := named(20)
	first := newFolder(t, dir, 1<<20)
	requireLoads(t, first, blocks, 0)
	storeAll(t, first, blocks)
	storeAll(t, first, blocks)
	require.Len(t, files(t, dir), 20)
	requireLoads(t, newFolder(t, dir, 1<<20), blocks, 20)
	requireLoads(t, first, append(named(20), blockhash.Hash{9, 9, 9}), 20)

	for _, name := range append(files(t, dir), dir, filepath.Dir(files(t, dir)[0])) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s: others can read it", name)
	}
}

func TestBlocksOfAnotherSpaceAreNotFound(t *testing.T) {
	dir := t.TempDir()
	storeAll(t, newFolder(t, dir, 1<<20), named(3))
	other, err := kvoffload.NewFolder(dir, kvoffload.NewSpace("another model"), 1<<20)
	require.NoError(t, err)
	requireLoads(t, other, named(3), 0)
	require.NotEqual(t, kvoffload.NewSpace("a", "bc"), kvoffload.NewSpace("ab", "c"))
}

func TestADamagedFileIsRemoved(t *testing.T) {
	for name, damage := range map[string]func(text []byte) []byte{
		"a bit of the data":     func(text []byte) []byte { text[len(text)-1] ^= 0x80; return text },
		"a bit of the name":     func(text []byte) []byte { text[30] ^= 1; return text },
		"a bit of the checksum": func(text []byte) []byte { text[60] ^= 1; return text },
		"a bit of the format":   func(text []byte) []byte { text[0] ^= 1; return text },
		"truncated":             func(text []byte) []byte { return text[:len(text)-1] },
		"a header alone":        func(text []byte) []byte { return text[:64] },
		"empty":                 func([]byte) []byte { return nil },
		"a byte more":           func(text []byte) []byte { return append(text, 0) },
		"zeros":                 func(text []byte) []byte { return make([]byte, len(text)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, blocks := t.TempDir(), named(1)
			f := newFolder(t, dir, 1<<20)
			storeAll(t, f, blocks)
			file := files(t, dir)[0]
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, damage(text), 0o600))
			n, err := f.Load(t.Context(), blocks, memory(1))
			require.ErrorIs(t, err, kvoffload.ErrDamaged)
			require.Zero(t, n)
			require.NoFileExists(t, file)
			storeAll(t, f, blocks)
			requireLoads(t, f, blocks, 1)
		})
	}
}

// Ensure that the least recently used blocks are removed first, even if they belong to another model. Special
// characters in the folder's path must have no meaning.
func TestAFolderKeepsItsSize(t *testing.T) {
	const maxBytes = 20 * blockBytes
	dir := filepath.Join(t.TempDir(), "cache[1]")
	other, err := kvoffload.NewFolder(dir, kvoffload.NewSpace("another model"), maxBytes)
	require.NoError(t, err)
	storeAll(t, other, named(5))
	f := newFolder(t, dir, maxBytes)
	storeAll(t, f, named(10))
	for i, name := range files(t, dir) { // all of them long ago, in the order of their names
		at := time.Now().Add(-time.Hour + time.Duration(i)*time.Second)
		require.NoError(t, os.Chtimes(name, at, at))
	}
	requireLoads(t, f, named(1), 1) // used now
	blocks := named(40)
	for i := 10; i < 40; i++ {
		require.NoError(t, f.Store(t.Context(), blocks[i], memoryOf(content(i))))
		require.LessOrEqual(t, sizeOf(t, dir), int64(maxBytes))
		if i == 24 { // at least 12 blocks are gone
			requireLoads(t, f, named(1), 1)
			n, err := f.Count(t.Context(), blocks[1:2])
			require.NoError(t, err)
			require.Zero(t, n)
		}
	}
	requireLoads(t, other, named(5), 0)
	n, err := f.Count(t.Context(), blocks[39:])
	require.NoError(t, err)
	require.Equal(t, 1, n, "the newest")
}

// Ensure that opening a folder removes files of killed processes and of older formats, and keeps files of
// other programs.
func TestAFolderIsCleanedWhenItIsOpened(t *testing.T) {
	dir := t.TempDir()
	storeAll(t, newFolder(t, dir, 1<<20), named(1))
	own := filepath.Dir(filepath.Dir(files(t, dir)[0]))
	abandoned, recent := filepath.Join(own, "partial-1"), filepath.Join(own, "partial-2")
	for _, name := range []string{abandoned, recent, filepath.Join(dir, "notes.txt")} {
		require.NoError(t, os.WriteFile(name, []byte("text"), 0o600))
	}
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(abandoned, long, long))
	older := filepath.Join(dir, "llmkv-0-"+space.String())
	require.NoError(t, os.Mkdir(older, 0o700))
	notes := filepath.Join(dir, "llmkv-notes")
	require.NoError(t, os.Mkdir(notes, 0o700))
	f := newFolder(t, dir, 1<<20)
	require.NoFileExists(t, abandoned)
	require.FileExists(t, recent)
	require.FileExists(t, filepath.Join(dir, "notes.txt"))
	require.NoDirExists(t, older)
	require.DirExists(t, notes)
	requireLoads(t, f, named(1), 1)
}

func TestAFolderThatCannotBeUsedIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	for _, c := range []struct {
		path     string
		maxBytes int64
		says     string
	}{
		{file, 1, "not a directory"}, {filepath.Join(file, "a"), 1, "not a directory"},
		{t.TempDir(), 0, "may hold 0 bytes"}, {open, 1, "chmod o-w"}, {"/proc/1/kv", 1, "kv"},
	} {
		_, err := kvoffload.NewFolder(c.path, space, c.maxBytes)
		require.ErrorIs(t, err, kvoffload.ErrFolder, c.path)
		require.ErrorContains(t, err, c.says)
	}
}

func TestAFolderThatIsRemovedWhileInUseComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tier")
	f := newFolder(t, dir, 1<<20)
	storeAll(t, f, named(3))
	require.NoError(t, os.RemoveAll(dir))
	requireLoads(t, f, named(3), 0)
	storeAll(t, f, named(3))
	requireLoads(t, f, named(3), 3)
}

func TestManyCanShareAFolder(t *testing.T) {
	dir, blocks := t.TempDir(), named(64)
	var wait sync.WaitGroup
	for range 4 {
		f := newFolder(t, dir, 30*blockBytes)
		wait.Go(func() {
			for round := range 5 {
				for i, b := range blocks {
					if err := f.Store(context.Background(), b, memoryOf(content(i))); err != nil {
						t.Error(err)
					}
					to := memory(1)
					at := (i * (round + 3)) % len(blocks)
					n, err := f.Load(context.Background(), blocks[at:at+1], to)
					if err != nil || n == 1 && !bytes.Equal(to[0], content(at)) {
						t.Error("block", at, n, err)
					}
				}
			}
		})
	}
	wait.Wait()
}

// Ensure that a block that cannot get its name is not found, and that no part of it remains.
func TestAFileIsWrittenUnderAnotherNameFirst(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(t, dir, 1<<20)
	blocked := filepath.Join(dir, "llmkv-1-"+space.String(), "00")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600)) // where the folder of the block should be
	err := f.Store(t.Context(), blockhash.Hash{}, memoryOf(content(0)))
	require.ErrorContains(t, err, "not a directory")
	left, err := filepath.Glob(filepath.Join(dir, "*", "partial-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	n, err := f.Count(t.Context(), []blockhash.Hash{{}})
	require.Zero(t, n, fmt.Sprint(err))
}

func TestAFolderThatManyShareKeepsItsSize(t *testing.T) {
	const maxBytes, servers = 100 * blockBytes, 5
	dir := t.TempDir()
	var all []*kvoffload.Folder
	for range servers {
		all = append(all, newFolder(t, dir, maxBytes))
	}
	for i, b := range named(90 * servers) {
		require.NoError(t, all[i%servers].Store(t.Context(), b, memoryOf(content(i))))
	}
	require.LessOrEqual(t, len(files(t, dir)), 100+servers*10)
}

// Ensure that reads occupy only a few threads when the disk does not answer.
func TestReadsThatDoNotEndAreFew(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(t, dir, 1<<20)
	storeAll(t, f, named(1))
	name := files(t, dir)[0]
	require.NoError(t, os.Remove(name))
	require.NoError(t, unix.Mkfifo(name, 0o600)) // reading waits for a writer
	before := runtime.NumGoroutine()
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		n, err := f.Load(ctx, named(1), memory(1))
		cancel()
		require.Zero(t, n)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Less(t, runtime.NumGoroutine(), before+100)
	for runtime.NumGoroutine() > before { // a writer that says nothing ends all reads that wait
		writer, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			require.NoError(t, writer.Close())
		}
		time.Sleep(time.Millisecond)
	}
	storeAll(t, f, named(1)) // the reads have removed files that are not blocks
	requireLoads(t, f, named(1), 1)
}

func TestAFolderStoresNothingWhenItsTimeIsOver(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(t, dir, 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, b := range named(30) {
		require.ErrorIs(t, f.Store(ctx, b, memoryOf(content(i))), context.Canceled)
	}
	require.Empty(t, files(t, dir))
}

func TestAFolderOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only the superuser can make a folder another user's")
	}
	const somebody = 1234
	name := "llmkv-1-" + space.String()
	for says, prepare := range map[string]func(dir string) error{
		"belongs to another user": func(dir string) error { return os.Chown(dir, somebody, somebody) },
		name + " belongs to another user": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, name), 0o700), os.Chown(filepath.Join(dir, name), somebody, somebody))
		},
		name + " is not a directory": func(dir string) error { return os.Symlink(t.TempDir(), filepath.Join(dir, name)) },
	} {
		dir := t.TempDir()
		require.NoError(t, prepare(dir))
		_, err := kvoffload.NewFolder(dir, space, 1<<20)
		require.ErrorIs(t, err, kvoffload.ErrFolder, says)
		require.ErrorContains(t, err, says)
	}
}

func TestAFolderKeepsBlocksOfEverySize(t *testing.T) {
	const header = 64
	for name, dir := range map[string]string{"on disk": t.TempDir(), "in memory": sharedMemory(t)} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, dir, 1<<30)
			for i, size := range []int{1, 511, 4095 - header, 4096 - header, 4097 - header, 4096, 3 * 4096, 100_001, 2} {
				data, block := bytes.Repeat([]byte{byte(i + 1)}, size), named(9)[i]
				require.NoError(t, f.Store(t.Context(), block, memoryOf(data)))
				to := [][]byte{make([]byte, size)}
				came, err := f.Load(t.Context(), []blockhash.Hash{block}, to)
				require.NoError(t, err)
				require.Equal(t, 1, came)
				require.Equal(t, data, to[0], "%d bytes", size)
			}
		})
	}
}

// sharedMemory returns a folder in /dev/shm. Older kernels refuse unbuffered writes to it.
func sharedMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func sizeOf(t *testing.T, dir string) (total int64) {
	t.Helper()
	for _, name := range files(t, dir) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		total += info.Size()
	}
	return total
}
