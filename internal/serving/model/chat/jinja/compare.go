package jinja

import (
	"cmp"
	"slices"
	"strings"
)

var comparisons = map[string]func(m *machine, a, b any) bool{
	"==": func(m *machine, a, b any) bool { return m.equal(a, b) },
	"!=": func(m *machine, a, b any) bool { return !m.equal(a, b) },
	"<":  func(m *machine, a, b any) bool { return order(m, a, b) < 0 },
	"<=": func(m *machine, a, b any) bool { return order(m, a, b) <= 0 },
	">":  func(m *machine, a, b any) bool { return order(m, a, b) > 0 },
	">=": func(m *machine, a, b any) bool { return order(m, a, b) >= 0 },
}

func (m *machine) equal(a, b any) (same bool) {
	m.spend(1)
	switch x := a.(type) {
	case undefined:
		_, same = b.(undefined)
		return same
	case *list:
		y, ok := b.(*list)
		if !ok || x.kind != y.kind || len(x.items) != len(y.items) {
			return false
		}
		same = true
		m.nested(func() {
			for i := 0; same && i < len(x.items); i++ {
				same = m.equal(x.items[i], y.items[i])
			}
		})
		return same
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		same = true
		m.nested(func() {
			for k, v := range x.values {
				same = same && y.has(k) && m.equal(v, y.values[k])
			}
		})
		return same
	}
	switch {
	case isText(a) && isText(b):
		m.spend(size(a) / 16)
		return m.plain(asText(a)) == m.plain(asText(b))
	case isNumber(a) && isNumber(b):
		return order(m, a, b) == 0
	}
	return a == b
}

// order compares a and b. It fails if they have no order.
func order(m *machine, a, b any) int {
	m.spend(1)
	x, ok := a.(*list)
	y, both := b.(*list)
	_, f := a.(float64)
	_, g := b.(float64)
	switch {
	case isText(a) && isText(b):
		m.spend(size(a) / 16)
		return cmp.Compare(m.plain(asText(a)), m.plain(asText(b)))
	case isNumber(a) && isNumber(b) && (f || g):
		return cmp.Compare(asFloat(a), asFloat(b))
	case isNumber(a) && isNumber(b):
		return cmp.Compare(asInt(a), asInt(b))
	case ok && both && x.kind == y.kind && (x.kind == "" || x.kind == tuple):
		result := cmp.Compare(len(x.items), len(y.items))
		m.nested(func() {
			for i := range min(len(x.items), len(y.items)) {
				if !m.equal(x.items[i], y.items[i]) {
					result = order(m, x.items[i], y.items[i])
					break
				}
			}
		})
		return result
	}
	defined(a)
	defined(b)
	fail("%s and %s have no order", describe(a), describe(b))
	return 0
}

func contains(m *machine, v, in any) bool {
	if isText(in) {
		m.spend(size(in) / 16)
		return strings.Contains(m.plain(asText(in)), m.plain(asText(v)))
	}
	if d, ok := in.(*Dict); ok {
		_, found := m.entry(d, v)
		return found
	}
	return slices.ContainsFunc(m.items(in), func(item any) bool { return m.equal(item, v) })
}
