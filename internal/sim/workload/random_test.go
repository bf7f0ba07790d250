package workload

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that random lengths are those of vllm bench serve: each whole number between the ends as likely as the others.
func TestRandomLengths(t *testing.T) {
	for _, c := range []struct {
		name        string
		prompt      int
		ratio       float64
		least, most int
	}{
		{"fixed", 100, 0, 100, 100},
		{"half", 100, 0.5, 50, 150},
		{"not whole", 5, 0.3, 3, 7},
		{"down to one", 1, 0.9, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := Random(c.prompt, 7, c.ratio)
			require.NoError(t, err)
			prompts, outputs, _ := sample(l, 20_000)
			require.EqualValues(t, c.least, slices.Min(prompts))
			require.EqualValues(t, c.most, slices.Max(prompts))
			mean, _ := meanSD(prompts)
			require.InEpsilon(t, float64(c.least+c.most)/2, mean, 0.01)
			if c.ratio == 0 {
				_, output := l.Draw(rand.New(rand.NewPCG(1, 1)))
				require.Equal(t, 7, output)
			} else {
				require.NotEqual(t, slices.Min(outputs), slices.Max(outputs))
			}
		})
	}
	for _, bad := range []struct {
		prompt, output int
		ratio          float64
	}{{0, 1, 0}, {1, -1, 0}, {1, 1, 1}, {1, 1, -0.1}, {1 << 25, 1, 0}} {
		_, err := Random(bad.prompt, bad.output, bad.ratio)
		require.ErrorIs(t, err, ErrSetting)
	}
}
