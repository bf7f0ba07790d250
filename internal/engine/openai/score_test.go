package openai

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Scores are those of vLLM's get_beam_search_score.
func TestTheScoreOfABeamIsItsLogprobByItsLength(t *testing.T) {
	for _, test := range []struct {
		name    string
		ended   bool
		penalty float64
		want    float64
	}{
		{"by its length", false, 1, -2},
		{"the end is no token", true, 1, -2.5},
		{"by the square", false, 2, -0.4},
		{"by nothing", true, 0, -10},
		{"times its length", false, -1, -50},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := beam{tokens: make([]int32, 5), logprob: -10, ended: test.ended}
			require.InDelta(t, test.want, b.score(test.penalty), 1e-9)
		})
	}
}
