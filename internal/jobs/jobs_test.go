package jobs_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/jobs"
)

func TestShardsAreAllOfIt(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	var parts []string
	for _, text := range []string{"1/3", "2/3", "3/3"} {
		s, err := jobs.ParseShard(text)
		require.NoError(t, err)
		require.Equal(t, text, s.String())
		parts = append(parts, jobs.Part(s, all)...)
	}
	require.ElementsMatch(t, all, parts)
	for _, text := range []string{"", "1", "0/3", "4/3", "-1/3", "a/b", "1/0", "1/3/5"} {
		_, err := jobs.ParseShard(text)
		require.ErrorIs(t, err, jobs.ErrShard, text)
	}
	_, err := jobs.ParseShard("0/4")
	require.ErrorContains(t, err, "pass its index + 1, or shard 4/4 is left out")
}

// Ensure that Replace writes through a link or a device and does not replace it by a file.
func TestALinkAndADeviceAreWrittenThrough(t *testing.T) {
	dir := t.TempDir()
	target, link, pipe := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(target, []byte("one"), 0o644))
	require.NoError(t, os.Symlink(target, link))
	require.NoError(t, jobs.Replace(link, []byte("two")))
	text, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "two", string(text))
	kind, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, kind.Mode().Type())

	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, jobs.Replace(pipe, []byte("three")))
	read := make([]byte, 5)
	_, err = io.ReadFull(reader, read)
	require.NoError(t, err)
	require.Equal(t, "three", string(read))
	kind, err = os.Lstat(pipe)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, kind.Mode().Type())
}

func TestAFileIsReplacedOrLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, jobs.Replace(path, []byte("one")))
	require.NoError(t, jobs.Replace(path, []byte("two")))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "two", string(text))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.Error(t, jobs.Replace(filepath.Join(dir, "folder"), nil))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "nothing temporary stays")
}
