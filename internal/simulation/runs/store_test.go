package runs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dir, trace string) *Store {
	t.Helper()
	s, err := Open(dir, trace)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func square(t *testing.T, s *Store, n int) (got int, ran bool) {
	t.Helper()
	got, err := Do(s, n, func() (int, error) {
		ran = true
		return n * n, nil
	})
	require.NoError(t, err)
	return got, ran
}

func TestAResultIsComputedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	s := open(t, dir, "")
	for i, ran := range []bool{true, false} {
		got, computed := square(t, s, 7)
		require.Equal(t, 49, got)
		require.Equal(t, ran, computed, i)
	}
	require.NoError(t, s.Close())
	s = open(t, dir, "")
	_, ran := square(t, s, 7)
	require.False(t, ran)
	_, ran = square(t, s, 8)
	require.True(t, ran)
	require.Equal(t, "1 of the 1 runs kept in "+dir+" were taken, 1 were added", s.String())
	type count int
	other, err := Do(s, 7, func() (count, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, count(1), other, "a result of another type")
	got, ran := square(t, nil, 7)
	require.True(t, ran, "a nil store keeps nothing")
	require.Equal(t, 49, got)
	require.NoError(t, (*Store)(nil).Close())
}

func TestWhatFailsIsRunAgain(t *testing.T) {
	s := open(t, t.TempDir(), "")
	broken := errors.New("broken")
	_, err := Do(s, 3, func() (int, error) { return 5, broken })
	require.ErrorIs(t, err, broken)
	got, ran := square(t, s, 3)
	require.True(t, ran)
	require.Equal(t, 9, got)
}

// Ensure that a process loses at most one result if it is killed during a write.
func TestALineThatIsCutOffIsRunAgain(t *testing.T) {
	dir := t.TempDir()
	s, file := open(t, dir, ""), filepath.Join(dir, "runs.jsonl")
	square(t, s, 2)
	square(t, s, 3)
	require.NoError(t, s.Close())
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	first := bytes.IndexByte(whole, '\n') + 1
	cuts := [][]byte{slices.Concat(whole[:first+20], make([]byte, 4096))} // as after a power cut
	for cut := first; cut < len(whole); cut++ {
		cuts = append(cuts, whole[:cut])
	}
	for _, text := range cuts {
		require.NoError(t, os.WriteFile(file, text, 0o600))
		s := open(t, dir, "")
		_, ran := square(t, s, 2)
		require.False(t, ran, len(text))
		_, ran = square(t, s, 3)
		require.True(t, ran, len(text))
		require.NoError(t, s.Close())
		again, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(whole), string(again), len(text))
	}
	foreign := slices.Concat([]byte("no JSON\n\n{\"key\":\"0\"}\n"), whole)
	require.NoError(t, os.WriteFile(file, foreign, 0o600))
	_, ran := square(t, open(t, dir, ""), 3)
	require.False(t, ran, "lines of other versions are skipped")
}

func TestAResultIsOfAProgramAndATrace(t *testing.T) {
	dir, trace := t.TempDir(), filepath.Join(t.TempDir(), "a.csv")
	require.NoError(t, os.WriteFile(trace, []byte("one"), 0o600))
	s := open(t, dir, trace)
	_, ran := square(t, s, 2)
	require.True(t, ran)
	s.base = []byte("another program")
	_, ran = square(t, s, 2)
	require.True(t, ran)
	require.NoError(t, os.WriteFile(trace, []byte("two"), 0o600))
	require.NoError(t, os.Chtimes(trace, time.Time{}, s.changed.Add(time.Second)))
	_, err := Do(s, 3, func() (int, error) { return 9, nil })
	require.ErrorIs(t, err, ErrChanged)
	require.ErrorContains(t, err, trace+" changed while it was used: run it again")
	require.NoError(t, s.Close())
	_, ran = square(t, open(t, dir, trace), 2)
	require.True(t, ran, "the trace has another text")
}

func TestAFolderIsOfOneProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "")
	_, err := Open(dir, "")
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "the folder "+dir+": another process works in it: wait until it ends")
	inherited, err := syscall.Dup(int(s.file.Fd())) // a process that is being started has its parent's files
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(inherited) })
	require.NoError(t, s.Close())
	open(t, dir, "")
}

func TestAFullDiskIsSaid(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	s := open(t, t.TempDir(), "")
	require.NoError(t, s.file.Close())
	s.file = full
	_, err = Do(s, 3, func() (int, error) { return 9, nil })
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "a run cannot be kept (those kept so far are not run again)")
}
