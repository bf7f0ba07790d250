package ctree_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/ctree"
)

func TestTokensAreThoseOfTheSource(t *testing.T) {
	text := "#include <stdio.h>\n#define A \\\n  1\nint f(void) /* a\n comment */ {\n    return x->y >= 0x1fu ? 'c' : \"// no comment\"[1]; // one\n}\n"
	all, err := ctree.Tokens([]byte(text))
	require.NoError(t, err)
	var words []string
	lines := map[string]int{}
	for _, token := range all {
		words = append(words, token.Text)
		lines[token.Text] = token.Line
	}
	require.Equal(t, []string{"int", "f", "(", "void", ")", "{", "return", "x", "->", "y", ">=", "0x1fu", "?", "'c'", ":", `"// no comment"`, "[", "1", "]", ";", "}"}, words)
	require.Equal(t, []int{4, 5, 6, 7}, []int{lines["int"], lines["{"], lines["return"], lines["}"]})
	require.True(t, all[1].Name())
	for _, i := range []int{0, 2, 11, 13, 15} {
		require.False(t, all[i].Name(), all[i].Text)
	}
}

func TestTokensOfAnyTextAreReadWithoutHarm(t *testing.T) {
	files, err := filepath.Glob("../../testdata/submissions/*/*")
	require.NoError(t, err)
	texts := []string{"", "\x00", "\"open", "'", "/* open", "\\", "#", "#if 0\nint x;\n", "_Pragma(\"x\") a", "__FILE__ __LINE__", "a ## b # c", "%:include", "\xff\xfe", "0x"}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err == nil {
			texts = append(texts, string(text))
		}
	}
	for _, text := range texts {
		require.NotPanics(t, func() { _, _ = ctree.Tokens([]byte(text)) }, text)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add([]byte("int f(void) { return \"x\\\n\"[0]; }\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := ctree.Tokens(text)
		for i := 1; i < len(all); i++ {
			require.LessOrEqual(t, all[i-1].Line, all[i].Line)
		}
	})
}
