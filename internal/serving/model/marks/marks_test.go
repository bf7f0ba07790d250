package marks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Ensure that Plain and Split undo Mark. A marked text must not contain any character of chars.
func TestMarksAreUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.RuneFrom([]rune("ab<>|｜é\U00100000\U00100001\U00100002\U0010fffd"))
		texts := rapid.SliceOfN(rapid.StringOf(letters), 1, 4).Draw(t, "texts")
		chars := []rune("<>｜")[:rapid.IntRange(1, 3).Draw(t, "chars")]
		sub := rapid.StringOfN(letters, 1, 2, -1).Draw(t, "sub")
		m, err := New(chars, slices.Values(texts), sub)
		require.NoError(t, err)
		for _, text := range texts {
			marked := m.Mark(text)
			require.Equal(t, text, m.Plain(marked))
			require.False(t, strings.ContainsAny(marked, string(chars)))
			plain, places := m.Split("<" + marked + ">")
			require.Equal(t, "<"+text+">", plain)
			var want []int
			for i, r := range plain {
				if i > 0 && i < len(plain)-1 && slices.Contains(chars, r) {
					want = append(want, i)
				}
			}
			require.Equal(t, want, places)
			for _, last := range []bool{false, true} {
				start, end := m.Index(marked, sub, last)
				i := strings.Index(text, sub)
				if last {
					i = strings.LastIndex(text, sub)
				}
				if i < 0 {
					require.Equal(t, -1, start)
					continue
				}
				require.Equal(t, text[:i], m.Plain(marked[:start]))
				require.Equal(t, sub, m.Plain(marked[start:end]))
			}
		}
	})
}

func TestMarksAreNeededOnlyIfATextHasTheCharacters(t *testing.T) {
	m, err := New([]rune("<>"), slices.Values([]string{"a", "b\U00100000"}), "<")
	require.NoError(t, err)
	require.Nil(t, m)
	require.Equal(t, "<", m.Mark("<"))

	var all strings.Builder
	for r := rune(lowest); r <= highest; r++ {
		all.WriteRune(r)
	}
	_, err = New([]rune("<"), slices.Values([]string{"<", all.String()}), "")
	require.ErrorIs(t, err, ErrExhausted)
}
