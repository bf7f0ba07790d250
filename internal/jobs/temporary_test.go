package jobs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/jobs"
)

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	put := func(name string, age time.Duration) string {
		dir := filepath.Join(os.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-age)))
		return dir
	}
	left, young, others := put("mine-left", time.Hour), put("mine-young", 0), put("others", time.Hour)
	used, err := jobs.NewTemporary("mine-")
	require.NoError(t, err)
	require.NoDirExists(t, left)
	require.DirExists(t, young, "it may be one that is just being made")
	require.DirExists(t, others)

	require.NoError(t, os.Chtimes(used.Path, time.Time{}, time.Now().Add(-time.Hour)))
	second, err := jobs.NewTemporary("mine-")
	require.NoError(t, err)
	require.DirExists(t, used.Path, "its process lives")
	for _, folder := range []*jobs.Temporary{used, second} {
		require.NoError(t, folder.Remove())
		require.NoDirExists(t, folder.Path)
	}
}
