package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

func isNumber(v any) bool {
	switch v.(type) {
	case bool, int64, float64:
		return true
	}
	return false
}

// asInt returns the value of a bool or an integer.
func asInt(v any) int64 {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case int64:
		return v
	}
	defined(v)
	fail("%s is found where an integer is expected", describe(v))
	return 0
}

func asFloat(v any) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	return float64(asInt(v))
}

var arithmetic = map[string]func(m *machine, a, b any) any{
	"+": add, "-": subtract, "*": multiply, "/": divide, "//": floorDivide, "%": remainder, "**": raise,
}

// numbers applies the operator symbol to two numbers. If both are integers, it calls ints; ints reports an overflow
// with false. If one is a float or ints is nil, it calls floats.
func numbers(symbol string, a, b any, ints func(x, y int64) (int64, bool), floats func(x, y float64) float64) any {
	if !isNumber(a) || !isNumber(b) {
		defined(a)
		defined(b)
		fail("%s %s %s is not defined", describe(a), symbol, describe(b))
	}
	_, f := a.(float64)
	_, g := b.(float64)
	if f || g || ints == nil {
		return floats(asFloat(a), asFloat(b))
	}
	z, ok := ints(asInt(a), asInt(b))
	if !ok {
		fail("the result of %s is too large", symbol)
	}
	return z
}

func add(m *machine, a, b any) any {
	x, ok := a.(*list)
	y, both := b.(*list)
	_, left := a.(markup)
	_, right := b.(markup)
	switch {
	case isText(a) && isText(b) && (left || right):
		return m.made(m.escape(a) + m.escape(b))
	case isText(a) && isText(b):
		return m.made(asText(a) + asText(b))
	case ok && both && x.kind == y.kind && (x.kind == "" || x.kind == tuple):
		m.spend(len(x.items) + len(y.items))
		return &list{kind: x.kind, items: slices.Concat(x.items, y.items)}
	}
	return numbers("+", a, b, func(x, y int64) (int64, bool) { return x + y, x+y > x == (y > 0) },
		func(x, y float64) float64 { return x + y })
}

func subtract(_ *machine, a, b any) any {
	return numbers("-", a, b, func(x, y int64) (int64, bool) { return x - y, x-y < x == (y > 0) },
		func(x, y float64) float64 { return x - y })
}

func multiply(m *machine, a, b any) any {
	if _, ok := b.(int64); !ok || isNumber(a) {
		a, b = b, a
	}
	n, counts := b.(int64)
	l, ok := a.(*list)
	switch {
	case counts && isText(a):
		return keepMarkup(a, m.repeat(asText(a), n))
	case counts && ok && (l.kind == "" || l.kind == tuple):
		n = max(n, 0)
		m.spend(int(min(n, maxSteps)) * (1 + len(l.items)))
		return &list{kind: l.kind, items: slices.Repeat(l.items, int(n))}
	}
	return numbers("*", a, b, product, func(x, y float64) float64 { return x * y })
}

func nonzero(v any) {
	if isNumber(v) && asFloat(v) == 0 {
		fail("division by zero")
	}
}

func divide(_ *machine, a, b any) any {
	nonzero(b)
	return numbers("/", a, b, nil, func(x, y float64) float64 { return x / y })
}

func floorDivide(_ *machine, a, b any) any {
	nonzero(b)
	return numbers("//", a, b, func(x, y int64) (int64, bool) { return (x - modulo(x, y)) / y, x != math.MinInt64 },
		func(x, y float64) float64 { return math.Floor(x / y) })
}

func modulo(x, y int64) int64 {
	z := x % y
	if z != 0 && z < 0 != (y < 0) {
		z += y
	}
	return z
}

func remainder(m *machine, a, b any) any {
	if isText(a) {
		values := []any{b}
		if l, ok := b.(*list); ok && l.kind == tuple {
			values = l.items
		}
		return m.made(m.format(asText(a), values))
	}
	nonzero(b)
	return numbers("%", a, b, func(x, y int64) (int64, bool) { return modulo(x, y), true },
		func(x, y float64) float64 {
			z := math.Mod(x, y)
			if z != 0 && z < 0 != (y < 0) {
				return z + y
			}
			return math.Copysign(z, y)
		})
}

func raise(_ *machine, a, b any) any {
	n, ok := b.(int64)
	if !ok || n < 0 {
		return numbers("**", a, b, nil, math.Pow)
	}
	return numbers("**", a, b, func(x, _ int64) (z int64, ok bool) {
		for z, ok = 1, n <= 64 || x*x <= 1; ok && n > 0; n-- {
			z, ok = product(z, x)
		}
		return z, ok
	}, math.Pow)
}

func product(x, y int64) (int64, bool) {
	z := x * y
	return z, x == 0 || z/x == y && (x != -1 || y != math.MinInt64)
}

var comparisons = map[string]func(m *machine, a, b any) bool{
	"==": func(m *machine, a, b any) bool { return m.equal(a, b) },
	"!=": func(m *machine, a, b any) bool { return !m.equal(a, b) },
	"<":  func(m *machine, a, b any) bool { return order(m, a, b) < 0 },
	"<=": func(m *machine, a, b any) bool { return order(m, a, b) <= 0 },
	">":  func(m *machine, a, b any) bool { return order(m, a, b) > 0 },
	">=": func(m *machine, a, b any) bool { return order(m, a, b) >= 0 },
}

func (m *machine) equal(a, b any) (result bool) {
	m.spend(1)
	switch x := a.(type) {
	case undefined:
		_, result = b.(undefined)
		return result
	case *list:
		y, ok := b.(*list)
		if !ok || x.kind != y.kind || len(x.items) != len(y.items) {
			return false
		}
		result = true
		m.nested(func() {
			for i := 0; result && i < len(x.items); i++ {
				result = m.equal(x.items[i], y.items[i])
			}
		})
		return result
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		result = true
		m.nested(func() {
			for k, v := range x.values {
				result = result && y.contains(k) && m.equal(v, y.values[k])
			}
		})
		return result
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

// order compares a and b as Python does. It fails if a template compares values that have no order, such as a text
// and a number.
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

func contains(m *machine, v, container any) bool {
	if isText(container) {
		m.spend(size(container) / 16)
		return strings.Contains(m.plain(asText(container)), m.plain(asText(v)))
	}
	if d, ok := container.(*Dict); ok {
		_, found := m.entry(d, v)
		return found
	}
	return slices.ContainsFunc(m.items(container), func(item any) bool { return m.equal(item, v) })
}
