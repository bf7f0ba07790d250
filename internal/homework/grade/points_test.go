package grade

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPointsFilesAreChecked(t *testing.T) {
	text, err := json.Marshal(DefaultPoints)
	require.NoError(t, err)
	p, err := ParsePoints(text)
	require.NoError(t, err)
	require.Equal(t, DefaultPoints, p)
	_, err = ParsePoints([]byte(`{"tasks":[1,1,1,1,1],"directed":60.7,"hidden":19.6,"memory":19.7}`))
	require.NoError(t, err)
	for text, says := range map[string]string{
		`{`: "unexpected EOF",
		`{"tasks":[1,1,1,1,1],"directed":50,"hidden":40,"memory":20}`:   "add up to 100, not 110",
		`{"tasks":[1,1,1,1,1],"directed":120,"hidden":-40,"memory":20}`: "percentages",
		`{"tasks":[1,-1,1,1,1],"directed":100}`:                         "task 2 has -1 points",
		`{"directed":100}`:                                              "the points of the 5 tasks",
		`{"tasks":[1,1,1,1,1],"directed":100,"bonus":1}`:                "bonus",
		`{"tasks":[1,1,1,1],"directed":100}`:                            "the points of the 5 tasks",
		`{"tasks":[1,1,1,1,1,1],"directed":100}`:                        "the points of the 5 tasks",
		`{"tasks":[1,1,1,1,1e300],"directed":100}`:                      "task 5 has 1e+300 points",
		`{"tasks":[1,1,1,1,1],"directed":100} x`:                        "after its end",
	} {
		_, err := ParsePoints([]byte(text))
		require.ErrorIs(t, err, ErrPoints, text)
		require.ErrorContains(t, err, says)
	}
}

func TestPointsAreAwarded(t *testing.T) {
	tests := func(first, second, hidden, memory Status) *Report {
		return &Report{Tests: []Test{
			{Task: 2, Part: PartDirected, Status: first},
			{Task: 2, Part: PartDirected, Status: second},
			{Task: 2, Part: PartHidden, Status: hidden},
			{Task: 2, Part: PartMemory, Status: memory},
		}}
	}
	p := Points{Tasks: [Tasks]float64{0, 100}, Directed: 60, Hidden: 30, Memory: 10}
	for _, c := range []struct {
		r    *Report
		want float64
	}{
		{tests(Passed, Passed, Passed, Passed), 100},
		{tests(Passed, Failed, NotRun, NotRun), 30}, // what was not shown to work gives nothing
		{tests(Passed, NotRun, Passed, Passed), 65}, // half of the memory part
		{tests(Failed, Failed, NotRun, NotRun), 0},
		{tests(Passed, Passed, Failed, Passed), 70},
		{tests(Passed, Passed, Passed, Failed), 90},
	} {
		p.award(c.r)
		require.Equal(t, c.want, c.r.Score, "%v", c.r.Tests)
		require.Equal(t, 100.0, c.r.MaxScore)
		require.Equal(t, [Tasks]float64{0, c.want}, c.r.ByTask())
	}
}

func storedReports(t *testing.T) (all map[string]*Report) {
	t.Helper()
	f, err := os.Open("reporting/report/testdata/reports.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(&all))
	return all
}

func TestStoredReportsHaveTheirPoints(t *testing.T) {
	for id, want := range storedReports(t) {
		if want.Rejected != nil {
			require.Zero(t, want.Score, id)
			continue
		}
		got := *want
		got.Tests, got.Findings = slices.Clone(want.Tests), slices.Clone(want.Findings)
		for i := range got.Tests {
			got.Tests[i].Score, got.Tests[i].MaxScore = 0, 0
		}
		for i := range got.Findings {
			got.Findings[i].Gain = 0
		}
		DefaultPoints.award(&got)
		got.gains()
		require.Equal(t, want.Score, got.Score, id)
		require.Equal(t, want.Tests, got.Tests, id)
		require.Equal(t, want.Findings, got.Findings, id)
	}
}

// Ensure that the points of each test are a multiple of 0.01, however the points are divided. A correct file must get
// all points.
func TestACorrectFileGetsEveryPoint(t *testing.T) {
	correct := storedReports(t)["correct"]
	for _, p := range []Points{
		DefaultPoints,
		{Tasks: [Tasks]float64{1, 2.5, 3, 4, 3.33}, Directed: 50, Hidden: 30, Memory: 20},
		{Tasks: [Tasks]float64{0, 0, 100, 0, 0.01}, Directed: 100},
	} {
		p.award(correct)
		require.InDelta(t, p.Max(), correct.MaxScore, 1e-9)
		require.Equal(t, correct.MaxScore, correct.Score, "%v", p)
		for _, test := range correct.Tests {
			require.InDelta(t, 100*test.MaxScore, float64(int64(100*test.MaxScore+0.5)), 1e-6, test.Name)
		}
	}
}

// Ensure that for the difference of each finding in testdata/findings.json.gz, the grader chooses the sentence of the
// handout that the file states.
func TestTheSentenceIsTheOneThatWasBroken(t *testing.T) {
	f, err := os.Open("testdata/findings.json.gz") // make exhaustive checks and, with -update, writes them
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var all map[string]struct {
		Finding
		Fallback string
	}
	require.NoError(t, json.NewDecoder(z).Decode(&all))
	require.Greater(t, len(all), 300)
	for name, f := range all {
		if f.Step >= 0 {
			require.Equal(t, f.Sentence, candidate{sentence: f.Fallback, ops: f.Ops, difference: f.Difference}.broken(), "%s: %v", name, f.Difference)
		}
	}
}
