// Package jinja renders chat templates as Python's jinja2 does in Hugging Face's transformers: with trim_blocks and
// lstrip_blocks, in its immutable sandbox. It also has transformers' tojson, loop controls and generation tag. It
// implements only the part of the language that chat templates use. It does not load other templates. It lacks
// autoescape and some filters, functions and methods. If a template uses one of these, Parse returns an error with its
// name. A template is not trusted: it cannot read files, and its work is limited.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/model/marks"
)

const (
	maxSteps = 1 << 23 // limit of steps of a Render; see NewMeter
	round    = 32      // steps that an iteration of a loop or a call of a macro costs, because it makes a scope
	maxDepth = 200     // nesting of calls of macros, of values, and of expressions and statements
	maxChain = 500     // operators, attributes or filters in a row
	maxRange = 100000  // elements of a range, as in jinja2's sandbox
)

// NewMeter returns a meter for one RenderTo. A unit of work is a step: for example a token evaluated, an element made, or
// 16 bytes of text made or read.
func NewMeter(ctx context.Context) *meter.Meter {
	return meter.New(ctx, meter.Limits{Work: maxSteps, Depth: maxDepth})
}

// A Template is safe for concurrent use.
type Template struct{ body block }

// A Function is a variable that a template can call.
type Function func(args []any) (any, error)

// A failure is what fail panics with. Parse and Render recover it and return its error.
type failure struct{ err error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func caught(err *error, line *int) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = fmt.Errorf("line %d: %w", *line, p.err)
	default:
		panic(p)
	}
}

// Parse parses a template.
func Parse(source string) (t *Template, err error) {
	p := &parser{line: 1, used: map[string]bool{}}
	defer caught(&err, &p.line)
	p.tokens = scan(source, &p.line)
	p.line = 1
	return &Template{p.statements("")}, nil
}

// Render renders a template. A variable may have the type nil, bool, int, int64, float64, string, []any,
// map[string]any or Function, or a type that FromJSON returns.
func (t *Template) Render(variables map[string]any) (string, error) {
	var text strings.Builder
	err := t.RenderTo(NewMeter(context.Background()), func(piece string) error {
		text.WriteString(piece)
		return nil
	}, variables, nil)
	return text.String(), err
}

// RenderTo passes the rendered text to write piece by piece. If write or the meter returns an error, RenderTo stops and
// wraps it.
//
// The caller may have replaced characters by marks in the texts of the variables. It then passes these marks as mk. The
// template's operations treat a mark as the character that it replaces. The rendered text keeps the marks.
func (t *Template) RenderTo(
	work *meter.Meter, write func(piece string) error, variables map[string]any, mk *marks.Marks,
) (err error) {
	m := &machine{line: 1, meter: work, output: write, marks: mk, filters: filters}
	defer caught(&err, &m.line)
	s := &scope{m: m, vars: maps.Clone(globals)}
	for name, v := range variables {
		s.vars[name] = m.value(v)
	}
	t.body.run(&scope{m: m, vars: map[string]any{}, outer: s})
	return nil
}

// A machine is the state of one Render.
type machine struct {
	line    int
	meter   *meter.Meter
	filters map[string]builtin // for the filter map, because the table cannot refer to itself
	output  func(piece string) error
	capture *strings.Builder // captures the output; if nil, it goes to the field output
	marks   *marks.Marks
}

// spend charges steps.
func (m *machine) spend(n int) {
	if err := m.meter.Spend(n); errors.Is(err, meter.ErrTooLarge) {
		fail("the template does %w; it is meant to loop over messages only", err)
	} else if err != nil {
		panic(failure{err})
	}
}

// made counts a new value, and returns it.
func (m *machine) made(v any) any {
	n := size(v)
	if isText(v) {
		n = 1 + n/16
	}
	m.spend(n)
	return v
}

// size returns the number of bytes of a text, or the number of elements of a list or dict. It returns 0 for other
// values. The machine counts more steps for a larger size, because reading such a value takes longer.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case markup:
		return len(v)
	case *list:
		return len(v.items)
	case *Dict:
		return len(v.keys)
	}
	return 0
}

func (m *machine) nested(f func()) {
	if err := m.meter.Enter(); errors.Is(err, meter.ErrTooLarge) {
		fail("macros, loops or values are %w", err)
	} else if err != nil {
		panic(failure{err})
	}
	f()
	m.meter.Leave()
}

func (m *machine) captured(f func()) string {
	outer := m.capture
	m.capture = new(strings.Builder)
	f()
	text := m.capture.String()
	m.capture = outer
	return text
}

// A scope has the variables that a template, a macro or an iteration of a loop has set, and the scope around it.
type scope struct {
	m     *machine
	vars  map[string]any
	outer *scope
}

func (s *scope) inner() *scope { return &scope{m: s.m, vars: map[string]any{}, outer: s} }

func (s *scope) lookup(name string) any {
	for current := s; current != nil; current = current.outer {
		if v, ok := current.vars[name]; ok {
			return v
		}
	}
	return undefined{fmt.Sprintf("%q is undefined", name)}
}

type (
	expr  func(*scope) any
	stmt  func(*scope) flow
	block []stmt
	flow  int // how a statement ends
)

const (
	next flow = iota
	breaks
	continues
)

func (b block) run(s *scope) flow {
	for _, st := range b {
		if f := st(s); f != next {
			return f
		}
	}
	return next
}

func (m *machine) write(s string) {
	m.spend(1 + len(s)/16)
	if m.capture == nil {
		if err := m.output(s); err != nil {
			panic(failure{err})
		}
		return
	}
	m.capture.WriteString(s)
}
