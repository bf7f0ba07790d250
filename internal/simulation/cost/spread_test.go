package cost

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func spreadModel(t *testing.T, s *Spread) *Model {
	setup := roofline(t, "opt-13b", "a100-40gb", 1)
	m, err := setup.Timed(Measured{Name: "mine", Linear: Linear{Base: 5, Seq: 0.1, Prompt: 0.01}, Spread: s}).Model(16)
	require.NoError(t, err)
	return m
}

// Ensure that the time of an iteration is multiplied by one of Spread.Prompts if it computes a prompt, and by one of
// Spread.Decodes otherwise. A repeated run must have the same times.
func TestIterationsDifferByTheSpread(t *testing.T) {
	m := spreadModel(t, &Spread{Decodes: []float64{0.5, 0.75, 1.75}, Prompts: []float64{0.25, 1.75}})
	for _, c := range []struct {
		name    string
		work    Work
		factors []float64
	}{
		{"decodes", Work{Seqs: 4, Context: 100}, []float64{0.5, 0.75, 1.75}},
		{"prompts", Work{Seqs: 4, Context: 100, Prompt: 20}, []float64{0.25, 1.75}},
	} {
		t.Run(c.name, func(t *testing.T) {
			times := map[float64]int{}
			for n := range 6000 {
				times[m.Iteration(n, c.work)]++
				require.Equal(t, m.Iteration(n, c.work), m.Iteration(n, c.work))
			}
			require.Len(t, times, len(c.factors))
			for _, f := range c.factors {
				require.InEpsilon(t, 6000/len(c.factors), times[f*m.Seconds(c.work)], 0.1)
			}
		})
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Iteration(3, Work{Seqs: 1}) }))
	require.Contains(t, m.Constants(),
		"; nine of ten iterations take 0.50 to 1.75 times this without prompts, 0.25 to 1.75 times this with prompts")
}

// capacity keeps runs under the text of their model.
func TestModelsOfEqualSpreadsHaveEqualTexts(t *testing.T) {
	text := func(factors ...float64) string { return fmt.Sprintf("%+v", *spreadModel(t, &Spread{Decodes: factors})) }
	require.Equal(t, text(0.5, 1, 1, 1.5), text(0.5, 1, 1, 1.5))
	require.NotEqual(t, text(0.5, 1, 1, 1.5), text(0.5, 0.9, 1.1, 1.5)) // described alike
}

func TestIterationsWithoutASpreadTakeTheTimeOfTheLine(t *testing.T) {
	for _, s := range []*Spread{nil, {}} {
		m := spreadModel(t, s)
		for n := range 10 {
			require.Equal(t, m.Seconds(Work{Seqs: 1, Prompt: n}), m.Iteration(n, Work{Seqs: 1, Prompt: n}))
		}
	}
}

func TestASpreadIsChecked(t *testing.T) {
	for _, c := range []struct {
		name    string
		spread  Spread
		wantErr string
	}{
		{"none", Spread{}, ""},
		{"mean 1", Spread{Prompts: []float64{0.5, 1.5}}, ""},
		{"another mean", Spread{Decodes: []float64{1, 1.1}}, "mean of the factors must be 1"},
		{"not above 0", Spread{Decodes: []float64{2, 0}}, "must be from 1e-06"},
		{"too many", Spread{Prompts: slices.Repeat([]float64{1}, 1001)}, "1001 factors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := json.Marshal(Measured{Name: "mine", Linear: Linear{Base: 1}, Spread: &c.spread})
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "cost.json")
			require.NoError(t, os.WriteFile(path, text, 0o600))
			_, err = OpenMeasured(path)
			if c.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrFile)
			require.ErrorContains(t, err, c.wantErr)
		})
	}
}
