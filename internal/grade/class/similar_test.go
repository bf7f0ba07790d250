package class_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/ctree"
	"llmmemory/internal/grade/class"
	"llmmemory/internal/testkit/level"
)

func readAll(t *testing.T, pattern string) (all []class.Source) {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/submissions/" + pattern)
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all = append(all, class.Source{Name: filepath.Base(file), Text: text})
	}
	require.NotEmpty(t, all)
	return all
}

// renamed gives every name, except those of the handout, another, and everything another layout.
func renamed(t *testing.T, text []byte) string {
	t.Helper()
	tokens, err := ctree.Tokens(text)
	require.NoError(t, err)
	var b strings.Builder
	names := map[string]string{}
	for _, token := range tokens {
		word := token.Text
		if token.Name() && !strings.Contains(word, "_") {
			if names[word] == "" {
				names[word] = fmt.Sprintf("other%d", len(names))
			}
			word = names[word]
		}
		b.WriteString(word + " ")
		if strings.ContainsAny(word, ";{") {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

// reordered reverses the order of the functions.
func reordered(text []byte) string {
	parts := strings.SplitAfter(string(text), "\n}\n")
	slices.Reverse(parts)
	return strings.Join(parts, "\n")
}

var lineEnd = regexp.MustCompile(`;\n`)

// commented changes comments and strings.
func commented(text []byte) string {
	return lineEnd.ReplaceAllString(string(text), "; // changed\n/* and here:\n something else */\n")
}

// padded inserts code in front of every function.
func padded(text []byte) string {
	return strings.ReplaceAll(string(text), "\n}\n", "\n}\nstatic long padding(long a, long b) { while (a > b) { a -= b * 3; b ^= a << 2; } return a | b; }\n")
}

func TestACopyIsFoundHoweverItIsDisguised(t *testing.T) {
	level.SkipQuick(t)
	others := readAll(t, "independent/right/*.c")
	original := others[7]
	for _, c := range []struct{ name, text string }{
		{"the same", string(original.Text)},
		{"renamed and laid out anew", renamed(t, original.Text)},
		{"functions in another order", reordered(original.Text)},
		{"other comments", commented(original.Text)},
		{"code added", padded(original.Text)},
		{"all of that", padded([]byte(commented([]byte(renamed(t, []byte(reordered(original.Text)))))))},
	} {
		t.Run(c.name, func(t *testing.T) {
			pairs, unread := class.Similar(append([]class.Source{{Name: "copy", Text: []byte(c.text)}}, others...), nil, class.Threshold)
			require.Empty(t, unread)
			require.Len(t, pairs, 1)
			require.Equal(t, []string{"copy", original.Name}, []string{pairs[0].A, pairs[0].B})
			require.Greater(t, pairs[0].Share, 0.7)
			require.Contains(t, pairs[0].LinesB, true)
		})
	}
}

func TestRightSubmissionsThatAreIndependentStayBelow(t *testing.T) {
	pairs, unread := class.Similar(readAll(t, "independent/right/*.c"), nil, 0)
	require.Empty(t, unread)
	require.NotEmpty(t, pairs)
	require.Less(t, pairs[0].Share, 0.8*class.Threshold, "%s and %s", pairs[0].A, pairs[0].B)
}

func TestWhatSaysNothingIsInNoPair(t *testing.T) {
	stub := []byte("int f(void) { return 0; }\n")
	pairs, unread := class.Similar([]class.Source{{Name: "a", Text: stub}, {Name: "b", Text: stub}, {Name: "c"}, {Name: "d", Text: []byte("\x00\xff")}}, nil, 0)
	require.Empty(t, pairs)
	require.Contains(t, unread, "c")
}
