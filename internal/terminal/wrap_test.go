package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLinesAreWrappedAtWords(t *testing.T) {
	require.Equal(t, []string{""}, Wrap("", 0))
	require.Equal(t, []string{"a b"}, Wrap(" a\n b ", 4))
	long := strings.Repeat("é", Columns)
	require.Equal(t, []string{long}, Wrap(long, 0))
	require.Equal(t, []string{"a", long, "b"}, Wrap("a "+long+" b", 10))
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-zé]{1,20}`), 1, 60).Draw(t, "words")
		indent := rapid.IntRange(0, 80).Draw(t, "indent")
		lines := Wrap(strings.Join(words, " "), indent)
		require.Equal(t, words, strings.Fields(strings.Join(lines, " ")))
		for i, line := range lines {
			require.LessOrEqual(t, indent+utf8.RuneCountInString(line), Columns)
			if i > 0 { // no line is broken too early
				first := strings.Fields(line)[0]
				require.Greater(t, indent+utf8.RuneCountInString(lines[i-1]+" "+first), Columns)
			}
		}
	})
}
