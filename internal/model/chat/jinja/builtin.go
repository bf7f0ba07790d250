package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// A builtin is a filter, a test, or a method of a value.
type builtin func(m *machine, v any, a arguments) any

// missing is an argument that is not given.
type missing struct{}

func given(v any) bool { return v != missing{} }

// with makes a builtin of a function that has its arguments by the names of the parameters.
func with(parameters string, f func(m *machine, v any, a []any) any) builtin {
	names := strings.Fields(parameters)
	return func(m *machine, v any, a arguments) any { return f(m, v, a.bind(names)) }
}

func (a arguments) bind(names []string) []any {
	if len(a.list) > len(names) {
		fail("%d arguments are given where at most %d are taken", len(a.list), len(names))
	}
	bound := slices.Clone(a.list)
	for _, n := range names[len(a.list):] {
		bound = append(bound, a.named.pop(n, missing{}))
	}
	if len(a.named.keys) > 0 {
		fail("there is no argument %q", a.named.keys[0])
	}
	return bound
}

func or(v, other any) any {
	if given(v) {
		return v
	}
	return other
}

// leftOut are jinja2's filters and tests that this package does not have.
var leftOut = strings.Fields("abs attr batch center filesizeformat forceescape groupby max min pprint random round slice " +
	"striptags sum truncate urlencode urlize wordcount wordwrap xmlattr escaped filter sameas test")

// functionsLeftOut are jinja2's functions and variables that this package does not have.
var functionsLeftOut = []string{"cycler", "joiner", "lipsum", "self", "super"}

// methodsLeftOut are Python's methods that this package does not have.
var methodsLeftOut = strings.Fields("casefold center count encode expandtabs format_map index isalnum isalpha " +
	"isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans partition " +
	"removeprefix removesuffix rfind rindex rjust rpartition swapcase translate zfill copy cycle changed")

var globals = map[string]any{
	"namespace": &function{call: func(m *machine, a arguments) any { return &namespace{dictOf(m, a)} }},
	"dict":      &function{call: func(m *machine, a arguments) any { return dictOf(m, a) }},
	"range": &function{call: func(m *machine, a arguments) any {
		at := a.bind([]string{"start", "stop", "step"})
		from, step := int64(0), int64(1)
		to := asInt(at[0])
		if given(at[1]) {
			from, to = to, asInt(at[1])
		}
		l := &list{kind: "range", shown: "range(" + strconv.FormatInt(from, 10) + ", " + strconv.FormatInt(to, 10) + ")"}
		if given(at[2]) {
			step = asInt(at[2])
			l.shown = strings.TrimSuffix(l.shown, ")") + ", " + strconv.FormatInt(step, 10) + ")"
		}
		if step == 0 {
			fail("the step of a range is 0")
		}
		for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
			if len(l.items) == maxRange {
				fail("a range has more than %d elements", maxRange)
			}
			l.items = append(l.items, i)
			if step > maxRange*maxRange || step < -maxRange*maxRange { // i must not overflow
				break
			}
		}
		m.spend(len(l.items))
		return l
	}},
}

// dictOf is dict() of its arguments.
func dictOf(m *machine, a arguments) *Dict {
	d := newDict()
	if len(a.list) > 1 {
		fail("dict has more than one argument without a name")
	}
	for _, from := range a.list {
		if of, ok := from.(*Dict); ok {
			from = &list{items: of.pairs()}
		}
		for _, pair := range m.items(from) {
			both := m.items(pair)
			if len(both) != 2 {
				fail("dict is made of what is no pair")
			}
			d.put(both[0], both[1])
		}
	}
	for _, k := range a.named.keys {
		d.put(k, a.named.values[k])
	}
	m.spend(len(d.keys))
	return d
}

var loopAttributes = map[string]func(l *loop) any{
	"index":     func(l *loop) any { return int64(l.index + 1) },
	"index0":    func(l *loop) any { return int64(l.index) },
	"revindex":  func(l *loop) any { return int64(len(l.items) - l.index) },
	"revindex0": func(l *loop) any { return int64(len(l.items) - l.index - 1) },
	"first":     func(l *loop) any { return l.index == 0 },
	"last":      func(l *loop) any { return l.index == len(l.items)-1 },
	"length":    func(l *loop) any { return int64(len(l.items)) },
	"previtem":  func(l *loop) any { return l.at(l.index - 1) },
	"nextitem":  func(l *loop) any { return l.at(l.index + 1) },
}

func (l *loop) at(i int) any {
	if i < 0 || i >= len(l.items) {
		return undefined{"there is no item before the first or after the last"}
	}
	return l.items[i]
}

var tests map[string]builtin

func init() {
	is := func(f func(v any) bool) builtin {
		return with("", func(_ *machine, v any, _ []any) any { return f(v) })
	}
	compare := func(symbol string) builtin {
		return with("other", func(m *machine, v any, a []any) any { return comparisons[symbol](m, v, a[0]) })
	}
	divisible := func(by int64, rest int64) builtin {
		return with("", func(m *machine, v any, _ []any) any { return m.equal(remainder(m, v, by), rest) })
	}

	tests = map[string]builtin{
		"defined":   is(func(v any) bool { _, not := v.(undefined); return !not }),
		"undefined": is(func(v any) bool { _, not := v.(undefined); return not }),
		"none":      is(func(v any) bool { return v == nil }),
		"boolean":   is(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      is(func(v any) bool { return v == true }),
		"false":     is(func(v any) bool { return v == false }),
		"integer":   is(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":     is(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    is(isNumber),
		"string":    is(isText),
		"mapping":   is(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"sequence": is(func(v any) bool {
			switch v := v.(type) {
			case undefined, *Dict, string, markup:
				return true
			case *list:
				return v.kind == "" || v.kind == tuple || v.shown != ""
			}
			return false
		}),
		"iterable": is(func(v any) bool {
			switch v.(type) {
			case undefined, *Dict, string, markup, *list, *loop:
				return true
			}
			return false
		}),
		"callable": is(func(v any) bool { _, ok := v.(*function); return ok }),
		"odd":      divisible(2, 1),
		"even":     divisible(2, 0),
		"divisibleby": with("num", func(m *machine, v any, a []any) any {
			return m.equal(remainder(m, v, a[0]), int64(0))
		}),
		"upper": is(func(v any) bool { s := shown(v); return s == upper(s) && s != lower(s) }),
		"lower": is(func(v any) bool { s := shown(v); return s == lower(s) && s != upper(s) }),
		"in":    with("seq", func(m *machine, v any, a []any) any { return contains(m, v, a[0]) }),
	}
	for symbol, titles := range map[string][]string{"==": {"eq", "equalto"}, "!=": {"ne"}, "<": {"lt", "lessthan"},
		"<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}} {
		tests[symbol] = compare(symbol)
		for _, title := range titles {
			tests[title] = compare(symbol)
		}
	}
}

func shown(v any) string {
	if isText(v) {
		return raw(v)
	}
	return ""
}

// repeat makes n times s.
func (m *machine) repeat(s string, n int64) string {
	n = max(n, 0)
	m.spend(int(min(n, maxSteps)))
	return strings.Repeat(s, int(n))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escape is the text of a value in HTML.
func escape(v any) string {
	if s, ok := v.(markup); ok {
		return string(s)
	}
	return escaper.Replace(raw(v))
}
