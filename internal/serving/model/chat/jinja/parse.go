package jinja

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A parser compiles tokens to functions.
type parser struct {
	tokens   []token
	line     int
	depth    int             // nesting of expressions and statements
	loops    int             // loops around the statement
	optional int             // ifs around the expression; in an if, unknown filters and tests are allowed, as in jinja2
	used     map[string]bool // names that the template or the macro reads
	last     *bool           // set to true by a call block, to make the call that was parsed last pass the block
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) take() token {
	t := p.tokens[0]
	if t.kind != end {
		p.tokens = p.tokens[1:]
	}
	p.line = t.line
	return t
}

func (p *parser) matches(k kind, text string) bool {
	return p.tokens[0].kind == k && p.tokens[0].text == text
}

func (p *parser) skip(k kind, text string) bool {
	if p.matches(k, text) {
		p.take()
		return true
	}
	return false
}

func (p *parser) expect(k kind, text string) {
	if !p.skip(k, text) {
		p.line = p.peek().line
		fail("%s is found where %s is expected", p.peek().text, text)
	}
}

func (p *parser) name() string {
	t := p.take()
	if t.kind != name {
		fail("%s is found where a name is expected", t.text)
	}
	return t.text
}

func (p *parser) closed() { p.expect(closing, "the end of the tag") }

func (p *parser) deeper() {
	if p.depth++; p.depth > maxDepth {
		fail("expressions or statements are nested more than %d deep", maxDepth)
	}
}

// statements parses statements up to a tag whose name is in ends. It does not read this name, so that the caller can.
// The name "" in ends means the end of the template.
func (p *parser) statements(ends ...string) (b block) {
	p.deeper()
	defer func() { p.depth-- }()
	for {
		t := p.take()
		switch {
		case t.kind == data:
			b = append(b, func(s *scope) flow { s.m.write(t.text); return next })
		case t.kind == output:
			e := p.tuple(true)
			p.closed()
			b = append(b, t.atLine(func(s *scope) flow { s.m.write(s.m.str(e(s))); return next }))
		case t.kind == tag && slices.Contains(ends, p.peek().text):
			return b
		case t.kind == tag:
			b = append(b, t.atLine(p.statement()))
		case t.kind == end && slices.Contains(ends, ""):
			return b
		default:
			fail("%s is found where %s is expected", t.text, strings.Join(ends, " or "))
		}
	}
}

// atLine returns st as a statement on the line of t. The statement first sets the machine's line for errors and counts
// a step of the machine. Then it runs st.
func (t token) atLine(st stmt) stmt {
	return func(s *scope) flow {
		s.m.line = t.line
		s.m.spend(1)
		return st(s)
	}
}

func (p *parser) statement() stmt {
	switch tag := p.name(); tag {
	case "if":
		return p.ifs()
	case "for":
		return p.loop()
	case "set":
		return p.set()
	case "macro":
		title := p.name()
		macro := p.macro(title, p.parameters(), "endmacro")
		return func(s *scope) flow { s.vars[title] = macro(s); return next }
	case "call":
		return p.call()
	case "filter":
		filtered := p.filters(bodyOf, true)
		p.closed()
		body := p.bodyUntil("endfilter")
		return func(s *scope) flow { s.m.write(s.m.str(filtered(body.captured(s)))); return next }
	case "generation":
		p.closed()
		body := p.bodyUntil("endgeneration")
		return func(s *scope) flow { return body.run(s.inner()) }
	case "break", "continue":
		p.closed()
		if p.loops == 0 {
			fail("%s is outside of a loop", tag)
		}
		result := map[string]flow{"break": breaks, "continue": continues}[tag]
		return func(*scope) flow { return result }
	default:
		fail("the tag %q is not supported in a chat template", tag)
		return nil
	}
}

// bodyUntil parses the statements before a tag with the given name, such as endfilter, and then this tag. A break or
// continue in these statements cannot refer to a loop outside of them.
func (p *parser) bodyUntil(name string) block {
	outer := p.loops
	p.loops = 0
	b := p.statements(name)
	p.take()
	p.closed()
	p.loops = outer
	return b
}

func (p *parser) ifs() stmt {
	type branch struct {
		test expr
		body block
	}
	var branches []branch
	p.optional++
	for tag := "if"; ; {
		b := branch{test: func(*scope) any { return true }}
		if tag != "else" {
			b.test = p.tuple(false)
		}
		p.closed()
		if tag == "else" {
			b.body = p.statements("endif")
		} else {
			b.body = p.statements("elif", "else", "endif")
		}
		branches = append(branches, b)
		if tag = p.name(); tag == "endif" {
			break
		}
	}
	p.optional--
	p.closed()
	return func(s *scope) flow {
		for _, b := range branches {
			s.m.spend(1)
			if s.m.truth(b.test(s)) {
				return b.body.run(s)
			}
		}
		return next
	}
}

func (p *parser) loop() stmt {
	target := p.target(true)
	p.expect(name, "in")
	items := p.tuple(false)
	var test expr
	if p.skip(name, "if") {
		test = p.expression()
	}
	p.closed()
	p.loops++
	body := p.statements("endfor", "else")
	p.loops--
	var otherwise block
	if p.name() == "else" {
		p.closed()
		otherwise = p.statements("endfor")
		p.take()
	}
	p.closed()
	return func(s *scope) flow {
		list := s.m.items(items(s))
		if test != nil {
			all := list
			list = nil
			for _, v := range all {
				inner := s.inner()
				target(inner, v)
				s.m.spend(round)
				if s.m.truth(test(inner)) {
					list = append(list, v)
				}
			}
		}
		l := &loop{items: list}
		for l.index = range list {
			s.m.spend(round)
			inner := s.inner()
			inner.vars["loop"] = l
			target(inner, list[l.index])
			if body.run(inner) == breaks {
				break
			}
		}
		if len(list) == 0 {
			return otherwise.run(s.inner())
		}
		return next
	}
}

// target parses the target of an assignment: one or more variables. Unless onlyNames is true, the target may also
// be an attribute of a namespace.
func (p *parser) target(onlyNames bool) func(*scope, any) {
	var targets []func(*scope, any)
	several := false
	for {
		if p.skip(operator, "(") {
			p.deeper()
			targets = append(targets, p.target(onlyNames))
			p.depth--
			p.expect(operator, ")")
		} else {
			variable := p.name()
			set := func(s *scope, v any) { s.vars[variable] = v }
			if !onlyNames && p.skip(operator, ".") {
				attribute := p.name()
				set = func(s *scope, v any) {
					n, ok := s.lookup(variable).(*namespace)
					if !ok {
						fail("%s.%s cannot be set: %s is not a namespace", variable, attribute, variable)
					}
					n.put(attribute, v)
				}
			}
			targets = append(targets, set)
		}
		if !p.skip(operator, ",") {
			break
		}
		if several = true; p.peek().kind != name && !p.matches(operator, "(") {
			break
		}
	}
	if !several {
		return targets[0]
	}
	return func(s *scope, v any) {
		values := s.m.items(v)
		if len(values) != len(targets) {
			fail("%d values are set to %d names", len(values), len(targets))
		}
		for i, set := range targets {
			set(s, values[i])
		}
	}
}

func (p *parser) set() stmt {
	target := p.target(false)
	if p.skip(operator, "=") {
		e := p.tuple(true)
		p.closed()
		return func(s *scope) flow { target(s, e(s)); return next }
	}
	filtered := p.filters(bodyOf, false)
	p.closed()
	body := p.bodyUntil("endset")
	return func(s *scope) flow { target(s, filtered(body.captured(s))); return next }
}

// bodyVariable is the name of the variable with the output of a tag's body. A template cannot have a variable with
// this name.
const bodyVariable = "{% set %}"

func bodyOf(s *scope) any { return s.vars[bodyVariable] }

func (b block) captured(s *scope) *scope {
	inner := s.inner()
	inner.vars[bodyVariable] = s.m.captured(func() { b.run(s.inner()) })
	return inner
}

type parameter struct {
	name     string
	standard expr // the default, or nil
}

func (p *parser) parameters() (list []parameter) {
	if p.skip(operator, "(") {
		for !p.skip(operator, ")") {
			if len(list) > 0 {
				p.expect(operator, ",")
			}
			list = append(list, parameter{name: p.name()})
			if p.skip(operator, "=") {
				list[len(list)-1].standard = p.expression()
			}
		}
	}
	return list
}

func (p *parser) macro(title string, parameters []parameter, ends string) func(*scope) *function {
	p.closed()
	outer := p.used
	p.used = map[string]bool{}
	body := p.bodyUntil(ends)
	used := p.used
	p.used = outer
	maps.Copy(outer, used)
	return func(s *scope) *function {
		return &function{name: title, call: func(m *machine, a arguments) any {
			m.spend(round)
			inner := s.inner()
			if !used["caller"] && a.named.contains("caller") {
				fail("the macro %s is called with a body, which it does not use", title)
			}
			caller := a.named.pop("caller", undefined{"no caller is defined"})
			for i, one := range parameters {
				var v any = undefined{fmt.Sprintf("the parameter %q is not given", one.name)}
				if one.standard != nil && i >= len(a.list) && !a.named.contains(one.name) {
					v = one.standard(inner)
				}
				if inner.vars[one.name] = a.named.pop(one.name, v); i < len(a.list) {
					inner.vars[one.name] = a.list[i]
				}
			}
			rest := a.list[min(len(a.list), len(parameters)):]
			if len(rest) > 0 && !used["varargs"] || len(a.named.keys) > 0 && !used["kwargs"] {
				fail("the macro %s is called with more arguments than it takes", title)
			}
			inner.vars["caller"], inner.vars["varargs"], inner.vars["kwargs"] = caller, &list{kind: tuple, items: rest}, a.named
			var text string
			m.nested(func() { text = m.captured(func() { body.run(inner) }) })
			return text
		}}
	}
}

// callerVariable is the name of the variable with the macro that renders the body of a call block. A template cannot
// have a variable with this name.
const callerVariable = "{% call %}"

func (p *parser) call() stmt {
	parameters := p.parameters()
	p.last = nil
	called := p.expression()
	if p.last == nil {
		fail("the tag call contains no call")
	}
	*p.last = true
	caller := p.macro("caller", parameters, "endcall")
	return func(s *scope) flow {
		inner := s.inner()
		inner.vars[callerVariable] = caller(s)
		s.m.write(s.m.str(called(inner)))
		return next
	}
}
