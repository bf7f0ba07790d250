package tokenizer

import (
	"slices"
	"strings"
	"unicode"
)

// A matcher finds the leftmost added token in a text, and the longest of those that begin there.
type matcher struct {
	ids    map[string]int32
	strips map[string]strip
	starts [256][]string // by first byte, longest first
}

// strip reports on which sides an added token includes adjacent white space.
type strip struct{ left, right bool }

func (m *matcher) add(text string, id int32, s strip) {
	if text == "" {
		return
	}
	if m.ids == nil {
		m.ids, m.strips = map[string]int32{}, map[string]strip{}
	}
	if _, ok := m.ids[text]; !ok {
		list := append(m.starts[text[0]], text)
		slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
		m.starts[text[0]] = list
	}
	m.ids[text], m.strips[text] = id, s
}

// next splits text at the first added token for which allowed returns true. If there is none, id is -1.
func (m *matcher) next(text string, allowed func(from, to int, id int32) bool) (before string, id int32, after string) {
	for i := range len(text) {
		for _, token := range m.starts[text[i]] {
			if !strings.HasPrefix(text[i:], token) || !allowed(i, i+len(token), m.ids[token]) {
				continue
			}
			before, after = text[:i], text[i+len(token):]
			if m.strips[token].left {
				before = strings.TrimRightFunc(before, unicode.IsSpace)
			}
			if m.strips[token].right {
				after = strings.TrimLeftFunc(after, unicode.IsSpace)
			}
			return before, m.ids[token], after
		}
	}
	return text, -1, ""
}
