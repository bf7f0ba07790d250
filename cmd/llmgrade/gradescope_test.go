package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGradescopeGradesWhatItsFolderHas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "submission/llm_memory.c", "#include <limits.h>\n", "#include <limits.h>\nint x = ;\n")
	status, out, said := run(t, "--gradescope="+dir)
	require.Zero(t, status, said)
	require.Contains(t, out, "failed: compile")
	text, err := os.ReadFile(filepath.Join(dir, "results", "results.json"))
	require.NoError(t, err)
	var r struct {
		Score float64 `json:"score"`
		Tests []struct {
			MaxScore float64 `json:"max_score"`
		} `json:"tests"`
	}
	require.NoError(t, json.Unmarshal(text, &r))
	require.Zero(t, r.Score)
	require.Equal(t, 100.0, r.Tests[0].MaxScore)
}

func TestGradescopeIsAskedForInTheRightWay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty.json"), nil, 0o644))
	out := filepath.Join(dir, "autograder.zip")
	require.NoError(t, os.WriteFile(out, []byte("as it was"), 0o644))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"the folder is given as --gradescope=DIR", []string{"--gradescope", dir}},
		{"goes with no other flag", []string{"--gradescope=" + dir, "--json"}},
		{`"out" not set`, []string{"gradescope"}},
		{"no such file", []string{"gradescope", "--out", out, "--points", "/nonexistent"}},
		{"is empty", []string{"gradescope", "--out", out, "--points", filepath.Join(dir, "empty.json")}},
		{"llmgrade: ", []string{"gradescope", "--out", out, "--rate-limit", "often"}},
		{"unknown command", []string{"gradescope", "--out", out, "file.c"}},
	} {
		status, _, said := run(t, c.args...)
		require.Equal(t, 2, status, c.args)
		require.Contains(t, said, c.says, c.args)
	}
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "as it was", string(text))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
}
