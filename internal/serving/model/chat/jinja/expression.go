package jinja

import "slices"

// tuple parses an expression, or several expressions as a tuple. If conditional is true, an expression may be an inline
// if. tuple returns a function that evaluates what it has parsed. An expression of more tokens takes longer to
// evaluate. Each call of the function therefore counts as many steps of the machine as tuple has parsed tokens.
func (p *parser) tuple(conditional bool) expr {
	before := len(p.tokens)
	one := p.disjunction
	if conditional {
		one = p.expression
	}
	items := []expr{one()}
	several := false
	for p.skip(operator, ",") {
		several = true
		if p.matches(operator, ")") || p.peek().kind == closing {
			break
		}
		items = append(items, one())
	}
	e := items[0]
	if several {
		e = func(s *scope) any { return &list{kind: tuple, items: each(s, items)} }
	}
	cost := before - len(p.tokens)
	return func(s *scope) any { s.m.spend(cost); return e(s) }
}

func each(s *scope, items []expr) []any {
	values := make([]any, len(items))
	for i, e := range items {
		values[i] = e(s)
	}
	s.m.spend(len(items))
	return values
}

func (p *parser) expression() expr {
	p.deeper()
	defer func() { p.depth-- }()
	e := p.disjunction()
	for p.skip(name, "if") {
		p.optional++
		yes, test := e, p.disjunction()
		no := func(*scope) any { return undefined{"the inline if has no else"} }
		if p.skip(name, "else") {
			no = p.expression()
		}
		p.optional--
		e = func(s *scope) any {
			if s.m.truth(test(s)) {
				return yes(s)
			}
			return no(s)
		}
	}
	return e
}

func (p *parser) disjunction() expr { return p.logical("or", true, p.conjunction) }

func (p *parser) conjunction() expr { return p.logical("and", false, p.negation) }

// logical parses the operands of word, which is "and" or "or". As in Python, the value of the expression is the first
// operand with the truth value stopAt. If there is none, the value is the last operand.
func (p *parser) logical(word string, stopAt bool, operand func() expr) expr {
	operands := []expr{operand()}
	for p.skip(name, word) {
		operands = append(operands, operand())
	}
	if len(operands) == 1 {
		return operands[0]
	}
	return func(s *scope) (v any) {
		for _, e := range operands {
			if v = e(s); s.m.truth(v) == stopAt {
				break
			}
		}
		return v
	}
}

func (p *parser) negation() expr {
	if !p.skip(name, "not") {
		return p.comparison()
	}
	p.deeper()
	e := p.negation()
	p.depth--
	return func(s *scope) any { return !s.m.truth(e(s)) }
}

func (p *parser) comparison() expr {
	first := p.sum()
	var compares []func(s *scope, left, right any) bool
	var rights []expr
	for {
		t := p.peek()
		compare := comparisons[t.text]
		switch {
		case t.kind == operator && compare != nil:
			p.take()
		case p.skip(name, "in"):
			compare = contains
		case p.matches(name, "not") && p.tokens[1].kind == name && p.tokens[1].text == "in":
			p.take()
			p.take()
			compare = func(m *machine, a, b any) bool { return !contains(m, a, b) }
		default:
			if rights == nil {
				return first
			}
			return func(s *scope) any {
				left := first(s)
				for i, compare := range compares {
					right := rights[i](s)
					if !compare(s, left, right) {
						return false
					}
					left = right
				}
				return true
			}
		}
		compares = append(compares, func(s *scope, a, b any) bool { return compare(s.m, a, b) })
		rights = append(rights, p.sum())
	}
}

func (p *parser) sum() expr { return p.binary(p.joined, "+", "-") }

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr { return p.binary(func() expr { return p.unary(true) }, "**") }

// binary parses operands of left-associative operators.
func (p *parser) binary(operand func() expr, symbols ...string) expr {
	e := operand()
	for n := 0; p.peek().kind == operator && slices.Contains(symbols, p.peek().text); n++ {
		p.bounded(n)
		apply := arithmetic[p.take().text]
		left, right := e, operand()
		e = func(s *scope) any { a := left(s); return apply(s.m, a, right(s)) }
	}
	return e
}

func (p *parser) bounded(chain int) {
	if chain > maxChain {
		fail("an expression has more than %d operators in a row", maxChain)
	}
}

func (p *parser) joined() expr {
	parts := []expr{p.product()}
	for p.skip(operator, "~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return func(s *scope) any {
		text := ""
		for _, e := range parts {
			text += s.m.str(e(s))
			s.m.made(text)
		}
		return text
	}
}

func (p *parser) unary(filtered bool) expr {
	p.deeper()
	defer func() { p.depth-- }()
	var e expr
	switch {
	case p.skip(operator, "-"):
		operand := p.unary(false)
		e = func(s *scope) any {
			v := operand(s)
			if !isNumber(v) {
				fail("%s cannot be negated", describe(v))
			}
			return subtract(s.m, int64(0), v)
		}
	case p.skip(operator, "+"):
		operand := p.unary(false)
		e = func(s *scope) any { return subtract(s.m, operand(s), int64(0)) }
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	if filtered {
		e = p.filters(e, false)
	}
	return e
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expr {
	t := p.take()
	switch {
	case t.kind == name:
		if v, ok := constants[t.text]; ok {
			return func(*scope) any { return v }
		}
		if slices.Contains(unsupportedFunctions, t.text) {
			fail("%q is not supported in a chat template", t.text)
		}
		p.used[t.text] = true
		return func(s *scope) any { return s.lookup(t.text) }
	case t.kind == text:
		joined := t.value.(string)
		for p.peek().kind == text {
			joined += p.take().value.(string)
		}
		return func(*scope) any { return joined }
	case t.kind == number:
		return func(*scope) any { return t.value }
	case t.kind == operator && t.text == "(":
		if p.skip(operator, ")") {
			return func(*scope) any { return &list{kind: tuple} }
		}
		e := p.tuple(true)
		p.expect(operator, ")")
		return e
	case t.kind == operator && t.text == "[":
		items := p.several("]", p.expression)
		return func(s *scope) any { return &list{items: each(s, items)} }
	case t.kind == operator && t.text == "{":
		var values []expr
		keys := p.several("}", func() expr {
			key := p.expression()
			p.expect(operator, ":")
			values = append(values, p.expression())
			return key
		})
		return func(s *scope) any {
			d := newDict()
			s.m.spend(len(keys))
			for i := range keys {
				d.put(keys[i](s), values[i](s))
			}
			return d
		}
	}
	fail("%s is found where a value is expected", t.text)
	return nil
}

func (p *parser) several(closes string, one func() expr) (items []expr) {
	for !p.skip(operator, closes) {
		if len(items) > 0 {
			if p.expect(operator, ","); p.skip(operator, closes) {
				break
			}
		}
		items = append(items, one())
	}
	return items
}
