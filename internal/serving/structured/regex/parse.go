package regex

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
)

type kind int

const (
	set kind = iota
	literal
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
	negative bool
	set      automaton.Set
	text     []byte // of literal
	parts    []*node
	min, max int // of repeat; unlimited if max is below 0
}

const (
	maxDepth  = 200 // how deep groups may nest
	nodeBytes = 128 // about what a node takes
)

type parser struct {
	text       string
	pos        int
	depth      int
	fold       bool // i
	dotAll     bool // s
	properties map[string]automaton.Set
	otherCases map[*automaton.Range]automaton.Set // what folded returned, by the first range of its argument
	meter      *meter.Meter
}

func parse(text string, m *meter.Meter) (*node, error) {
	p := &parser{text: text, properties: map[string]automaton.Set{}, otherCases: map[*automaton.Range]automaton.Set{}, meter: m}
	if err := m.Spend(len(text)); err != nil {
		return nil, fmt.Errorf("regular expression of %d bytes: %w", len(text), err)
	}
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
	return fmt.Errorf("regular expression %s, at byte %d: %s", excerpt(p.text, p.pos), p.pos, fmt.Sprintf(format, args...))
}

// excerpt returns an expression in quotes. If it is long, excerpt returns only the characters around a position.
func excerpt(text string, pos int) string {
	const around = 100 // bytes before and after the position
	if len(text) <= 2*around {
		return strconv.Quote(text)
	}
	from, to := max(0, pos-around), min(len(text), pos+around)
	return fmt.Sprintf("of %d bytes with %q", len(text), strings.ToValidUTF8(text[from:to], ""))
}

// node charges a new node and returns it.
func (p *parser) node(n node) (*node, error) {
	if err := p.meter.Spend(1); err != nil {
		return nil, p.limited(err)
	}
	if err := p.meter.Keep(nodeBytes); err != nil {
		return nil, p.limited(err)
	}
	return &n, nil
}

// limited adds the place to an error of the meter.
func (p *parser) limited(err error) error {
	return fmt.Errorf("regular expression %s, at byte %d: %w", excerpt(p.text, p.pos), p.pos, err)
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
	return p.node(node{kind: alternatives, parts: parts})
}

func (p *parser) sequence() (*node, error) {
	var parts []*node
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
		if last := len(parts) - 1; last >= 0 && part.kind == literal && parts[last].kind == literal {
			parts[last].text = append(parts[last].text, part.text...)
		} else {
			parts = append(parts, part)
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return p.node(node{kind: sequence, parts: parts})
}

// quantified reads the quantifier after a part, if there is one.
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
	return p.node(node{kind: repeat, parts: []*node{part}, min: minimum, max: maximum})
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
		if err != nil {
			return nil, err
		}
		return p.node(node{set: s})
	case p.accept("."):
		if p.dotAll {
			return p.node(node{set: automaton.Any})
		}
		return p.node(node{set: lineCharacters})
	case p.accept("^"), p.accept(`\A`):
		return p.node(node{kind: begin})
	case p.accept("$"), p.accept(`\z`), p.accept(`\Z`):
		return p.node(node{kind: end})
	case p.accept(`\b`), p.accept(`\B`):
		return nil, p.problem("word boundaries are not supported")
	case p.accept(`\`):
		s, err := p.escape(false)
		if err != nil {
			return nil, err
		}
		return p.chars(s)
	case p.peek("*"), p.peek("+"), p.peek("?"):
		return nil, p.problem("a quantifier without something to repeat")
	}
	return p.chars(single(p.rune()))
}

func single(r rune) automaton.Set { return automaton.NewSet(automaton.Range{Lo: r, Hi: r}) }

// chars returns the node of one character of a set.
func (p *parser) chars(s automaton.Set) (*node, error) {
	if p.fold {
		var err error
		if s, err = p.folded(s); err != nil {
			return nil, err
		}
	}
	if len(s) == 1 && s[0].Lo == s[0].Hi {
		return p.node(node{kind: literal, text: utf8.AppendRune(nil, s[0].Lo)})
	}
	return p.node(node{set: s})
}
