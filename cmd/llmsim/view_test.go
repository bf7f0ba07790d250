package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/view"
)

// Ensure that a run of any system gives the same page twice, also with samples, beams and shared prefixes.
func TestEverySystemsRunBecomesAPage(t *testing.T) {
	level.SkipQuick(t)
	dir := t.TempDir()
	page := func(args ...string) string {
		path := filepath.Join(dir, "page.html")
		args = append([]string{"view", "-o", path, "--rate", "3", "--blocks", "200", "--steps", "40", "--from", "5",
			"--duration", "60"}, args...)
		status, stdout, stderr := llmsim(t, args...)
		require.Zero(t, status, "%v: %s", args, stderr)
		require.Contains(t, stdout, "40 steps")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Less(t, len(text), 1<<20)
		return string(text)
	}
	for _, system := range sim.Systems() {
		require.Equal(t, page("--system", system), page("--system", system))
	}
	page("--system", "sosp", "--workload", "wmt16-5shot", "--samples", "3", "--beam")
	page("--system", "orca-oracle", "--workload", "alpaca", "--samples", "2", "--beam")
	page("--system", "sosp", "--samples", "2", "--swap")
	page("--system", "vllm-v0", "--caching", "--workload", "wmt16-1shot")
	page("--system", "vllm-v1", "--workload", "wmt16-5shot", "--samples", "3", "--seed", "2")
}

func TestHomeworkCallsBecomeAPage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	status, stdout, stderr := llmsim(t, "view", "--story", "copy-on-write", "-o", path)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "Copy-on-write")
	require.FileExists(t, path)

	status, stdout, stderr = llmsim(t, "view", "--story", "all", "-o", path)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "7 stories")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, name := range view.Stories() {
		require.Contains(t, string(text), `"name":"`+name+`"`)
	}

	calls := filepath.Join(dir, "calls.trace")
	require.NoError(t, os.WriteFile(calls, []byte("e0 = llm_init(4)\nfly e0\n"), 0o600))
	again := filepath.Join(dir, "again.html")
	status, _, stderr = llmsim(t, "view", "--course", calls, "-o", again)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "calls.trace")
	require.NoFileExists(t, again)
}
