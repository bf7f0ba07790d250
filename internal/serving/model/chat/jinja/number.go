package jinja

import (
	"math"
	"slices"
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

// numbers applies ints to two integers, or floats if one operand is a float or ints is nil.
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

// modulo returns x modulo y with the sign of y.
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
