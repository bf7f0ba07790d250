package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

func (m *machine) plain(s string) string {
	if !m.marks.In(s) {
		return s
	}
	m.spend(1 + len(s)/16)
	return m.marks.Plain(s)
}

// index returns the byte range of the first occurrence of sub in s. If last is true, it returns the range of the last
// occurrence. If sub does not occur in s, it returns -1, -1. A mark counts as equal to the character that it replaces.
func (m *machine) index(s, sub string, last bool) (start, end int) {
	if m.marks.In(s) {
		m.spend(1 + len(s)/16)
	}
	return m.marks.Index(s, sub, last)
}

func isText(v any) bool {
	switch v.(type) {
	case string, markup:
		return true
	}
	return false
}

func asText(v any) string {
	if !isText(v) {
		defined(v)
		fail("%s is found where a string is expected", describe(v))
	}
	return textOf(v)
}

// textOf returns v as a Go string if it is a text: an ordinary string or markup. It returns "" for other values.
func textOf(v any) string {
	if s, ok := v.(markup); ok {
		return string(s)
	}
	s, _ := v.(string)
	return s
}

func keepMarkup(v any, s string) any {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

func (m *machine) letters(v any) []rune {
	if !isText(v) {
		return nil
	}
	m.made(v)
	return []rune(textOf(v))
}

func (m *machine) repeat(s string, n int64) string {
	n = max(n, 0)
	m.spend(int(min(n, maxSteps)) * (1 + len(s)/16))
	return strings.Repeat(s, int(n))
}

func (m *machine) join(separator string, items []any, str func(any) string) string {
	m.spend(len(items) * (1 + len(separator)/16))
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = str(item)
		m.made(parts[i])
	}
	return strings.Join(parts, separator)
}

func (m *machine) replaced(s, old, replacement string, count any) string {
	n := int64(-1)
	if count != nil {
		n = asInt(count)
	}
	old = m.plain(old)
	if m.marks.In(s) && old != "" {
		var parts []string
		for _, part := range m.split(s, old, n, false) {
			parts = append(parts, part.(string))
		}
		m.spend(len(parts) * (1 + len(replacement)/16))
		return strings.Join(parts, replacement)
	}
	found := min(uint64(n), uint64(strings.Count(s, old)))
	m.spend(int(found) * (1 + len(replacement)/16))
	return strings.Replace(s, old, replacement, int(n))
}

func (m *machine) cut(chars any) func(rune) bool {
	if !given(chars) || chars == nil {
		return isSpace
	}
	set := m.plain(asText(chars))
	m.spend(len(set))
	return func(r rune) bool { return strings.ContainsRune(set, m.marks.Char(r)) }
}

// split splits s at most n times at separator, or at white space if separator is nil. A negative n means no limit.
// If fromRight is true, the splits are made at the last separators.
func (m *machine) split(s string, separator any, n int64, fromRight bool) (items []any) {
	sep, spaces := "", separator == nil
	if spaces {
		if s = strings.TrimFunc(s, isSpace); s == "" {
			return nil
		}
	} else if sep = asText(separator); sep == "" {
		fail("the separator is empty")
	} else if m.marks.In(s) {
		return m.splitMarked(s, sep, n, fromRight)
	}
	for ; n != 0; n-- {
		start, stop := 0, 0
		switch {
		case !spaces:
			start, stop = m.index(s, sep, fromRight)
		case fromRight:
			start = strings.LastIndexFunc(s, isSpace)
		default:
			start = strings.IndexFunc(s, isSpace)
		}
		if start < 0 {
			break
		}
		m.spend(1)
		if spaces {
			_, width := utf8.DecodeRuneInString(s[start:])
			stop = start + width
		}
		head, tail := s[:start], s[stop:]
		if spaces {
			head, tail = strings.TrimRightFunc(head, isSpace), strings.TrimLeftFunc(tail, isSpace)
		}
		if fromRight {
			items, s = append(items, tail), head
		} else {
			items, s = append(items, head), tail
		}
	}
	items = append(items, s)
	if fromRight {
		slices.Reverse(items)
	}
	return items
}

// splitMarked does what split does for a text with marks and a separator. It looks for the separator in the text without
// marks, which it makes once.
func (m *machine) splitMarked(s, sep string, n int64, fromRight bool) (items []any) {
	plain, sep := m.plain(s), m.plain(sep)
	var starts []int // of separators in plain
	for start, end := 0, len(plain); n != 0; n-- {
		m.spend(1)
		i := strings.Index(plain[start:end], sep)
		if fromRight {
			i = strings.LastIndex(plain[start:end], sep)
		}
		if i < 0 {
			break
		}
		starts = append(starts, start+i)
		if fromRight {
			end = i
		} else {
			start += i + len(sep)
		}
	}
	if fromRight {
		slices.Reverse(starts)
	}
	done, begin := 0, 0 // s[begin:] is plain[done:] with marks
	advance := func(offset int) (end int) {
		m.spend((offset - done) / 16)
		begin += m.marks.Offset(s[begin:], offset-done)
		done = offset
		return begin
	}
	for _, start := range starts {
		head := begin
		end := advance(start)
		items = append(items, s[head:end])
		advance(start + len(sep))
	}
	return append(items, s[begin:])
}

// upper does what Python does: some letters become several.
func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return upper(s[:n]) + lower(s[n:])
}

// titled returns Python's s.title(). A letter becomes lower case if the character before it is upper-case, lower-case
// or title-case. Every other letter becomes title case. In contrast to Python, a letter is never replaced by several
// letters.
func titled(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		inWord := unicode.In(before, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
		before = r
		if inWord {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

// capitals returns s with each word capitalized, as jinja2's filter title does. A word ends at a space, a tab, a line
// break or a form feed, or at one of the characters - ( { [ <. In jinja2, a word also ends at other white space. For
// the function titled, a word also ends at other characters, such as digits and apostrophes.
func (m *machine) capitals(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune("-({[< \t\n\f\r", m.marks.Char(r)) })
		if end < 0 {
			end = len(s)
		}
		m.spend(round)
		b.WriteString(capitalize(s[:end]))
		_, size := utf8.DecodeRuneInString(s[end:])
		b.WriteString(s[end : end+size])
		s = s[end+size:]
	}
	return b.String()
}

var entities = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}

func (m *machine) escape(v any) markup {
	if s, ok := v.(markup); ok {
		return s
	}
	var b strings.Builder
	for _, r := range asText(v) {
		if e := entities[m.marks.Char(r)]; e != "" {
			b.WriteString(e)
			continue
		}
		b.WriteRune(r)
	}
	return markup(b.String())
}
