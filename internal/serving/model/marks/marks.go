// Package marks tells characters that come from a client from characters of a chat template, which combines both into
// one text. In the client's texts, it replaces the characters that special tokens need by private-use characters, their
// marks. If a special token in the rendered text contains a mark, the client wrote a part of it, so it is not a special
// token.
package marks

import (
	"errors"
	"iter"
	"strings"
)

// Marks maps characters to marks, which occur in none of the texts. A nil *Marks changes no text. A Marks never
// changes and is safe for concurrent use.
type Marks struct {
	marks map[rune]rune
	plain []rune // the characters of the marks first, first+1, ...
	first rune
}

// ErrExhausted is the error for texts that leave too few unused private-use characters in a row.
var ErrExhausted = errors.New("the texts have too many private-use characters")

// In UTF-8, every character of plane 16, and no other, begins with the byte 0xf4. These two are private-use
// characters.
const (
	lowest  = 0x100000
	highest = 0x10fffd
	lead    = 0xf4
)

// New returns marks for chars. The marks occur neither in texts nor in beside, a text that will not be marked. New
// returns nil if no text contains one of chars.
func New(chars []rune, texts iter.Seq[string], beside string) (*Marks, error) {
	if len(chars) == 0 {
		return nil, nil
	}
	set, needed := string(chars), false
	var used [highest - lowest + 1]bool
	use := func(text string) {
		if strings.IndexByte(text, lead) < 0 {
			return
		}
		for _, r := range text {
			if r >= lowest && r <= highest {
				used[r-lowest] = true
			}
		}
	}
	use(beside)
	for text := range texts {
		needed = needed || strings.ContainsAny(text, set)
		use(text)
	}
	if !needed {
		return nil, nil
	}
	for from, at := 0, 0; at < len(used); at++ {
		if used[at] {
			from = at + 1
		}
		if at-from+1 < len(chars) {
			continue
		}
		m := &Marks{marks: map[rune]rune{}, plain: chars, first: lowest + rune(from)}
		for i, c := range chars {
			m.marks[c] = m.first + rune(i)
		}
		return m, nil
	}
	return nil, ErrExhausted
}

// Mark replaces the characters of a text by their marks.
func (m *Marks) Mark(text string) string {
	if m == nil {
		return text
	}
	return strings.Map(func(r rune) rune {
		if mark, ok := m.marks[r]; ok {
			return mark
		}
		return r
	}, text)
}

// Char returns the character of a mark, or r if r is not a mark.
func (m *Marks) Char(r rune) rune {
	if m == nil || r < m.first || r >= m.first+rune(len(m.plain)) {
		return r
	}
	return m.plain[r-m.first]
}

// In reports whether a text may contain marks.
func (m *Marks) In(text string) bool { return m != nil && strings.IndexByte(text, lead) >= 0 }

// Plain replaces the marks of a text by their characters.
func (m *Marks) Plain(text string) string {
	if !m.In(text) {
		return text
	}
	return strings.Map(m.Char, text)
}

// Split returns the text without marks, and the byte offsets in it of the characters that were marked.
func (m *Marks) Split(text string) (plain string, marked []int) {
	if !m.In(text) {
		return text, nil
	}
	var b strings.Builder
	for _, r := range text {
		char := m.Char(r)
		if char != r {
			marked = append(marked, b.Len())
		}
		b.WriteRune(char)
	}
	return b.String(), marked
}

// Index compares sub and text without their marks. It returns the byte range of the first or last occurrence of sub in
// text, or -1, -1.
func (m *Marks) Index(text, sub string, last bool) (from, to int) {
	find := strings.Index
	if last {
		find = strings.LastIndex
	}
	sub = m.Plain(sub)
	if !m.In(text) {
		if from = find(text, sub); from < 0 {
			return -1, -1
		}
		return from, from + len(sub)
	}
	at := find(m.Plain(text), sub)
	if at < 0 {
		return -1, -1
	}
	from = m.offset(text, at)
	return from, from + m.offset(text[from:], len(sub))
}

// offset returns the offset in a text of byte n of its plain text.
func (m *Marks) offset(text string, n int) int {
	for at, r := range text {
		if n <= 0 {
			return at
		}
		n -= len(string(m.Char(r)))
	}
	return len(text)
}
