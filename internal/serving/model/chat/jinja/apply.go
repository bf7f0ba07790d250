package jinja

import (
	"slices"
	"strings"
)

func (p *parser) postfix(e expr) expr {
	for n := 0; ; n++ {
		p.bounded(n)
		base := e
		switch {
		case p.skip(operator, "."):
			if t := p.take(); t.kind == number {
				e = func(s *scope) any { return s.m.item(base(s), t.value) }
			} else if t.kind == name {
				if slices.Contains(unsupportedMethods, t.text) && p.matches(operator, "(") {
					fail("the method %q is not supported in a chat template", t.text)
				}
				e = func(s *scope) any { return s.m.attribute(base(s), t.text) }
			} else {
				fail("%s is found where the name of an attribute is expected", t.text)
			}
		case p.skip(operator, "["):
			e = p.subscript(base)
		case p.matches(operator, "("):
			e = p.called(base)
		default:
			return e
		}
	}
}

func (p *parser) subscript(base expr) expr {
	var bounds [3]expr
	i, sliced := 0, false
	for ; !p.skip(operator, "]"); i++ {
		if i == len(bounds) {
			fail("a slice has more than 3 parts")
		}
		if !p.matches(operator, ":") && !p.matches(operator, "]") {
			bounds[i] = p.expression()
		}
		if !p.matches(operator, "]") {
			p.expect(operator, ":")
			sliced = true
		}
	}
	if sliced {
		return func(s *scope) any {
			var values [3]any
			v := base(s)
			for i, b := range bounds {
				if b != nil {
					values[i] = b(s)
				}
			}
			return s.m.slice(v, values)
		}
	}
	if bounds[0] == nil {
		fail("an index is missing")
	}
	return func(s *scope) any { v := base(s); return s.m.item(v, bounds[0](s)) }
}

func (p *parser) called(base expr) expr {
	p.expect(operator, "(")
	read := p.arguments()
	blocked := new(bool)
	p.last = blocked
	return func(s *scope) any {
		v, a := base(s), read(s)
		if *blocked {
			a.named.put("caller", s.vars[callerVariable])
		}
		return s.m.call(v, a)
	}
}

// filters parses the filters and tests that follow e. If first is true, the source continues with the name of a
// filter, without the sign |, as in {% filter upper %}.
func (p *parser) filters(e expr, first bool) expr {
	for n := 0; ; n++ {
		p.bounded(n)
		switch {
		case first || p.skip(operator, "|"):
			first = false
			e = p.applied("filter", p.dotted(), filters, e, nil)
		case p.skip(name, "is"):
			negated := p.skip(name, "not")
			title := p.dotted()
			var argument func(*scope) arguments
			next := p.peek()
			switch value := next.kind == name || next.kind == text || next.kind == number; {
			case p.matches(name, "is"):
				fail("tests follow each other; write them with and")
			case value && !slices.Contains([]string{"else", "or", "and"}, next.text) ||
				p.matches(operator, "[") || p.matches(operator, "{"):
				one := p.postfix(p.primary())
				argument = func(s *scope) arguments { return arguments{list: []any{one(s)}, named: newDict()} }
			}
			test := p.applied("test", title, tests, e, argument)
			e = func(s *scope) any { return test(s) == true != negated }
		case p.matches(operator, "("):
			e = p.called(e)
		default:
			return e
		}
	}
}

func (p *parser) dotted() string {
	title := p.name()
	for p.skip(operator, ".") {
		title += "." + p.name()
	}
	return title
}

// applied returns an expression that applies a filter or a test to the value of the expression e. kind is "filter" or
// "test". builtins has all filters or all tests, and builtinName is the name of the one that is applied. The function
// read evaluates the arguments. If read is nil, applied parses the arguments, which are in parentheses or missing.
func (p *parser) applied(
	kind, builtinName string, builtins map[string]builtin, e expr, read func(*scope) arguments,
) expr {
	if read == nil {
		read = func(*scope) arguments { return arguments{named: newDict()} }
		if p.skip(operator, "(") {
			read = p.arguments()
		}
	}
	f, ok := builtins[builtinName]
	switch {
	case !ok && slices.Contains(unsupportedNames, builtinName):
		fail("the %s %q is not supported in a chat template", kind, builtinName)
	case !ok && p.optional == 0:
		fail("there is no %s %q", kind, builtinName)
	case !ok: // an error only if it is evaluated, as in jinja2
		return func(*scope) any { fail("there is no %s %q", kind, builtinName); return nil }
	}
	apply := f.apply
	if kind == "test" {
		apply = f.invoke
	}
	return func(s *scope) any { v := e(s); return apply(s.m, v, read(s)) }
}

type arguments struct {
	list  []any
	named *Dict
}

// rest returns the arguments without the first positional one.
func (a arguments) rest() arguments {
	named := newDict()
	for _, k := range a.named.keys {
		named.put(k, a.named.values[k])
	}
	return arguments{a.list[1:], named}
}

func (a arguments) bind(parameters string) []any {
	names := strings.Fields(parameters)
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

// missing stands for an argument that is not given.
type missing struct{}

func given(v any) bool { return v != missing{} }

func orDefault(v, fallback any) any {
	if given(v) {
		return v
	}
	return fallback
}

func (p *parser) arguments() func(*scope) arguments {
	var items, values, spread []expr
	var titles []string
	p.several(")", func() expr {
		switch {
		case p.skip(operator, "*"):
			spread = append(spread, p.expression())
		case p.matches(operator, "**"):
			fail("** before an argument is not supported")
		case p.peek().kind == name && p.tokens[1].kind == operator && p.tokens[1].text == "=":
			titles = append(titles, p.name())
			p.take()
			values = append(values, p.expression())
		case titles != nil || spread != nil:
			fail("an argument without a name follows one with a name")
		default:
			items = append(items, p.expression())
		}
		return nil
	})
	return func(s *scope) arguments {
		a := arguments{list: each(s, items), named: newDict()}
		for _, e := range spread {
			a.list = append(a.list, s.m.items(e(s))...)
		}
		for i, title := range titles {
			a.named.put(title, values[i](s))
		}
		return a
	}
}
