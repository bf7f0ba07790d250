package jinja

import "strings"

// A builtin is a filter, a test, or a method.
type builtin struct {
	parameters string
	call       code
}

// code implements a builtin. v is the value it is applied to; a has the arguments in the order of the parameters. If
// parameters is raw, a has one element, the arguments as they were given.
type code func(m *machine, v any, a []any) any

const raw = "*"

// apply calls a filter or a method, and counts the work of reading its value.
func (b builtin) apply(m *machine, v any, a arguments) any {
	m.spend(size(v) / 16)
	return b.invoke(m, v, a)
}

// invoke calls a builtin and counts its result. It does not count the value: most tests read only its type, so that a
// long text costs them nothing.
func (b builtin) invoke(m *machine, v any, a arguments) any {
	m.spend(1)
	bound := []any{a}
	if b.parameters != raw {
		bound = a.bind(b.parameters)
	}
	return m.made(b.call(m, v, bound))
}

// Filters and tests, functions and variables, and methods of jinja2 and Python that this package does not support.
var (
	leftOut = strings.Fields("abs attr batch center filesizeformat forceescape groupby max min pprint random round slice " +
		"striptags sum truncate urlencode urlize wordcount wordwrap xmlattr escaped filter sameas test")
	functionsLeftOut = strings.Fields("cycler joiner lipsum self super")
	methodsLeftOut   = strings.Fields("casefold center count encode expandtabs format_map index isalnum isalpha " +
		"isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans " +
		"partition rfind rindex rjust rpartition swapcase translate zfill copy cycle changed")
)

var globals = map[string]any{
	"namespace": &function{call: func(m *machine, a arguments) any { return &namespace{dictOf(m, a)} }},
	"dict":      &function{call: func(m *machine, a arguments) any { return dictOf(m, a) }},
	"range":     &function{call: rangeOf},
}
