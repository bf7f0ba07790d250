package calibrate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
)

// trace returns a CSV of n iterations of a server. Batches without prompts take the same time if they have the same
// size. One in ten iterations with prompts takes three times as long as the others with the same work. A straight line
// cannot fit all times, because batches of four without prompts take 1.5 times as long as a line through the smaller
// batches predicts.
func trace(n int) string {
	rng := rand.New(rand.NewPCG(5, 6))
	var b strings.Builder
	b.WriteString("batch,context,prompt,seconds\n")
	for i := range n {
		batch, prompt := 1+rng.IntN(4), 0
		ms := 1 + 0.5*float64(batch)
		if batch == 4 {
			ms *= 1.5
		}
		if i%4 == 0 {
			prompt = 64 + rng.IntN(200)
			ms += 0.1 * float64(prompt)
			if i%40 == 0 {
				ms *= 3
			}
		}
		fmt.Fprintf(&b, "%d,100,%d,%g\n", batch, prompt, 1e-3*ms)
	}
	return b.String()
}

func TestTheSpreadIsThatOfMeasurementsOfTheSameWork(t *testing.T) {
	c := fitOf(t, trace(8000))
	require.Len(t, c.Spread.Prompts, 20)
	for i, f := range c.Spread.Prompts { // 1/1.2 and 3/1.2
		if i < 18 {
			require.InEpsilon(t, 0.833, f, 0.2, i)
		} else {
			require.InEpsilon(t, 2.5, f, 0.2, i)
		}
	}
	require.Len(t, c.Spread.Decodes, 20)
	for _, f := range c.Spread.Decodes {
		require.InEpsilon(t, 1, f, 0.02)
	}

	saved := c.saved(t)
	require.Equal(t, c.Spread, saved.Spread)
	var b strings.Builder
	require.NoError(t, c.Write(&b))
	require.Contains(t, b.String(), "nine of ten iterations take ")
}

// Ensure that a saved cost file with a spread can be read, even if one measurement took very long.
func TestASpreadThatIsSavedCanBeRead(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		longest float64 // seconds
	}{
		{"a short interruption", 250, 0.1},
		{"a machine that was suspended", 250, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("batch,context,prompt,seconds\n")
			for i := range c.n {
				seconds := 1e-3 * float64(1+i%2)
				if i == 100 {
					seconds = c.longest
				}
				fmt.Fprintf(&b, "%d,100,0,%g\n", 1+i%2, seconds)
			}
			fit := fitOf(t, b.String())
			saved := fit.saved(t)
			require.Len(t, saved.Spread.Decodes, 20)
		})
	}
}

func TestFewMeasurementsHaveNoSpread(t *testing.T) {
	for _, c := range []struct{ name, csv string }{
		{"a table", table(cost.Linear{Base: 6, Seq: 0.1}, 0.1)},
		{"a trace that is short", trace(200)},
	} {
		t.Run(c.name, func(t *testing.T) {
			fit := fitOf(t, c.csv)
			require.True(t, fit.Spread == nil || fit.Spread.Prompts == nil)
		})
	}
}
