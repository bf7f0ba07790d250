package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/traces"
	"llmmemory/internal/testkit/level"
)

// makes runs make in a folder, without what costs time only.
func makes(t *testing.T, dir string, target ...string) (said string, err error) {
	t.Helper()
	cmd := exec.Command("make", append([]string{"FLAGS=-std=c11 -Wall -Wextra -Wpedantic -Werror -O0"}, target...)...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { // those of a make that runs this test
		return strings.HasPrefix(entry, "MAKE") || strings.HasPrefix(entry, "MFLAGS")
	})
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheFolderForStudentsTestsTheirFile(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tests")
	status, said, stderr := run(t, "student", "--out", dir)
	require.Zero(t, status, stderr)
	require.Regexp(t, `^\d+ traces and \d+ programs: `, said)
	requireNothingHidden(t, dir)
	said, err := makes(t, dir)
	require.Error(t, err)
	require.Contains(t, said, "put your llm_memory.c into this folder first")
	put(t, dir, "llm_memory.c", "", "")
	said, err = makes(t, dir, level.Pick("task5", "run"))
	require.NoError(t, err, said)
	require.Equal(t, "nothing is wrong here\n", said)

	put(t, dir, "llm_memory.c", "    unlink_node(seq);\n", "    if (seq_id < 0) {\n        unlink_node(seq);\n    }\n")
	said, err = makes(t, dir, "bin/task2_free_releases_every_block")
	require.NoError(t, err, said)
	out, err := exec.Command(filepath.Join(dir, "bin", "task2_free_releases_every_block")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "active_seqs has the right ids")

	trace := filepath.Join(dir, "traces", "task2_free_releases_every_block.trace")
	status, _, _ = run(t, "--replay", trace, filepath.Join(dir, "llm_memory.c"))
	require.Equal(t, 1, status)
	status, _, stderr = run(t, "student", "--out", dir)
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "not empty")
}

// requireNothingHidden checks that no file mentions the hidden tests or contains steps of a hidden test.
func requireNothingHidden(t *testing.T, dir string) {
	t.Helper()
	var hidden []string
	for seed := range uint64(10) {
		for _, outside := range []bool{false, true} {
			ops := traces.Random(seed, 400, outside)
			hidden = append(hidden, text(ops[:8]), text(ops[len(ops)/2:][:8]))
		}
	}
	seen := 0
	require.NoError(t, filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		content, err := os.ReadFile(file)
		for _, word := range []string{"hidden", "random", "seed", "own calls", "outside writes"} {
			require.False(t, strings.Contains(strings.ToLower(string(content)), word), "%s says %s", file, word)
			require.NotContains(t, d.Name(), word)
		}
		for _, ops := range hidden {
			require.False(t, strings.Contains(string(content), ops), "%s has %s", file, ops)
		}
		return err
	}))
	require.Greater(t, seen, 100)
}

func text(ops []trace.Op) string {
	var b strings.Builder
	for _, op := range ops {
		b.WriteString(op.String() + "\n")
	}
	return b.String()
}
