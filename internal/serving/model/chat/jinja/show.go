package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// str returns Python's str(v).
func (m *machine) str(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string, markup:
		return textOf(v)
	}
	return m.repr(v)
}

func (m *machine) repr(v any) string {
	switch v := v.(type) {
	case undefined:
		return "Undefined"
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return showFloat(v)
	case string:
		return m.made(m.quote(v)).(string)
	case markup:
		return "Markup(" + m.repr(string(v)) + ")"
	case *list:
		begin, end, one := "[", "]", "]"
		switch {
		case v.shown != "":
			return v.shown
		case v.kind == tuple:
			begin, end, one = "(", ")", ",)"
		case v.kind != "" && v.kind != generator:
			begin, end, one = v.kind+"([", "])", "])"
		case v.kind == generator:
			fail("a generator is used as text; apply the filter list first")
		}
		if len(v.items) == 1 {
			end = one
		}
		return m.shown(begin, end, v.items, m.repr)
	case *Dict:
		return m.shown("{", "}", v.keys, func(k any) string { return m.repr(k) + ": " + m.repr(v.values[key(k)]) })
	case *namespace:
		return "<Namespace " + m.repr(v.Dict) + ">"
	}
	fail("%s is used as text", describe(v))
	return ""
}

func (m *machine) shown(begin, end string, items []any, show func(any) string) string {
	var b strings.Builder
	b.WriteString(begin)
	m.nested(func() {
		for i, item := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			m.spend(4)
			s := show(item)
			m.made(s)
			b.WriteString(s)
		}
	})
	b.WriteString(end)
	return b.String()
}

func showFloat(f float64) string {
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	case f != 0 && (math.Abs(f) < 1e-4 || math.Abs(f) >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote returns Python's repr(s).
func (m *machine) quote(s string) string {
	mark := '\''
	if plain := m.plain(s); strings.Contains(plain, "'") && !strings.Contains(plain, `"`) {
		mark = '"'
	}
	var b strings.Builder
	b.WriteRune(mark)
	for _, written := range s {
		switch r := m.marks.Char(written); {
		case r == mark || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(written)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(written)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(mark)
	return b.String()
}
