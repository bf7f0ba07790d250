package gbnf

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
	chars kind = iota
	sequence
	alternatives
	repeat
	reference
)

// node is a part of a rule.
type node struct {
	kind     kind
	set      automaton.Set
	parts    []*node
	min, max int // of repeat; unlimited if max is below 0
	name     string
	line     int
}

const (
	maxBytes = 1 << 20
	maxDepth = 200
)

type parser struct {
	text  string
	pos   int
	depth int
}

// parse returns the rules of a grammar.
func parse(text string) (map[string]*node, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the grammar has %d bytes, more than %d", len(text), maxBytes)
	}
	p := &parser{text: text}
	rules := map[string]*node{}
	for p.space(); p.pos < len(p.text); p.space() {
		name := p.name()
		if name == "" || !p.accept("::=") {
			return nil, p.problem("a rule begins with its name and ::=")
		}
		if rules[name] != nil {
			return nil, p.problem("the rule %s is defined twice", name)
		}
		body, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		if p.pos < len(p.text) && !p.ruleFollows() {
			return nil, p.problem("%q is not expected here", p.rune())
		}
		rules[name] = body
	}
	return rules, nil
}

func (p *parser) problem(format string, args ...any) error {
	return fmt.Errorf("grammar, line %d: %s", p.line(), fmt.Sprintf(format, args...))
}

func (p *parser) line() int { return 1 + strings.Count(p.text[:min(p.pos, len(p.text))], "\n") }

// space skips white space and comments.
func (p *parser) space() {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '#':
			end := strings.IndexByte(p.text[p.pos:], '\n')
			if end < 0 {
				end = len(p.text) - p.pos
			}
			p.pos += end
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			p.pos++
		default:
			return
		}
	}
}

// accept skips white space, and then prefix if it comes next.
func (p *parser) accept(prefix string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], prefix) {
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

func (p *parser) name() string {
	start := p.pos
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		p.pos++
	}
	return p.text[start:p.pos]
}

// ruleFollows reports whether the next rule begins here.
func (p *parser) ruleFollows() bool {
	start := p.pos
	defer func() { p.pos = start }()
	p.space()
	return p.name() != "" && p.accept("::=")
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.problem("groups nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	n := &node{kind: alternatives}
	for {
		s, err := p.sequence()
		if err != nil {
			return nil, err
		}
		n.parts = append(n.parts, s)
		if !p.accept("|") {
			break
		}
	}
	if len(n.parts) == 1 {
		return n.parts[0], nil
	}
	return n, nil
}

func (p *parser) sequence() (*node, error) {
	n := &node{kind: sequence}
	for {
		p.space()
		if p.pos == len(p.text) || p.text[p.pos] == '|' || p.text[p.pos] == ')' || p.ruleFollows() {
			return n, nil
		}
		part, err := p.atom()
		if err != nil {
			return nil, err
		}
		if part, err = p.quantified(part); err != nil {
			return nil, err
		}
		n.parts = append(n.parts, part)
	}
}

func (p *parser) quantified(part *node) (*node, error) {
	for {
		minimum, maximum := 0, -1
		switch {
		case p.accept("*"):
		case p.accept("+"):
			minimum = 1
		case p.accept("?"):
			maximum = 1
		case p.accept("{"):
			var err error
			if minimum, maximum, err = p.counts(); err != nil {
				return nil, err
			}
		default:
			return part, nil
		}
		part = &node{kind: repeat, parts: []*node{part}, min: minimum, max: maximum}
	}
}

// counts reads what follows the brace of a counted repeat.
func (p *parser) counts() (minimum, maximum int, err error) {
	minimum, found := p.number()
	maximum = minimum
	if p.accept(",") {
		var limited bool
		if maximum, limited = p.number(); !limited {
			maximum = -1
		}
		found = true
	}
	if !found || !p.accept("}") {
		return 0, 0, p.problem("a repeat is {n}, {n,}, {,m} or {n,m}")
	}
	if maximum >= 0 && maximum < minimum {
		return 0, 0, p.problem("a repeat of at least %d and at most %d", minimum, maximum)
	}
	return minimum, maximum, nil
}

func (p *parser) number() (int, bool) {
	p.space()
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
	switch c := p.text[p.pos]; c {
	case '"', '\'':
		p.pos++
		return p.literal(c)
	case '[':
		p.pos++
		return p.class()
	case '.':
		p.pos++
		return &node{set: automaton.Any}, nil
	case '(':
		p.pos++
		n, err := p.alternatives()
		if err == nil && !p.accept(")") {
			err = p.problem("a ( without its )")
		}
		return n, err
	}
	line := p.line()
	name := p.name()
	if name == "" {
		return nil, p.problem("%q is not expected here", p.rune())
	}
	return &node{kind: reference, name: name, line: line}, nil
}

// literal reads up to the closing quote.
func (p *parser) literal(quote byte) (*node, error) {
	n := &node{kind: sequence}
	for {
		if p.pos == len(p.text) || p.text[p.pos] == '\n' {
			return nil, p.problem("a literal without its closing quote")
		}
		if p.text[p.pos] == quote {
			p.pos++
			return n, nil
		}
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		n.parts = append(n.parts, &node{set: automaton.NewSet(automaton.Range{Lo: r, Hi: r})})
	}
}

// class reads up to the closing bracket.
func (p *parser) class() (*node, error) {
	negative := false
	if p.pos < len(p.text) && p.text[p.pos] == '^' {
		negative = true
		p.pos++
	}
	var ranges []automaton.Range
	for {
		if p.pos == len(p.text) {
			return nil, p.problem("a [ without its ]")
		}
		if p.text[p.pos] == ']' {
			p.pos++
			break
		}
		low, err := p.char()
		if err != nil {
			return nil, err
		}
		high := low
		if strings.HasPrefix(p.text[p.pos:], "-") && !strings.HasPrefix(p.text[p.pos:], "-]") {
			p.pos++
			if p.pos == len(p.text) {
				return nil, p.problem("a [ without its ]")
			}
			if high, err = p.char(); err != nil {
				return nil, err
			}
		}
		if high < low {
			return nil, p.problem("a range of characters whose end is before its begin")
		}
		ranges = append(ranges, automaton.Range{Lo: low, Hi: high})
	}
	set := automaton.NewSet(ranges...)
	if negative {
		set = set.Negate()
	}
	return &node{set: set}, nil
}

// char reads a character of a literal or a class.
func (p *parser) char() (rune, error) {
	r := p.rune()
	if r == utf8.RuneError {
		return 0, p.problem("the grammar is not UTF-8")
	}
	if r != '\\' {
		return r, nil
	}
	if p.pos == len(p.text) {
		return 0, p.problem("nothing after a \\")
	}
	digits := 0
	switch r = p.rune(); r {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return 0, p.problem("the escape \\%c is not known", r)
		}
		return r, nil
	}
	if len(p.text)-p.pos >= digits {
		if n, err := strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32); err == nil && utf8.ValidRune(rune(n)) && n <= automaton.MaxRune {
			p.pos += digits
			return rune(n), nil
		}
	}
	return 0, p.problem("\\%c needs %d hexadecimal digits of a character", r, digits)
}
