package grade_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// Ensure that a second mistake never raises the score. Running all stages (AllStages) must not change the score.
func TestAMistakeMoreIsNoGain(t *testing.T) {
	level.SkipNormal(t)
	g, all := newGrader(t), newGrader(t)
	g.Tries, all.Tries, all.AllStages = 0, 0, true
	g.Seed, all.Seed = 1, 1 // the same random traces for different texts
	if !level.Exhaustive() {
		g.LeaveOutSweeps()
		all.LeaveOutSweeps()
	}
	table := map[string]corpus.Mutant{}
	var ids []string
	for _, m := range mutants(t) {
		table[m.ID] = m
		if m.Kind != corpus.Equivalent && m.Kind != corpus.Rejected {
			ids = append(ids, m.ID)
		}
	}
	pairs := [][2]string{{"U12", "R41"}}
	if level.Exhaustive() {
		pairs = append(pairs, [][2]string{{"M3", "A28"}, {"R61", "A28"}, {"M3", "M4"}, {"F6", "A28"}, {"M3", "I8"}, {"R60", "A28"}}...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range level.Pick(0, 30) {
		pairs = append(pairs, [2]string{ids[random.IntN(len(ids))], ids[random.IntN(len(ids))]})
	}
	correct := corpus.Correct(t)
	score := func(t *testing.T, g *grade.Grader, source string) float64 {
		file := putText(t, source)
		r, err := g.File(file)
		require.NoError(t, err)
		return r.Score
	}
	for _, p := range pairs {
		t.Run(p[0]+"+"+p[1], func(t *testing.T) {
			t.Parallel()
			a, b := table[p[0]], table[p[1]]
			one, err := a.Apply(correct)
			require.NoError(t, err)
			both, err := b.Apply(one)
			if err != nil {
				t.Skip("they change the same place")
			}
			first, second := score(t, g, one), score(t, g, both)
			require.LessOrEqual(t, second, first)
			require.Equal(t, second, score(t, all, both), "with all stages")
		})
	}
}
