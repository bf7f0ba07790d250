package regex

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/structured/automaton"
)

type kind int

const (
	set kind = iota
	sequence
	alternatives
	repeat
	begin
	end
	look // what follows must begin with the part, or must not
)

// node is a part of an expression.
type node struct {
	kind     kind
	set      automaton.Set
	parts    []*node
	min, max int // of repeat; unlimited if max is below 0
	negative bool
}

// maxDepth is how deep groups may nest.
const maxDepth = 200

type parser struct {
	text   string
	pos    int
	depth  int
	fold   bool // i
	dotAll bool // s
}

func parse(text string) (*node, error) {
	p := &parser{text: text}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.text) {
		return nil, p.problem("a ) without its (")
	}
	return n, nil
}

func (p *parser) problem(format string, args ...any) error {
	return fmt.Errorf("regular expression %q, at byte %d: %s", p.text, p.pos, fmt.Sprintf(format, args...))
}

func (p *parser) peek(prefix string) bool { return strings.HasPrefix(p.text[p.pos:], prefix) }

func (p *parser) accept(prefix string) bool {
	if !p.peek(prefix) {
		return false
	}
	p.pos += len(prefix)
	return true
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	return r
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.problem("groups nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	var parts []*node
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if !p.accept("|") {
			break
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return &node{kind: alternatives, parts: parts}, nil
}

func (p *parser) sequence() (*node, error) {
	n := &node{kind: sequence}
	for p.pos < len(p.text) && !p.peek("|") && !p.peek(")") {
		part, err := p.atom()
		if err != nil {
			return nil, err
		}
		if part == nil { // flags
			continue
		}
		if part, err = p.quantified(part); err != nil {
			return nil, err
		}
		n.parts = append(n.parts, part)
	}
	return n, nil
}

// quantified reads the quantifiers after a part.
func (p *parser) quantified(part *node) (*node, error) {
	minimum, maximum, ok := 0, -1, true
	switch {
	case p.accept("*"):
	case p.accept("+"):
		minimum = 1
	case p.accept("?"):
		maximum = 1
	default:
		var err error
		if minimum, maximum, ok, err = p.braces(); err != nil {
			return nil, err
		}
	}
	if !ok {
		return part, nil
	}
	if part.kind == begin || part.kind == end || part.kind == look {
		return nil, p.problem("a quantifier after something that matches no character")
	}
	if !p.accept("?") && p.peek("+") { // lazy ones match the same texts
		return nil, p.problem("possessive quantifiers are not supported")
	}
	if p.peek("*") || p.peek("?") {
		return nil, p.problem("a quantifier after a quantifier")
	}
	return &node{kind: repeat, parts: []*node{part}, min: minimum, max: maximum}, nil
}

// braces reads {n}, {n,} or {n,m}. Other braces are ordinary characters.
func (p *parser) braces() (minimum, maximum int, ok bool, err error) {
	start := p.pos
	if !p.accept("{") {
		return 0, 0, false, nil
	}
	minimum, found := p.number()
	maximum = minimum
	if found && p.accept(",") {
		var limited bool
		if maximum, limited = p.number(); !limited {
			maximum = -1
		}
	}
	if !found || !p.accept("}") {
		p.pos = start
		return 0, 0, false, nil
	}
	if maximum >= 0 && maximum < minimum {
		return 0, 0, false, p.problem("a repeat of at least %d and at most %d", minimum, maximum)
	}
	return minimum, maximum, true, nil
}

func (p *parser) number() (int, bool) {
	rest := strings.TrimLeft(p.text[p.pos:], "0123456789")
	digits := p.text[p.pos : len(p.text)-len(rest)]
	p.pos += len(digits)
	n, err := strconv.Atoi(digits)
	if digits != "" && err != nil {
		return math.MaxInt32, true
	}
	return n, digits != ""
}

func (p *parser) atom() (*node, error) {
	switch {
	case p.accept("("):
		return p.group()
	case p.accept("["):
		s, err := p.class()
		return p.chars(s), err
	case p.accept("."):
		if p.dotAll {
			return p.chars(automaton.Any), nil
		}
		return p.chars(automaton.NewSet(automaton.Range{Lo: '\n', Hi: '\n'}, automaton.Range{Lo: '\r', Hi: '\r'},
			automaton.Range{Lo: 0x2028, Hi: 0x2029}).Negate()), nil
	case p.accept("^"), p.accept(`\A`):
		return &node{kind: begin}, nil
	case p.accept("$"), p.accept(`\z`), p.accept(`\Z`):
		return &node{kind: end}, nil
	case p.accept(`\b`), p.accept(`\B`):
		return nil, p.problem("word boundaries are not supported")
	case p.accept(`\`):
		s, err := p.escape(false)
		return p.chars(s), err
	case p.peek("*"), p.peek("+"), p.peek("?"):
		return nil, p.problem("a quantifier without something to repeat")
	}
	r := p.rune()
	return p.chars(single(r)), nil
}

func single(r rune) automaton.Set { return automaton.NewSet(automaton.Range{Lo: r, Hi: r}) }

func (p *parser) chars(s automaton.Set) *node {
	if p.fold {
		s = folded(s)
	}
	return &node{kind: set, set: s}
}
