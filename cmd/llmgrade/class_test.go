package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func grades(t *testing.T, dir string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "grades.csv"))
	require.NoError(t, err)
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	for _, line := range lines[1:] {
		line[slices.Index(lines[0], "seconds")] = ""
	}
	return lines
}

func TestAClassIsGradedInPartsAndMerged(t *testing.T) {
	t.Parallel()
	level.SkipNormal(t)
	students := t.TempDir()
	put(t, students, "ada/llm_memory.c", "", "")
	put(t, students, "bob/llm_memory.c", "memcpy(pool", "if (fresh != 3) memcpy(pool")
	put(t, students, "cy/llm_memory.c", "#include <limits.h>", "#include <limits.h>\nint x = ;")
	require.NoError(t, os.Mkdir(filepath.Join(students, "dan"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(students, "eve"), 0o755))
	require.NoError(t, os.Symlink("../ada/llm_memory.c", filepath.Join(students, "eve", "llm_memory.c")))
	out := t.TempDir()
	whole, one, two, merged := filepath.Join(out, "whole"), filepath.Join(out, "part[1]"), filepath.Join(out, "part[2]"), filepath.Join(out, "merged")
	status, said, stderr := run(t, "--only", "task4_copies", "--html", whole, students)
	require.Equal(t, 1, status, stderr)
	require.Regexp(t, `ada/llm_memory.c: (\d+\.\d) of (\d+\.?\d*) points\n`, said)
	decide := func(dir, lines string) {
		write(t, filepath.Join(dir, "overrides.csv"), "student,points,comment\n"+lines)
	}
	for i, dir := range []string{one, two} {
		decide(dir, "ada,1,\nbob,2,\n") // each part has one of them
		status, _, stderr := run(t, "--only", "task4_copies", "--html", dir, "--shard", []string{"1/2", "2/2"}[i], students)
		require.Equal(t, 1, status, stderr)
		require.NotContains(t, stderr, "overrides.csv")
	}
	decide(filepath.Join(out, "first"), "ada,1,\nbob,2,\nzoe,3,\n")
	status, _, stderr = run(t, "merge", "--html", filepath.Join(out, "first"), one)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "warning: no folder has shard 2/2: its submissions are missing\n")
	require.Contains(t, stderr, "warning: overrides.csv: there is no submission of zoe\n")
	status, _, stderr = run(t, "merge", "--html", filepath.Join(out, "first"), two)
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "overrides.csv: not usable: line 4: there is no student zoe in this class: correct the name, or remove the line")
	decide(filepath.Join(out, "first"), "ada,1,\nbob,2,\n")
	status, _, stderr = run(t, "merge", "--html", filepath.Join(out, "first"), two)
	require.Zero(t, status, stderr)
	require.NotContains(t, stderr, "shard", "the first was merged before")
	status, said, stderr = run(t, "merge", "--html", merged, one, two)
	require.Zero(t, status, stderr)
	require.NotContains(t, stderr, "shard")
	require.Contains(t, said, "5 submissions: ")
	lines := grades(t, whole)
	require.Equal(t, lines, grades(t, merged))
	require.Len(t, lines, 6)
	require.Equal(t, []string{"ada", lines[1][3], ""}, []string{lines[1][0], lines[1][2], lines[1][9]})
	require.Equal(t, []string{"cy", "0.00", "compile"}, []string{lines[3][0], lines[3][2], lines[3][9]})
	require.Equal(t, []string{"dan", "0.00", "no file"}, []string{lines[4][0], lines[4][2], lines[4][9]})
	require.Equal(t, []string{"eve", "0.00", "no file"}, []string{lines[5][0], lines[5][2], lines[5][9]})
}

func cell(t *testing.T, dir, student, column string) string {
	t.Helper()
	lines := grades(t, dir)
	for _, line := range lines[1:] {
		if line[0] == student {
			return line[slices.Index(lines[0], column)]
		}
	}
	t.Fatalf("no row of %s", student)
	return ""
}

var unusable = map[string]string{
	"ada,most,\n":         `line 2: the points of ada are "most", not a number`,
	"ada,1,\nada,1,\n":    "line 3: ada stands in line 2 already",
	"ada,99,\n":           "line 2: ada gets 99 points, which is more than the",
	"ada,1,\nzoe,1,\n":    "line 3: there is no student zoe in this class: correct the name, or remove the line",
	"bob,1,\nzo\u00e9,,x": "line 3: there is no student zo\u00e9 in this class",
}

func TestWhatStaffDecideStaysWhenTheClassIsGradedAgain(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	students, out := t.TempDir(), filepath.Join(t.TempDir(), "grades")
	put(t, students, "ada.c", "", "")
	put(t, students, "bob.c", "    unlink_node(seq);\n", "    if (seq_id < 0) {\n        unlink_node(seq);\n    }\n")
	grade := func() (status int, page, said string) {
		status, _, said = run(t, "--only", "task2_free", "--html", out, students)
		text, err := os.ReadFile(filepath.Join(out, "index.html"))
		require.NoError(t, err)
		return status, string(text), said
	}
	_, page, _ := grade()
	require.NotContains(t, page, "What changed")
	was := cell(t, out, "bob", "score")

	overrides := filepath.Join(out, "overrides.csv")
	decide := func(lines string) {
		require.NoError(t, os.WriteFile(overrides, []byte("student,points,comment\n"+lines), 0o644))
	}
	decide("bob,12,\"late, agreed\"\n")
	put(t, students, "bob.c", "", "")
	_, page, said := grade()
	require.Equal(t, []string{"12.00", "late, agreed"}, []string{cell(t, out, "bob", "score"), cell(t, out, "bob", "comment")})
	require.NotEqual(t, was, cell(t, out, "bob", "graded_score"))
	require.NotContains(t, said, "overrides.csv")
	require.Contains(t, page, "late, agreed")
	require.Contains(t, page, "What changed")
	require.Contains(t, page, "now passes: task2_free")
	own, err := os.ReadFile(filepath.Join(out, "students", "bob.html"))
	require.NoError(t, err)
	require.Contains(t, string(own), "late, agreed")
	kept, err := os.ReadFile(overrides)
	require.NoError(t, err)
	require.Contains(t, string(kept), "bob,12")

	// A student of an earlier run may have left the class.
	require.NoError(t, os.Remove(filepath.Join(students, "bob.c")))
	_, page, said = grade()
	require.Contains(t, said, "warning: overrides.csv: there is no submission of bob\n")
	require.Contains(t, page, "overrides.csv names 1 student of no submission:</strong> bob.")

	// Nothing is graded with a row that cannot be used.
	put(t, students, "ada.c", "    unlink_node(seq);\n", "    if (seq_id < 0) {\n        unlink_node(seq);\n    }\n")
	table, err := os.ReadFile(filepath.Join(out, "grades.csv"))
	require.NoError(t, err)
	for lines, wrong := range unusable {
		decide(lines)
		status, _, said := grade()
		require.Equal(t, 2, status, lines)
		require.Contains(t, said, "overrides.csv: not usable: "+wrong)
		now, err := os.ReadFile(filepath.Join(out, "grades.csv"))
		require.NoError(t, err)
		require.Equal(t, string(table), string(now), lines)
	}
}

func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "llmgrade-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// background returns a command for llmgrade that puts temporary files into the folder temporary. The caller must start
// the command.
func background(temporary string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_LLMGRADE=1", "TMPDIR="+temporary)
	return cmd
}

func TestWhatAKilledRunLeftIsRemovedByTheNext(t *testing.T) {
	t.Parallel()
	temporary := enterable(t)
	left := func() []string {
		all, err := filepath.Glob(filepath.Join(temporary, "*"))
		require.NoError(t, err)
		return all
	}
	start := func() *exec.Cmd {
		cmd := background(temporary, "--only", "task1_accepts", put(t, t.TempDir(), "a.c", "", ""))
		require.NoError(t, cmd.Start())
		return cmd
	}
	killed := start()
	require.Eventually(t, func() bool { return len(left()) > 0 }, 10*time.Minute, time.Millisecond)
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	for run := 1; len(left()) > 0; run++ {
		require.LessOrEqual(t, run, 30, left())
		for _, folder := range left() { // as it is a while later
			require.NoError(t, os.Chtimes(folder, time.Time{}, time.Now().Add(-time.Hour)))
		}
		require.NoError(t, start().Wait()) // a compiler of the killed run may still write; the next run finds that
	}
}

// Ensure that the pages and rows of an interrupted run are complete. The same command must then grade only the rest.
func TestAnInterruptedClassGoesOn(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	students := t.TempDir()
	for i := range 40 { // many more than are graded while the test is held up
		put(t, students, fmt.Sprintf("s%02d.c", i), "", "")
	}
	const only = "task2_free"
	out := filepath.Join(t.TempDir(), "grades")
	temporary := enterable(t)
	cmd := background(temporary, "--jobs", "1", "--only", only, "--html", out, students)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	reports := func() []string {
		files, _ := filepath.Glob(filepath.Join(out, "reports", "*.json"))
		return files
	}
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(out, "grades.csv"))
		return strings.Contains(string(text), "s01,")
	}, 10*time.Minute, time.Millisecond)
	requireRowsSoFar(t, out)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Contains(t, said.String(), "interrupt again to stop at once")
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

	// To save time, only two of the submissions that were not graded remain for the second run.
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

	// A changed file is graded again.
	put(t, students, "s00.c", "    unlink_node(seq);\n", "    if (seq_id < 0) {\n        unlink_node(seq);\n    }\n")
	status, _, stderr = run(t, "--only", only, "--html", out, students)
	require.Equal(t, 1, status, stderr)
}

// requireRowsSoFar checks grades.csv while a class of 40 is graded. The first submission has been graded, and the last
// has not.
func requireRowsSoFar(t *testing.T, out string) {
	t.Helper()
	require.Len(t, grades(t, out)[1:], 40)
	require.NotEmpty(t, cell(t, out, "s00", "score"))
	require.Empty(t, cell(t, out, "s00", "trouble"))
	require.Equal(t, []string{"", "not graded yet"}, []string{cell(t, out, "s39", "score"), cell(t, out, "s39", "trouble")})
	index, err := os.ReadFile(filepath.Join(out, "index.html"))
	require.NoError(t, err)
	own, err := os.ReadFile(filepath.Join(out, "students", "s00.html"))
	require.NoError(t, err)
	for _, page := range [][]byte{index, own} {
		require.True(t, bytes.HasSuffix(page, []byte("</html>\n")))
	}
	require.Regexp(t, `<strong>\d+</strong> of \d+ points`, string(own))
	require.Contains(t, string(index), `href="students/s00.html"`)
	require.Regexp(t, `\d+ not graded yet`, string(index))
	require.NotContains(t, string(index), "Could not be graded")
	require.NotContains(t, string(index), `href="students/s39.html"`)
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
