package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

var filters = map[string]builtin{
	"capitalize": {"", textFunc(capitalize)},
	"lower":      {"", textFunc(lower)},
	"upper":      {"", textFunc(upper)},
	"title":      {"", func(m *machine, v any, _ []any) any { return m.capitals(m.str(v)) }},
	"trim":       {"chars", stripped(strings.TrimFunc)},
	"replace":    {"old new count", replacing((*machine).str)},
	"indent":     {"width first blank", indent},
	"string":     {"", func(m *machine, v any, _ []any) any { return keepMarkup(v, m.str(v)) }},
	"safe":       {"", func(m *machine, v any, _ []any) any { return markup(m.str(v)) }},
	"e":          {"", escapeAny}, "escape": {"", escapeAny},
	"format": {raw, func(m *machine, v any, a []any) any { return m.format(m.str(v), a[0].(arguments).list) }},
	"tojson": {"ensure_ascii indent separators sort_keys", tojson},
	"float":  {"default", toFloat},
	"int":    {"default base", toInt},
	"d":      {"default_value boolean", defaultTo}, "default": {"default_value boolean", defaultTo},

	"count": {"", countItems}, "length": {"", countItems},
	"first": {"", endItem(false)},
	"last":  {"", endItem(true)},
	"list":  {"", func(m *machine, v any, _ []any) any { return &list{items: m.copied(v)} }},
	"items": {"", dictItems},
	"join": {"d attribute", func(m *machine, v any, a []any) any {
		part := m.keyFunc(a[1])
		return m.join(m.str(orDefault(a[0], "")), m.items(v), func(item any) string { return m.str(part(item)) })
	}},
	"reverse":  {"", reversed},
	"dictsort": {"case_sensitive by reverse", dictSort},
	"sort": {"reverse case_sensitive attribute", func(m *machine, v any, a []any) any {
		return m.sorted(m.copied(v), a[1], a[0], a[2])
	}},
	"unique":     {"case_sensitive attribute", unique},
	"map":        {raw, func(m *machine, v any, a []any) any { return m.mapped(v, a[0].(arguments)) }},
	"select":     {raw, selection(false, true)},
	"selectattr": {raw, selection(true, true)},
	"reject":     {raw, selection(false, false)},
	"rejectattr": {raw, selection(true, false)},
}

func indent(m *machine, v any, a []any) any {
	width := orDefault(a[0], int64(4))
	margin := textOf(width)
	if !isText(width) {
		margin = m.repeat(" ", asInt(width))
	}
	lines := strings.Split(strings.ReplaceAll(m.str(v), "\r\n", "\n"), "\n")
	for i := range lines {
		if i == 0 && m.truth(orDefault(a[1], false)) || i > 0 && (lines[i] != "" || m.truth(orDefault(a[2], false))) {
			m.spend(1 + len(margin)/16)
			lines[i] = margin + lines[i]
		}
	}
	return keepMarkup(v, strings.Join(lines, "\n"))
}

func escapeAny(m *machine, v any, _ []any) any {
	if !isText(v) {
		v = m.str(v)
	}
	return m.escape(v)
}

func toFloat(_ *machine, v any, a []any) any {
	if isNumber(v) {
		return asFloat(v)
	}
	defined(v)
	if f, err := strconv.ParseFloat(strings.TrimSpace(textOf(v)), 64); err == nil {
		return f
	}
	return orDefault(a[0], 0.0)
}

func toInt(_ *machine, v any, a []any) any {
	defined(v)
	f, isFloat := v.(float64)
	if !isFloat && isNumber(v) {
		return asInt(v)
	}
	s := strings.TrimSpace(textOf(v))
	if i, err := strconv.ParseInt(s, int(asInt(orDefault(a[1], int64(10)))), 64); err == nil {
		return i
	}
	if parsed, err := strconv.ParseFloat(s, 64); err == nil {
		f, isFloat = parsed, true
	}
	if isFloat && math.Abs(f) < 1<<62 {
		return int64(f)
	}
	return orDefault(a[0], int64(0))
}

func defaultTo(m *machine, v any, a []any) any {
	if isUndefined(v) || m.truth(orDefault(a[1], false)) && !m.truth(v) {
		return orDefault(a[0], "")
	}
	return v
}

func countItems(m *machine, v any, _ []any) any { return int64(m.length(v)) }

func endItem(last bool) builtinFunc {
	return func(m *machine, v any, _ []any) any {
		if l, ok := v.(*list); ok && last && l.kind == generator {
			fail("last is applied to a generator")
		}
		items := m.items(v)
		switch {
		case len(items) == 0:
			return undefined{"the sequence is empty"}
		case last:
			return items[len(items)-1]
		}
		return items[0]
	}
}

func dictItems(_ *machine, v any, _ []any) any {
	d, ok := v.(*Dict)
	switch {
	case isUndefined(v):
		d = newDict()
	case !ok:
		fail("items is applied to %s", describe(v))
	}
	return &list{kind: generator, items: d.pairs()}
}

func reversed(m *machine, v any, _ []any) any {
	if isText(v) {
		return m.slice(v, [3]any{nil, nil, int64(-1)})
	}
	items := m.copied(v)
	slices.Reverse(items)
	return &list{kind: generator, items: items}
}

func dictSort(m *machine, v any, a []any) any {
	d, ok := v.(*Dict)
	if !ok {
		fail("dictsort is applied to %s", describe(v))
	}
	column := int64(0)
	if orDefault(a[1], "key") == "value" {
		column = 1
	}
	return m.sorted(d.pairs(), a[0], a[2], column)
}

func (m *machine) sorted(items []any, exact, reverse, attribute any) *list {
	part, cased, backward := m.keyFunc(attribute), m.truth(orDefault(exact, false)), m.truth(orDefault(reverse, false))
	slices.SortStableFunc(items, func(a, b any) int {
		x, y := part(a), part(b)
		if !cased && isText(x) && isText(y) {
			m.spend((size(x) + size(y)) / 16)
			x, y = lower(asText(x)), lower(asText(y))
		}
		if backward {
			x, y = y, x
		}
		return order(m, x, y)
	})
	return &list{items: items}
}

func unique(m *machine, v any, a []any) any {
	result, seen, part := &list{kind: generator}, newDict(), m.keyFunc(a[1])
	for _, item := range m.copied(v) {
		k := part(item)
		if isText(k) && !m.truth(orDefault(a[0], false)) {
			k = m.made(lower(asText(k)))
		}
		if !seen.contains(k) {
			seen.put(k, nil)
			result.items = append(result.items, item)
		}
	}
	return result
}

func (m *machine) mapped(v any, a arguments) any {
	result := &list{kind: generator}
	if !m.truth(v) {
		return result
	}
	var apply func(item any) any
	if len(a.list) == 0 {
		attribute, fallback := a.named.pop("attribute", missing{}), a.named.pop("default", missing{})
		if !given(attribute) {
			fail("map has no filter and no attribute")
		}
		apply = func(item any) any {
			got := m.path(item, attribute)
			if isUndefined(got) {
				return orDefault(fallback, got)
			}
			return got
		}
	} else {
		f, ok := m.filters[textOf(a.list[0])]
		if !ok {
			fail("map has the filter %q, which is not known", textOf(a.list[0]))
		}
		apply = func(item any) any { return f.apply(m, item, a.rest()) }
	}
	for _, item := range m.copied(v) {
		result.items = append(result.items, apply(item))
	}
	return result
}

// selection returns the function that implements a filter. This filter is select or reject; if byAttribute is true, it
// is selectattr or rejectattr. The filter returns the items for which a test of the item, or of its attribute, returns
// want. If the filter has no test as an argument, the truth of the value is tested.
func selection(byAttribute, want bool) builtinFunc {
	return func(m *machine, v any, given []any) any {
		result, a := &list{kind: generator}, given[0].(arguments)
		if !m.truth(v) {
			return result
		}
		part := m.keyFunc(nil)
		if byAttribute {
			if len(a.list) == 0 {
				fail("the filter has no attribute")
			}
			part, a = m.keyFunc(a.list[0]), a.rest()
		}
		test := m.truth
		if len(a.list) > 0 {
			f, ok := tests[textOf(a.list[0])]
			if !ok {
				fail("the filter has the test %q, which is not known", textOf(a.list[0]))
			}
			test = func(v any) bool { return f.invoke(m, v, a.rest()) == true }
		}
		for _, item := range m.copied(v) {
			if test(part(item)) == want {
				result.items = append(result.items, item)
			}
		}
		return result
	}
}
