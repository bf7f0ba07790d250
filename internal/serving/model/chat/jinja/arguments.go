package jinja

import (
	"slices"
	"strings"
)

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

func or(v, other any) any {
	if given(v) {
		return v
	}
	return other
}

// arguments parses the arguments of a call, with their parentheses.
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
