package handout

import (
	_ "embed"
	"strings"
	"unicode"
)

//go:embed handout.txt
var text string

// Quotes reports whether the handout contains a sentence word for word, apart from white space. If Elided joins
// several parts, the handout must contain them in this order.
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
