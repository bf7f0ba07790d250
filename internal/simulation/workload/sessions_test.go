package workload

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATurnBeginsWithAllThatWasSaid(t *testing.T) {
	first, err := Gamma(shareGPT(), 1, 1, 1, 0, 20)
	require.NoError(t, err)
	s, err := Conversations(first, shareGPT(), Talk{Turns: 4, Think: 10}, 1, 4096)
	require.NoError(t, err)
	turns, sessions := 0, drain(t, s)
	for i, r := range sessions {
		require.EqualValues(t, i+1, r.Session)
		for now := 100.0; ; turns++ {
			before := Tokens(nil, &r, turns)
			if !s.Follow(r.Session, now, &r) {
				break
			}
			require.GreaterOrEqual(t, r.Arrival, now)
			require.Greater(t, r.Prompt, len(before))
			require.LessOrEqual(t, r.Prompt+r.Output, 4096)
			require.Equal(t, before, Tokens(nil, &r, turns)[:len(before)])
			now = r.Arrival + 5
		}
	}
	require.Greater(t, turns, len(sessions), "4 turns on average are 3 more")
}

func TestTurnsOfATraceAreFoundByTheirHashes(t *testing.T) {
	rows := []Request{
		{Arrival: 0, Prompt: 1100, Output: 5, Hashes: []int64{0, 1, 2}},    // a conversation
		{Arrival: 1, Prompt: 1024, Output: 5, Hashes: []int64{0, 9}},       // another with the same system prompt
		{Arrival: 5, Prompt: 1600, Output: 5, Hashes: []int64{0, 1, 3, 4}}, // continues the first
		// continues the row above, whose last whole block is 3
		{Arrival: 6, Prompt: 2000, Output: 5, Hashes: []int64{0, 1, 3, 5}},
		{Arrival: 90, Prompt: 2100, Output: 5, Hashes: []int64{0, 1, 3, 5, 6}}, // continues the one before
		{Arrival: 95, Prompt: 600, Output: 5, Hashes: []int64{0, 7}},           // has only the system prompt in common
	}
	at := 0
	source := next(func(r *Request) error {
		if at == len(rows) {
			return io.EOF
		}
		*r = rows[at]
		at++
		return nil
	})
	s, err := SessionsOf(source, 3)
	require.NoError(t, err)
	first := drain(t, s)
	var arrivals []float64
	for _, r := range first {
		arrivals = append(arrivals, r.Arrival)
	}
	require.Equal(t, []float64{0, 1, 95}, arrivals)
	var r Request
	require.True(t, s.Follow(first[0].Session, 20, &r))
	require.Equal(t, 23.0, r.Arrival, "not before the answer and a pause")
	require.Equal(t, 1600, r.Prompt)
	require.True(t, s.Follow(r.Session, 30, &r))
	require.Equal(t, 2000, r.Prompt)
	require.True(t, s.Follow(r.Session, 40, &r))
	require.Equal(t, 90.0, r.Arrival, "not before the row's own time")
	require.False(t, s.Follow(r.Session, 50, &r))
	require.False(t, s.Follow(first[1].Session, 50, &r))
}
