package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that lookup finds the longest run of 2 to 4 tokens at the end of the sequence that also occurs earlier. It
// must propose the tokens after the most recent earlier occurrence of this run.
func TestALookupProposesWhatFollowedBefore(t *testing.T) {
	for _, test := range []struct {
		name   string
		tokens []int32
		want   []int32
	}{
		{"nothing stood before", []int32{1, 2, 3, 4}, nil},
		{"one token is too few", []int32{1, 2, 3, 1}, nil},
		{"the end itself is no place", []int32{1, 2}, nil},
		{"two tokens", []int32{1, 2, 8, 9, 7, 1, 2}, []int32{8, 9, 7}},
		{"up to the end of the tokens", []int32{1, 2, 1, 2}, []int32{1, 2}},
		{"the most recent place", []int32{1, 2, 5, 0, 1, 2, 6, 0, 1, 2}, []int32{6, 0, 1}},
		{"more tokens at an earlier place", []int32{9, 1, 2, 5, 0, 1, 2, 6, 9, 1, 2}, []int32{5, 0, 1}},
		{"no more than four", []int32{7, 9, 8, 1, 2, 5, 0, 3, 9, 8, 1, 2, 6, 0, 7, 9, 8, 1, 2}, []int32{6, 0, 7}},
	} {
		require.Equal(t, test.want, lookup(test.tokens, 3), test.name)
	}
}
