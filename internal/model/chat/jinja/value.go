package jinja

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Values are nil (None), bool, int64, float64, string, and these.
type (
	undefined struct{ why string }
	markup    string // text that the filters safe and escape made, to which + adds escaped text
	// A list is a Python list, tuple, view of a dict, range or generator.
	list struct {
		kind  string // "" is a list
		items []any
		shown string // str() of a range
	}
	// A Dict keeps the order of its keys.
	Dict struct {
		keys   []any
		values map[any]any
	}
	namespace struct{ *Dict }
	function  struct {
		name string
		call func(*machine, arguments) any
	}
	loop struct {
		items []any
		index int
	}
)

const (
	tuple     = "tuple"
	generator = "generator"
)

func newDict() *Dict { return &Dict{values: map[any]any{}} }

// key is what a key of a dict is equal to.
func key(k any) any {
	switch k := k.(type) {
	case markup:
		return string(k)
	case bool:
		return asInt(k)
	case float64:
		if i := int64(k); float64(i) == k {
			return i
		}
	case nil, int64, string:
	default:
		fail("%s is not supported as a key", describe(k))
	}
	return k
}

func (d *Dict) put(k, v any) {
	if _, ok := d.values[key(k)]; !ok {
		d.keys = append(d.keys, k)
	}
	d.values[key(k)] = v
}

// Get returns the value of a key that is a text, or nil.
func (d *Dict) Get(k string) any { return d.values[k] }

// Set sets the value of a key that is a text to what FromJSON returned.
func (d *Dict) Set(k string, v any) { d.put(k, v) }

func (d *Dict) has(k any) bool { _, ok := d.values[key(k)]; return ok }

// pop takes a value out, or returns other.
func (d *Dict) pop(k string, other any) any {
	if !d.has(k) {
		return other
	}
	v := d.values[k]
	delete(d.values, k)
	d.keys = slices.DeleteFunc(d.keys, func(is any) bool { return is == k })
	return v
}

func (d *Dict) pairs() (items []any) {
	for _, k := range d.keys {
		items = append(items, &list{kind: tuple, items: []any{k, d.values[key(k)]}})
	}
	return items
}

// all are the values.
func (d *Dict) all() (values []any) {
	for _, k := range d.keys {
		values = append(values, d.values[key(k)])
	}
	return values
}

// indexed reports whether a list has elements by number: generators and views of a dict have none.
func (l *list) indexed() bool { return l.kind == "" || l.kind == tuple || l.shown != "" }

// value converts a variable of Render.
func (m *machine) value(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, *Dict, *list:
		return v
	case int:
		return int64(v)
	case Function:
		return &function{call: func(m *machine, a arguments) any {
			result, err := v(a.list)
			if err != nil {
				panic(failure{err})
			}
			return m.value(result)
		}}
	case []any:
		l := &list{}
		for _, item := range v {
			l.items = append(l.items, m.value(item))
		}
		return l
	case map[string]any:
		d := newDict()
		for k, item := range v {
			d.put(k, m.value(item))
		}
		slices.SortFunc(d.keys, func(a, b any) int { return cmp.Compare(asText(a), asText(b)) })
		return d
	}
	fail("a variable has the type %T", v)
	return nil
}

// describe names a value in an error.
func describe(v any) string {
	switch v := v.(type) {
	case undefined:
		return "an undefined value (" + v.why + ")"
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64:
		return "an int"
	case float64:
		return "a float"
	case string, markup:
		return "a str"
	case *list:
		return "a " + cmp.Or(v.kind, "list")
	case *Dict:
		return "a dict"
	case *namespace:
		return "a namespace"
	}
	return "a function"
}

// defined fails for what is not defined.
func defined(v any) {
	if u, ok := v.(undefined); ok {
		fail("%s", u.why)
	}
}

func (m *machine) truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string, markup:
		return textOf(v) != ""
	case *list:
		return v.kind == generator || len(v.items) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// items are what a loop over a value gives.
func (m *machine) items(v any) (items []any) {
	switch v := v.(type) {
	case undefined:
	case *list:
		items = v.items
		if v.kind == generator { // it gives them once
			v.items = nil
		}
	case *Dict:
		items = v.keys
	case string, markup:
		m.spend(size(v))
		for _, r := range textOf(v) {
			items = append(items, string(r))
		}
	case *loop:
		items = v.items
	default:
		fail("%s cannot be looped over", describe(v))
	}
	return items
}

// length is len().
func (m *machine) length(v any) int {
	switch v := v.(type) {
	case undefined:
		return 0
	case string, markup:
		m.spend(size(v) / 16)
		return utf8.RuneCountInString(textOf(v))
	case *list:
		if v.kind != generator {
			return len(v.items)
		}
	case *Dict:
		return len(v.keys)
	}
	fail("%s has no length", describe(v))
	return 0
}

// asText is a string.
func asText(v any) string {
	if !isText(v) {
		defined(v)
		fail("%s is found where a string is expected", describe(v))
	}
	return textOf(v)
}

// textOf is a string, or "".
func textOf(v any) string {
	if s, ok := v.(markup); ok {
		return string(s)
	}
	s, _ := v.(string)
	return s
}

func isText(v any) bool {
	switch v.(type) {
	case string, markup:
		return true
	}
	return false
}

func isNumber(v any) bool {
	switch v.(type) {
	case bool, int64, float64:
		return true
	}
	return false
}

// asInt is a bool or an integer.
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

func (m *machine) write(s string) {
	m.spend(1 + len(s)/16)
	if m.out == nil {
		m.give(s)
		return
	}
	m.out.WriteString(s)
}

// str is str() of a value.
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

// shown shows items between brackets.
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

// quote is repr() of a string.
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

func (m *machine) call(v any, a arguments) any {
	m.spend(1)
	if f, ok := v.(*function); ok {
		return f.call(m, a)
	}
	defined(v)
	fail("%s cannot be called", describe(v))
	return nil
}

// attribute is v.name.
func (m *machine) attribute(v any, name string) any {
	defined(v)
	var methods map[string]builtin
	switch v := v.(type) {
	case *Dict:
		methods = dictMethods
		if _, method := methods[name]; !method && v.has(name) {
			return v.values[name]
		}
	case *namespace:
		if v.has(name) {
			return v.values[name]
		}
	case *loop:
		if f := loopAttributes[name]; f != nil {
			return f(v)
		}
	case *function:
		if name == "name" && v.name != "" {
			return v.name
		}
	case string, markup:
		methods = textMethods
	}
	if f := methods[name]; f.call != nil {
		return &function{call: func(m *machine, a arguments) any { return f.apply(m, v, a) }}
	}
	return undefined{fmt.Sprintf("%s has no attribute %q that a template may use", describe(v), name)}
}

// entry is the value of a key, which may be marked where that of the dict is not.
func (m *machine) entry(d *Dict, k any) (v any, ok bool) {
	if !d.has(k) && isText(k) {
		k = m.plain(textOf(k))
	}
	return d.values[key(k)], d.has(k)
}

// item is v[k].
func (m *machine) item(v, k any) any {
	defined(v)
	if d, ok := v.(*Dict); ok && (k == nil || isNumber(k) || isText(k)) {
		if value, found := m.entry(d, k); found {
			return value
		}
	}
	switch k.(type) {
	case string, markup:
		return m.attribute(v, asText(k))
	case bool, int64:
		l, ok := v.(*list)
		letters, at := m.letters(v), asInt(k)
		n := len(letters)
		if ok = ok && l.indexed(); ok {
			n = len(l.items)
		}
		if at < 0 {
			at += int64(n)
		}
		switch {
		case at < 0 || at >= int64(n):
		case ok:
			return l.items[at]
		default:
			return string(letters[at])
		}
	}
	return undefined{fmt.Sprintf("%s has no element %s", describe(v), m.repr(k))}
}

// letters are those of a text.
func (m *machine) letters(v any) []rune {
	if !isText(v) {
		return nil
	}
	m.made(v)
	return []rune(textOf(v))
}

// like makes a text of the kind of another.
func like(v any, s string) any {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

// slice is v[from:to:step].
func (m *machine) slice(v any, at [3]any) any {
	l, ok := v.(*list)
	if !isText(v) && (!ok || l.kind != "" && l.kind != tuple) {
		defined(v)
		return undefined{describe(v) + " has no slices"}
	}
	letters, step := m.letters(v), int64(1)
	n := int64(len(letters))
	if ok {
		n = int64(len(l.items))
	}
	if at[2] != nil {
		step = asInt(at[2])
	}
	if step == 0 {
		fail("the step of a slice is 0")
	}
	low, high := int64(0), n // where from and to may be
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(v any, other int64) int64 {
		if v == nil {
			return other
		}
		i := asInt(v)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	from, to := bound(at[0], low), bound(at[1], high)
	if step < 0 {
		from, to = bound(at[0], high), bound(at[1], low)
	}
	var some []any
	var text strings.Builder
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if ok {
			some = append(some, l.items[i])
		} else {
			text.WriteRune(letters[i])
		}
		if step > n || -step > n {
			break
		}
	}
	m.spend(len(some))
	if ok {
		return &list{kind: l.kind, items: some}
	}
	return like(v, text.String())
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

// order compares values that have an order.
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

var comparisons = map[string]func(m *machine, a, b any) bool{
	"==": func(m *machine, a, b any) bool { return m.equal(a, b) },
	"!=": func(m *machine, a, b any) bool { return !m.equal(a, b) },
	"<":  func(m *machine, a, b any) bool { return order(m, a, b) < 0 },
	"<=": func(m *machine, a, b any) bool { return order(m, a, b) <= 0 },
	">":  func(m *machine, a, b any) bool { return order(m, a, b) > 0 },
	">=": func(m *machine, a, b any) bool { return order(m, a, b) >= 0 },
}

var arithmetic = map[string]func(m *machine, a, b any) any{
	"+": add, "-": subtract, "*": multiply, "/": divide, "//": floorDivide, "%": remainder, "**": raise,
}

// numbers computes with integers, or with floats.
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
		fail("the result of %s is larger than is supported", symbol)
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
		return like(a, m.repeat(asText(a), n))
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

// modulo is x % y with the sign of y.
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
