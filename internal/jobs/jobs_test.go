package jobs_test

import (
	"os"
	"path/filepath"
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
