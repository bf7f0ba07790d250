package handout

import (
	_ "embed"
	"strings"
	"unicode"
)

//go:embed handout.txt
var text string

// Quotes reports whether sentence is in the handout word for word, apart from white
// space. The parts that Elided joins need not be adjacent.
func Quotes(sentence string) bool {
	rest := withoutSpace(text)
	for part := range strings.SplitSeq(sentence, strings.TrimSpace(Elided)) {
		part = withoutSpace(part)
		_, after, found := strings.Cut(rest, part)
		if part == "" || !found {
			return false
		}
		rest = after
	}
	return true
}

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}
