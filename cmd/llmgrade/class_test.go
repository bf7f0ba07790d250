package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func grades(t *testing.T, dir string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "grades.csv"))
	require.NoError(t, err)
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	for _, line := range lines {
		line[len(line)-2] = "" // seconds
	}
	return lines
}

func TestAClassIsGradedInPartsAndMerged(t *testing.T) {
	t.Parallel()
	students := t.TempDir()
	put(t, students, "ada/llm_memory.c", "", "")
	put(t, students, "bob/llm_memory.c", "memcpy(pool", "if (fresh != 3) memcpy(pool")
	put(t, students, "cy/llm_memory.c", "#include <limits.h>", "#include <limits.h>\nint x = ;")
	require.NoError(t, os.Mkdir(filepath.Join(students, "dan"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(students, "eve"), 0o755))
	require.NoError(t, os.Symlink("../ada/llm_memory.c", filepath.Join(students, "eve", "llm_memory.c")))
	out := t.TempDir()
	whole, one, two, merged := filepath.Join(out, "whole"), filepath.Join(out, "1"), filepath.Join(out, "2"), filepath.Join(out, "merged")
	status, said, stderr := run(t, "--only", "task4_copies", "--html", whole, students)
	require.Equal(t, 1, status, stderr)
	require.Regexp(t, `ada/llm_memory.c: (\d+\.\d) of (\d+\.?\d*) points\n`, said)
	for i, dir := range []string{one, two} {
		status, _, stderr := run(t, "--only", "task4_copies", "--html", dir, "--shard", []string{"1/2", "2/2"}[i], students)
		require.Equal(t, 1, status, stderr)
	}
	status, said, stderr = run(t, "merge", "--html", merged, one, two)
	require.Zero(t, status, stderr)
	require.Contains(t, said, "5 submissions: ")
	lines := grades(t, whole)
	require.Equal(t, lines, grades(t, merged))
	require.Len(t, lines, 6)
	require.Equal(t, []string{"ada", lines[1][3], ""}, []string{lines[1][0], lines[1][2], lines[1][9]})
	require.Equal(t, []string{"cy", "0.00", "compile"}, []string{lines[3][0], lines[3][2], lines[3][9]})
	require.Equal(t, []string{"dan", "0.00", "gate"}, []string{lines[4][0], lines[4][2], lines[4][9]})
	require.Equal(t, []string{"eve", "0.00", "gate"}, []string{lines[5][0], lines[5][2], lines[5][9]})
}

func TestAnInterruptedClassGoesOn(t *testing.T) {
	t.Parallel()
	students := t.TempDir()
	for i := range 40 { // many more than are graded while the test is held up
		put(t, students, fmt.Sprintf("s%02d.c", i), "", "")
	}
	const only = "task2_free"
	out := filepath.Join(t.TempDir(), "grades")
	cmd := exec.Command(os.Args[0], "--jobs", "1", "--only", only, "--html", out, students)
	temporary, err := os.MkdirTemp("", "llmgrade-test-") // which another user can enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	require.NoError(t, os.Chmod(temporary, 0o755))
	cmd.Env = append(os.Environ(), "BE_LLMGRADE=1", "TMPDIR="+temporary)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	reports := func() []string {
		files, _ := filepath.Glob(filepath.Join(out, "reports", "*.json"))
		return files
	}
	require.Eventually(t, func() bool { return len(reports()) >= 1 }, 10*time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Contains(t, said.String(), "the same command goes on from there")
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
	done := reports()
	require.Less(t, len(done), 40)
	require.FileExists(t, filepath.Join(out, "index.html"))
	csv, err := os.ReadFile(filepath.Join(out, "grades.csv"))
	require.NoError(t, err)
	require.Contains(t, string(csv), "the run was interrupted")
	before, err := os.Stat(done[0])
	require.NoError(t, err)

	// Of the rest, two are enough to see that the same command goes on.
	rest, err := filepath.Glob(filepath.Join(students, "*.c"))
	require.NoError(t, err)
	for _, file := range rest[min(len(done)+2, 40):] {
		require.NoError(t, os.Remove(file))
	}
	status, _, stderr := run(t, "--only", only, "--html", out, students)
	require.Zero(t, status, stderr)
	require.Len(t, reports(), min(len(done)+2, 40))
	after, err := os.Stat(done[0])
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime(), "graded again")

	// What a student hands in anew is graded anew.
	put(t, students, "s00.c", "    unlink_node(seq);\n", "    if (seq_id < 0) {\n        unlink_node(seq);\n    }\n")
	status, _, stderr = run(t, "--only", only, "--html", out, students)
	require.Equal(t, 1, status, stderr)
}

func TestPointsComeFromAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, printed, _ := run(t, "points")
	file := filepath.Join(dir, "points.json")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(printed, "20", "3", 1)), 0o644))
	_, out, stderr := run(t, "--only", "task1", "--json", "--points", file, put(t, dir, "llm_memory.c", "", ""))
	var r struct {
		Score float64 `json:"score"`
		Max   float64 `json:"max_score"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r), stderr)
	require.Equal(t, 2.1, r.Max) // 70 % of 3
	require.Equal(t, 2.1, r.Score)
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o644))
	status, _, stderr := run(t, "--points", file, filepath.Join(dir, "llm_memory.c"))
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "points.json: not a points file")
}
