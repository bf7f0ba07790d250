package jinja

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

var (
	filters map[string]builtin
	words   = regexp.MustCompile(`[-\s({\[<]+`)
)

func init() {
	text := func(f func(s string) string) builtin {
		return with("", func(m *machine, v any, _ []any) any { return m.made(f(m.str(v))) })
	}
	length := with("", func(m *machine, v any, _ []any) any { return int64(m.length(v)) })
	escaped := with("", func(m *machine, v any, _ []any) any {
		if !isText(v) {
			v = m.str(v)
		}
		return markup(m.made(escape(v)))
	})
	standard := with("default_value boolean", func(m *machine, v any, a []any) any {
		if _, not := v.(undefined); not || m.truth(or(a[1], false)) && !m.truth(v) {
			return or(a[0], "")
		}
		return v
	})
	filters = map[string]builtin{
		"capitalize": text(capitalize),
		"count":      length,
		"d":          standard,
		"default":    standard,
		"dictsort": with("case_sensitive by reverse", func(m *machine, v any, a []any) any {
			d, ok := v.(*Dict)
			if !ok {
				fail("dictsort is applied to %s", describe(v))
			}
			at := int64(0)
			if or(a[1], "key") == "value" {
				at = 1
			}
			return &list{items: m.sorted(d.pairs(), m.truth(or(a[0], false)), m.truth(or(a[2], false)),
				func(v any) any { return m.item(v, at) })}
		}),
		"e":      escaped,
		"escape": escaped,
		"first": with("", func(m *machine, v any, _ []any) any {
			if items := m.items(v); len(items) > 0 {
				return items[0]
			}
			return undefined{"no first item, sequence was empty"}
		}),
		"float": with("default", func(_ *machine, v any, a []any) any {
			if isNumber(v) {
				return asFloat(v)
			}
			defined(v)
			if f, err := strconv.ParseFloat(strings.TrimSpace(shown(v)), 64); err == nil {
				return f
			}
			return or(a[0], 0.0)
		}),
		"format": func(m *machine, v any, a arguments) any { return m.format(m.str(v), &list{kind: tuple, items: a.list}) },
		"indent": with("width first blank", func(m *machine, v any, a []any) any {
			width := or(a[0], int64(4))
			by := shown(width)
			if !isText(width) {
				by = m.repeat(" ", asInt(width))
			}
			lines := strings.Split(strings.ReplaceAll(m.str(v), "\r\n", "\n"), "\n")
			for i := range lines {
				if i == 0 && m.truth(or(a[1], false)) || i > 0 && (lines[i] != "" || m.truth(or(a[2], false))) {
					lines[i] = m.made(by + lines[i])
				}
			}
			return like(v, m.made(strings.Join(lines, "\n")))
		}),
		"int": with("default base", func(_ *machine, v any, a []any) any {
			defined(v)
			f, isFloat := v.(float64)
			if !isFloat && isNumber(v) {
				return asInt(v)
			}
			s := strings.TrimSpace(shown(v))
			if i, err := strconv.ParseInt(s, int(asInt(or(a[1], int64(10)))), 64); err == nil {
				return i
			}
			if parsed, err := strconv.ParseFloat(s, 64); err == nil {
				f, isFloat = parsed, true
			}
			if isFloat && math.Abs(f) < 1<<62 {
				return int64(f)
			}
			return or(a[0], int64(0))
		}),
		"items": with("", func(_ *machine, v any, _ []any) any {
			switch d := v.(type) {
			case undefined:
				return &list{kind: generator}
			case *Dict:
				return &list{kind: generator, items: d.pairs()}
			}
			fail("items is applied to %s", describe(v))
			return nil
		}),
		"join": with("d attribute", func(m *machine, v any, a []any) any {
			var parts []string
			for _, item := range m.items(v) {
				if given(a[1]) {
					item = m.path(item, a[1])
				}
				parts = append(parts, m.made(m.str(item)))
			}
			sep := m.str(or(a[0], ""))
			m.spend(len(parts) * (1 + len(sep)/16))
			return strings.Join(parts, sep)
		}),
		"last": with("", func(m *machine, v any, _ []any) any {
			if l, ok := v.(*list); ok && l.kind == generator {
				fail("last is applied to a generator")
			}
			if items := m.items(v); len(items) > 0 {
				return items[len(items)-1]
			}
			return undefined{"no last item, sequence was empty"}
		}),
		"length": length,
		"list":   with("", func(m *machine, v any, _ []any) any { return &list{items: m.copied(v)} }),
		"lower":  text(lower),
		"map": func(m *machine, v any, a arguments) any {
			result := &list{kind: generator}
			if !m.truth(v) {
				return result
			}
			var apply func(item any) any
			if len(a.list) == 0 {
				attribute, other := a.named.pop("attribute", missing{}), a.named.pop("default", missing{})
				if !given(attribute) {
					fail("map has no filter and no attribute")
				}
				apply = func(item any) any {
					got := m.path(item, attribute)
					if _, not := got.(undefined); not && given(other) {
						return other
					}
					return got
				}
			} else {
				f := filters[shown(a.list[0])]
				if f == nil {
					fail("map has the filter %q, which is not known", shown(a.list[0]))
				}
				apply = func(item any) any { return f(m, item, a.rest(1)) }
			}
			for _, item := range m.copied(v) {
				result.items = append(result.items, apply(item))
			}
			return result
		},
		"reject": chosen(false, false), "rejectattr": chosen(true, false),
		"replace": with("old new count", func(m *machine, v any, a []any) any {
			return m.replaced(m.str(v), m.str(a[0]), m.str(a[1]), or(a[2], nil))
		}),
		"reverse": with("", func(m *machine, v any, _ []any) any {
			items := m.copied(v)
			slices.Reverse(items)
			if !isText(v) {
				return &list{kind: generator, items: items}
			}
			var b strings.Builder
			for _, c := range items {
				b.WriteString(c.(string))
			}
			return b.String()
		}),
		"safe":   with("", func(m *machine, v any, _ []any) any { return markup(m.str(v)) }),
		"select": chosen(false, true), "selectattr": chosen(true, true),
		"sort": with("reverse case_sensitive attribute", func(m *machine, v any, a []any) any {
			return &list{items: m.sorted(m.copied(v), m.truth(or(a[1], false)), m.truth(or(a[0], false)), m.by(a[2]))}
		}),
		"string": with("", func(m *machine, v any, _ []any) any {
			if isText(v) {
				return v
			}
			return m.str(v)
		}),
		"title": text(func(s string) string {
			var b strings.Builder
			at := 0
			for _, sep := range append(words.FindAllStringIndex(s, -1), []int{len(s), len(s)}) {
				b.WriteString(capitalize(s[at:sep[0]]))
				b.WriteString(s[sep[0]:sep[1]])
				at = sep[1]
			}
			return b.String()
		}),
		"tojson": with("ensure_ascii indent separators sort_keys", tojson),
		"trim": with("chars", func(m *machine, v any, a []any) any {
			return like(v, strings.TrimFunc(m.made(m.str(v)), m.cut(a[0])))
		}),
		"unique": with("case_sensitive attribute", func(m *machine, v any, a []any) any {
			result := &list{kind: generator}
			seen := newDict()
			for _, item := range m.copied(v) {
				k := m.by(a[1])(item)
				if isText(k) && !m.truth(or(a[0], false)) {
					k = lower(raw(k))
				}
				if !seen.has(k) {
					seen.put(k, nil)
					result.items = append(result.items, item)
				}
			}
			return result
		}),
		"upper": text(upper),
	}
}

// upper and lower are Python's, which map some letters to several.
func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	for i, r := range s {
		return upper(string(r)) + lower(s[i+len(string(r)):])
	}
	return ""
}

func (a arguments) rest(n int) arguments {
	named := newDict()
	for _, k := range a.named.keys {
		named.put(k, a.named.values[k])
	}
	return arguments{a.list[min(n, len(a.list)):], named}
}

// copied are items of their own.
func (m *machine) copied(v any) []any {
	items := slices.Clone(m.items(v))
	m.spend(len(items))
	return items
}

// path is an attribute of a value, or one of its attribute, as in a.b.
func (m *machine) path(v, attribute any) any {
	if !isText(attribute) {
		return m.item(v, attribute)
	}
	for part := range strings.SplitSeq(raw(attribute), ".") {
		if i, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = m.item(v, i)
		} else {
			v = m.item(v, part)
		}
	}
	return v
}

// by is the attribute of an item, or the item if no attribute is given.
func (m *machine) by(attribute any) func(any) any {
	if !given(attribute) || attribute == nil {
		return func(v any) any { return v }
	}
	return func(v any) any { return m.path(v, attribute) }
}

// sorted sorts items by what of gives, in place.
func (m *machine) sorted(items []any, exact, reverse bool, of func(any) any) []any {
	compare := func(a, b any) int {
		x, y := of(a), of(b)
		if !exact && isText(x) && isText(y) {
			x, y = lower(raw(x)), lower(raw(y))
		}
		if reverse {
			x, y = y, x
		}
		return order(m, x, y)
	}
	slices.SortStableFunc(items, compare)
	return items
}

// chosen makes select, selectattr, reject or rejectattr.
func chosen(attribute, keeps bool) builtin {
	return func(m *machine, v any, a arguments) any {
		if !m.truth(v) {
			return &list{kind: generator}
		}
		of := m.by(missing{})
		if attribute {
			if len(a.list) == 0 {
				fail("the filter has no attribute")
			}
			of = m.by(a.list[0])
			a = a.rest(1)
		}
		test := func(v any) bool { return m.truth(v) }
		if len(a.list) > 0 {
			f := tests[shown(a.list[0])]
			if f == nil {
				fail("the filter has the test %q, which is not known", shown(a.list[0]))
			}
			test = func(v any) bool { return f(m, v, a.rest(1)) == true }
		}
		result := &list{kind: generator}
		for _, item := range m.copied(v) {
			if test(of(item)) == keeps {
				result.items = append(result.items, item)
			}
		}
		return result
	}
}

// cut says which characters a strip removes.
func (m *machine) cut(chars any) func(rune) bool {
	if !given(chars) || chars == nil {
		return isSpace
	}
	set := raw(chars)
	m.spend(len(set))
	return func(r rune) bool { return strings.ContainsRune(set, r) }
}

func (m *machine) replaced(s, from, to string, count any) string {
	n := int64(-1)
	if count != nil {
		n = asInt(count)
	}
	found := min(uint64(n), uint64(strings.Count(s, from)))
	m.spend(len(s)/16 + int(found)*(1+len(to)/16))
	return strings.Replace(s, from, to, int(n))
}

var verbs = regexp.MustCompile(`%[-+ 0#]*\d*(?:\.\d*)?.?`)

// format is Python's format % values with the conversions %s, %r, %d, %c and %%.
func (m *machine) format(format string, values any) any {
	rest := []any{values}
	if l, ok := values.(*list); ok && l.kind == tuple {
		rest = l.items
	}
	text := verbs.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		if len(rest) == 0 {
			fail("%q has more conversions than values", format)
		}
		v := rest[0]
		rest = rest[1:]
		switch {
		case verb == "%s" || verb == "%c" && isText(v):
			return m.made(m.str(v))
		case verb == "%r":
			return m.repr(v)
		case verb == "%d" && isNumber(v):
			return strconv.FormatInt(int64(asFloat(v)), 10)
		case verb == "%c":
			return string(rune(asInt(v)))
		}
		fail("the conversion %q of %s is not supported", verb, describe(v))
		return ""
	})
	if len(rest) > 0 {
		fail("%q has fewer conversions than values", format)
	}
	return m.made(text)
}
