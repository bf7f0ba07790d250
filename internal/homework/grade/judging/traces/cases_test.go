package traces

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/handout"
)

// A trace quotes the handout, word for word.
func TestTheSentencesOfTracesStandInTheHandout(t *testing.T) {
	cases, err := Directed()
	require.NoError(t, err)
	for _, c := range cases {
		require.True(t, handout.Quotes(c.Sentence), "%s: %q", c.Name, c.Sentence)
	}
}
