package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible replaces some characters by escapes: those that move the cursor, change colors or reorder a line, and
// bytes that are not UTF-8. It keeps line ends and tabs.
func Visible(text string) string {
	return visible(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// VisibleName is like Visible, but also escapes line ends and tabs.
func VisibleName(name string) string {
	return visible(name, func(rune) bool { return false })
}

func visible(text string, stays func(rune) bool) string {
	plain := func(r rune) bool {
		return stays(r) || !unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
	}
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case plain(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
