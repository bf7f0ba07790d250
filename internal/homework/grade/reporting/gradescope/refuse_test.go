package gradescope

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/testkit/corpus"
)

const (
	fullMarks  = "all right"
	oneMistake = "a mistake"
	noProgram  = "int x = ;"
)

func judge(file string, _ grade.Points) (*grade.Report, error) {
	text, err := os.ReadFile(file)
	r := passing()
	switch string(text) {
	case oneMistake:
		set(r, "task1_a", grade.Failed, 0)
	case noProgram:
		return &grade.Report{MaxScore: r.MaxScore, Rejected: &grade.Rejection{Stage: grade.Compile, Text: "error"}}, err
	}
	return r, err
}

func limited(t *testing.T, limit string) string {
	t.Helper()
	dir := t.TempDir()
	lay(t, dir, map[string]string{"submission/": "", "results/": "", "source/config.json": `{"rate_limit": "` + limit + `"}`})
	return dir
}

func submit(t *testing.T, dir, text string, minute int, before ...previous) Results {
	t.Helper()
	describe(t, dir, minute, before...)
	lay(t, dir, map[string]string{"submission/" + class.Wanted: text})
	require.NoError(t, (&run{dir: dir, log: io.Discard, grader: judge}).write())
	return read(t, dir, 0)
}

func describe(t *testing.T, dir string, minute int, before ...previous) {
	t.Helper()
	type entry struct {
		Time    time.Time `json:"submission_time"`
		Score   float64   `json:"score"`
		Errored bool      `json:"autograder_error"`
		Results *Results  `json:"results,omitempty"`
	}
	var m struct {
		Created  time.Time `json:"created_at"`
		Previous []entry   `json:"previous_submissions"`
	}
	m.Created = clock(minute)
	for i, p := range before {
		if i < len(before)-1 {
			p.Results = nil // Gradescope has the latest only
		}
		m.Previous = append(m.Previous, entry(p))
	}
	meta, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "submission_metadata.json"), meta, 0o644))
}

func TestOverTheRateLimitTheScoreBeforeStays(t *testing.T) {
	dir := limited(t, "2/10m")
	var done []previous
	step := func(text string, minute int) Results {
		r := submit(t, dir, text, minute, done...)
		done = append(done, previous{Time: clock(minute), Score: r.Score, Results: &r})
		return r
	}
	require.False(t, step(noProgram, 1).Extra.Counts)
	first := step(fullMarks, 2)
	require.Equal(t, 10.0, first.Score)
	require.False(t, step(noProgram, 3).Extra.Counts)
	second := step(oneMistake, 4) // the second that counts
	require.Less(t, second.Score, 10.0)
	require.NotZero(t, second.Score)

	for _, minute := range []int{5, 6} { // refused, and refused again: neither counts
		r := step(fullMarks, minute)
		require.Equal(t, second.Score, r.Score)
		require.Equal(t, second.Tests, r.Tests, "what was hidden stays hidden")
		require.Equal(t, "This submission was not graded, and the score before it stays: at most 2 within 10m are graded. "+
			"The next one is graded when it is submitted after 2026-11-21 12:12:00 -08:00.\n"+lastResultsTitle+second.Output, r.Output)
		require.False(t, r.Extra.Counts)
	}
	regraded := submit(t, dir, fullMarks, 5, done...)
	require.Equal(t, second.Score, regraded.Score, "the same when it is graded again")
	require.Equal(t, 10.0, step(fullMarks, 12).Score)
	require.Equal(t, 10.0, step(oneMistake, 13).Score, "refused")
	require.Equal(t, second.Score, step(oneMistake, 14).Score, "the one of minute 4 is out")
}

func TestTheRateLimitWithoutResults(t *testing.T) {
	dir := limited(t, "1/10m")
	r := submit(t, dir, fullMarks, 9, previous{Time: clock(5), Score: 7.5}, previous{Time: clock(6), Errored: true})
	require.Equal(t, 7.5, r.Score)
	require.Equal(t, AfterDueDate, r.Tests[0].Visibility, "or the sum would be seen")
	r = submit(t, dir, fullMarks, 16, previous{Time: clock(5), Score: 7.5}, previous{Time: clock(9), Score: 7.5})
	require.Equal(t, 10.0, r.Score, "the one of minute 9 was refused, and does not count")
	r = submit(t, dir, fullMarks, 9, previous{Time: clock(5), Errored: true})
	require.Equal(t, 10.0, r.Score)
	r = submit(t, dir, fullMarks, 9, previous{Time: clock(5), Score: 7.5, Results: &Results{Score: 7.5, Tests: []Test{{Name: "stripped"}}}})
	require.Equal(t, AfterDueDate, r.Tests[0].Visibility)

	for _, text := range []string{"{", `{"created_at": "yesterday"}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "submission_metadata.json"), []byte(text), 0o644))
		var log strings.Builder
		require.NoError(t, (&run{dir: dir, log: &log, grader: judge}).write())
		require.Contains(t, log.String(), "graded without the rate limit")
		r := read(t, dir, 0)
		require.Equal(t, 10.0, r.Score)
		require.True(t, slices.ContainsFunc(r.Extra.Notes, func(n string) bool { return strings.HasPrefix(n, "metadata: ") }))
	}
}

func TestTheAutograderRefusesOverTheRateLimit(t *testing.T) {
	t.Parallel()
	dir := container(t, Package{Limit: "1/10m"}, map[string]string{class.Wanted: corpus.Correct(t)})
	describe(t, dir, 9, previous{Time: clock(5), Score: 71.5})
	require.Contains(t, grading(t, dir), "over the rate limit")
	require.Equal(t, 71.5, read(t, dir, 0).Score)
}
