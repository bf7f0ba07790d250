package workload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a pipe that does not end is given up with what to do.
func TestAPipeWithoutAnEndIsGivenUp(t *testing.T) {
	text, err := readAtMost(strings.NewReader("12345"), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(text))
	_, err = readAtMost(strings.NewReader("123456"), 5)
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorContains(t, err, "write it to one")
}
