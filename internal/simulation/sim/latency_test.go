package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that an answer of one token has no time between tokens. Ensure that a latency equal to a limit is within the
// limit.
func TestLatenciesAreReportedByRank(t *testing.T) {
	l := NewLatencies(Goodput{TTFT: 1, TPOT: 2, E2E: 5})
	l.Add(Departure{First: 1, Done: 5, Output: 3, Answered: true}) // each at its limit
	l.Add(Departure{First: 1, Done: 1, Output: 1, Answered: true}) // no time between tokens
	l.Add(Departure{First: 1.1, Done: 2, Output: 2, Answered: true})
	l.Add(Departure{First: 1, Done: 5.5, Output: 10, Answered: true})
	r := Result{Seconds: 2}
	l.Fill(&r)
	require.Equal(t, 4, r.Answered)
	require.Equal(t, 2, r.Good)
	require.InDelta(t, 1, r.Goodput, 1e-12)
	require.InEpsilon(t, 2, r.EndToEnd.P50, 0.011, "the second of four")
	require.InEpsilon(t, 5.5, r.EndToEnd.P90, 0.011)
	require.InEpsilon(t, (2+0.9+0.5)/3, r.TPOT.Mean, 1e-12)
	require.InEpsilon(t, 0.9, r.TPOT.P50, 0.011)
	require.InEpsilon(t, (5.0/3+1+1+0.55)/4, r.Normalized.Mean, 1e-12)
}
