package grade

import (
	"encoding/json"
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
