package regex

import "strings"

// group reads what follows an opening parenthesis. It returns nil if the group contains only flags.
func (p *parser) group() (*node, error) {
	fold, dotAll := p.fold, p.dotAll
	n := node{kind: sequence}
	switch {
	case !p.accept("?"):
	case p.accept(":"):
	case p.accept("="):
		n.kind = look
	case p.accept("!"):
		n.kind, n.negative = look, true
	case p.peek("<="), p.peek("<!"):
		return nil, p.problem("looking behind is not supported")
	case p.peek(">"):
		return nil, p.problem("atomic groups are not supported")
	case p.peek("P="), p.peek("("), p.peek("R"):
		return nil, p.problem("a reference to a group is not supported")
	case p.accept("P<"), p.accept("<"):
		name := strings.IndexByte(p.text[p.pos:], '>')
		if name < 0 {
			return nil, p.problem("the name of a group has no end")
		}
		p.pos += name + 1
	default:
		flagsOnly, err := p.flags()
		if err != nil || flagsOnly {
			return nil, err
		}
	}
	part, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		return nil, p.problem("a ( without its )")
	}
	p.fold, p.dotAll = fold, dotAll
	if n.kind == sequence && part.kind != begin && part.kind != end && part.kind != look {
		return part, nil
	}
	n.parts = []*node{part}
	return p.node(n)
}

// flags reads the flags of a group and the character after them. It returns true if the group ends after its
// flags, which then apply to the rest of the enclosing group.
func (p *parser) flags() (flagsOnly bool, err error) {
	enabled := true
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; c {
		case '-':
			enabled = false
		case 'i':
			p.fold = enabled
		case 's':
			p.dotAll = enabled
		case 'u', 'U', 'a':
		case ':', ')':
			p.pos++
			return c == ')', nil
		default:
			return false, p.problem("the flag or group (?%c is not supported", c)
		}
		p.pos++
	}
	return false, p.problem("a ( without its )")
}
