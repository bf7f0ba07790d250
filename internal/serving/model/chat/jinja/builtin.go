package jinja

import "strings"

type builtin struct {
	parameters string
	call       builtinFunc
}

// A builtinFunc implements a filter, a test or a method, which is applied to v. The slice a has one element for each
// parameter of the builtin, in their order. If the builtin's field parameters is the constant raw, the slice has one
// element: all arguments of the call, as a value of the type arguments.
type builtinFunc func(m *machine, v any, a []any) any

const raw = "*"

// apply calls a filter or a method. The time to read v grows with the size of v. apply therefore counts size(v)/16
// steps before the call. The machine stops with an error if a template takes too many steps.
func (b builtin) apply(m *machine, v any, a arguments) any {
	m.spend(size(v) / 16)
	return b.invoke(m, v, a)
}

// invoke calls a builtin. It counts one step of the machine for the call, and more steps for a larger result. It counts
// no steps for the size of v, because most tests read the type of v but not its contents.
func (b builtin) invoke(m *machine, v any, a arguments) any {
	m.spend(1)
	bound := []any{a}
	if b.parameters != raw {
		bound = a.bind(b.parameters)
	}
	return m.made(b.call(m, v, bound))
}

// Names that jinja2 or Python defines and this package does not support.
var (
	unsupportedNames = strings.Fields("abs attr batch center filesizeformat forceescape groupby max min pprint random round " +
		"slice striptags sum truncate urlencode urlize wordcount wordwrap xmlattr escaped filter sameas test")
	unsupportedFunctions = strings.Fields("cycler joiner lipsum self super")
	unsupportedMethods   = strings.Fields("casefold center count encode expandtabs format_map index isalnum isalpha " +
		"isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans " +
		"partition rfind rindex rjust rpartition swapcase translate zfill copy cycle changed")
)

var globals = map[string]any{
	"namespace": &function{call: func(m *machine, a arguments) any { return &namespace{dictOf(m, a)} }},
	"dict":      &function{call: func(m *machine, a arguments) any { return dictOf(m, a) }},
	"range":     &function{call: rangeOf},
}

var tests = map[string]builtin{
	"defined":   {"", typeTest(func(v any) bool { return !isUndefined(v) })},
	"undefined": {"", typeTest(isUndefined)},
	"none":      {"", typeTest(func(v any) bool { return v == nil })},
	"boolean":   {"", typeTest(func(v any) bool { _, ok := v.(bool); return ok })},
	"true":      {"", typeTest(func(v any) bool { return v == true })},
	"false":     {"", typeTest(func(v any) bool { return v == false })},
	"integer":   {"", typeTest(func(v any) bool { _, ok := v.(int64); return ok })},
	"float":     {"", typeTest(func(v any) bool { _, ok := v.(float64); return ok })},
	"number":    {"", typeTest(isNumber)},
	"string":    {"", typeTest(isText)},
	"mapping":   {"", typeTest(func(v any) bool { _, ok := v.(*Dict); return ok })},
	"callable":  {"", typeTest(func(v any) bool { _, ok := v.(*function); return ok })},
	"iterable":  {"", typeTest(isIterable)},
	"sequence":  {"", typeTest(isSequence)},
	"upper":     {"", inCase(upper, lower)},
	"lower":     {"", inCase(lower, upper)},

	"odd":         {"", divisible(2, 1)},
	"even":        {"", divisible(2, 0)},
	"divisibleby": {"num", func(m *machine, v any, a []any) any { return m.equal(remainder(m, v, a[0]), int64(0)) }},
	"in":          {"seq", func(m *machine, v any, a []any) any { return contains(m, v, a[0]) }},

	"==": {"other", compared("==")}, "eq": {"other", compared("==")}, "equalto": {"other", compared("==")},
	"!=": {"other", compared("!=")}, "ne": {"other", compared("!=")},
	"<": {"other", compared("<")}, "lt": {"other", compared("<")}, "lessthan": {"other", compared("<")},
	">": {"other", compared(">")}, "gt": {"other", compared(">")}, "greaterthan": {"other", compared(">")},
	"<=": {"other", compared("<=")}, "le": {"other", compared("<=")},
	">=": {"other", compared(">=")}, "ge": {"other", compared(">=")},
}

// typeTest returns a test that calls f. The time that f takes does not depend on the size of its value.
func typeTest(f func(v any) bool) builtinFunc {
	return func(_ *machine, v any, _ []any) any { return f(v) }
}

func compared(symbol string) builtinFunc {
	compare := comparisons[symbol]
	return func(m *machine, v any, a []any) any { return compare(m, v, a[0]) }
}

func inCase(convert, opposite func(string) string) builtinFunc {
	return func(m *machine, v any, _ []any) any {
		m.spend(size(v) / 16)
		s := textOf(v)
		return s == convert(s) && s != opposite(s)
	}
}

func divisible(divisor, rest int64) builtinFunc {
	return func(m *machine, v any, _ []any) any { return m.equal(remainder(m, v, divisor), rest) }
}

func isIterable(v any) bool {
	switch v.(type) {
	case undefined, *Dict, string, markup, *list, *loop:
		return true
	}
	return false
}

func isSequence(v any) bool {
	switch v := v.(type) {
	case *list:
		return v.indexed()
	case *loop:
		return false
	}
	return isIterable(v)
}
