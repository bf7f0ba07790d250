package jinja

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var textMethods, dictMethods map[string]builtin

func init() {
	view := func(kind string, items func(d *Dict) []any) builtin {
		return with("", func(m *machine, v any, _ []any) any {
			m.spend(len(v.(*Dict).keys))
			return &list{kind: kind, items: items(v.(*Dict))}
		})
	}
	dictMethods = map[string]builtin{
		"items": view("dict_items", (*Dict).pairs),
		"keys":  view("dict_keys", func(d *Dict) []any { return d.keys }),
		"values": view("dict_values", func(d *Dict) (values []any) {
			for _, k := range d.keys {
				values = append(values, d.values[key(k)])
			}
			return values
		}),
		"get": with("key default", func(_ *machine, v any, a []any) any {
			if d := v.(*Dict); d.has(a[0]) {
				return d.values[key(a[0])]
			}
			return or(a[1], nil)
		}),
	}
	for _, unsafe := range []string{"clear", "fromkeys", "pop", "popitem", "setdefault", "update"} {
		dictMethods[unsafe] = nil // jinja2's sandbox has them undefined, even if there is a key of that name
	}
}

func init() {
	text := func(f func(s string) string) builtin {
		return with("", func(m *machine, v any, _ []any) any { return m.made(f(m.made(raw(v)))) })
	}
	strip := func(f func(string, func(rune) bool) string) builtin {
		return with("chars", func(m *machine, v any, a []any) any { return f(m.made(raw(v)), m.cut(a[0])) })
	}
	affix := func(f func(string, string) bool) builtin {
		return with("affix", func(m *machine, v any, a []any) any {
			s := m.made(raw(v))
			if l, ok := a[0].(*list); ok && l.kind == tuple {
				return slices.ContainsFunc(l.items, func(one any) bool { return f(s, raw(one)) })
			}
			return f(s, raw(a[0]))
		})
	}
	split := func(fromRight bool) builtin {
		return with("sep maxsplit", func(m *machine, v any, a []any) any {
			return &list{items: m.split(m.made(raw(v)), or(a[0], nil), asInt(or(a[1], int64(-1))), fromRight)}
		})
	}
	textMethods = map[string]builtin{
		"capitalize": text(capitalize), "lower": text(lower), "upper": text(upper),
		"title": text(titled),
		"strip": strip(strings.TrimFunc), "lstrip": strip(strings.TrimLeftFunc), "rstrip": strip(strings.TrimRightFunc),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"find": with("sub", func(m *machine, v any, a []any) any {
			s := m.made(raw(v))
			at := strings.Index(s, raw(a[0]))
			return int64(utf8.RuneCountInString(s[:max(at, 0)]) + min(at, 0))
		}),
		"split": split(false), "rsplit": split(true),
		"removeprefix": with("prefix", func(m *machine, v any, a []any) any {
			return strings.TrimPrefix(m.made(raw(v)), raw(a[0]))
		}),
		"removesuffix": with("suffix", func(m *machine, v any, a []any) any {
			return strings.TrimSuffix(m.made(raw(v)), raw(a[0]))
		}),
		"replace": with("old new count", func(m *machine, v any, a []any) any {
			return m.replaced(raw(v), raw(a[0]), raw(a[1]), or(a[2], nil))
		}),
		"join": with("items", func(m *machine, v any, a []any) any {
			var parts []string
			for _, item := range m.items(a[0]) {
				parts = append(parts, m.made(raw(item)))
			}
			m.spend(len(parts) * (1 + len(raw(v))/16))
			return strings.Join(parts, raw(v))
		}),
		"splitlines": with("", func(m *machine, v any, _ []any) any {
			s := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(m.made(raw(v)))
			l := &list{}
			if s != "" {
				l.items = m.split(strings.TrimSuffix(s, "\n"), "\n", -1, false)
			}
			return l
		}),
		"format": func(m *machine, v any, a arguments) any { return m.made(m.filled(raw(v), a)) },
	}
}

// titled is Python's str.title: a letter after what is no letter is a capital.
func titled(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		inside := unicode.IsLetter(before)
		before = r
		if inside {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

// split splits a text at a separator, or at white space if it is nil, at most n times.
func (m *machine) split(s string, sep any, n int64, fromRight bool) (items []any) {
	cutSpace := func(s string) string { return strings.TrimFunc(s, isSpace) }
	var find func(s string) (from, to int)
	switch {
	case sep != nil && raw(sep) == "":
		fail("the separator is empty")
	case sep == nil:
		s = cutSpace(s)
		if s == "" {
			return nil
		}
		find = func(s string) (int, int) {
			if fromRight {
				at := strings.LastIndexFunc(s, isSpace)
				_, n := utf8.DecodeRuneInString(s[max(at, 0):])
				return at, at + n
			}
			at := strings.IndexFunc(s, isSpace)
			_, n := utf8.DecodeRuneInString(s[max(at, 0):])
			return at, at + n
		}
	case fromRight:
		find = func(s string) (int, int) {
			at := strings.LastIndex(s, raw(sep))
			return at, at + len(raw(sep))
		}
	default:
		find = func(s string) (int, int) {
			at := strings.Index(s, raw(sep))
			return at, at + len(raw(sep))
		}
	}
	for ; n != 0; n-- {
		from, to := find(s)
		if from < 0 {
			break
		}
		m.spend(1)
		head, tail := s[:from], s[to:]
		if sep == nil {
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

// filled is Python's str.format with fields such as {}, {0} and {name}.
func (m *machine) filled(format string, a arguments) string {
	var b strings.Builder
	for next := 0; format != ""; {
		at := strings.IndexAny(format, "{}")
		if at < 0 {
			b.WriteString(format)
			break
		}
		b.WriteString(format[:at])
		if strings.HasPrefix(format[at+1:], format[at:at+1]) { // {{ or }}
			b.WriteByte(format[at])
			format = format[at+2:]
			continue
		}
		field, after, ok := strings.Cut(format[at+1:], "}")
		if !ok || format[at] == '}' || strings.ContainsAny(field, "{.[:!") {
			fail("the format %q is not supported", format)
		}
		if field == "" {
			field = strconv.Itoa(next)
			next++
		}
		i, err := strconv.Atoi(field)
		switch {
		case err != nil && a.named.has(field):
			b.WriteString(m.made(m.str(a.named.values[field])))
		case err == nil && i >= 0 && i < len(a.list):
			b.WriteString(m.made(m.str(a.list[i])))
		default:
			fail("the format has the field %q, which is not given", field)
		}
		format = after
	}
	return b.String()
}
