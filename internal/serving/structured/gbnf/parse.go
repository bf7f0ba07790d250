package gbnf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
)

type kind int

const (
	chars kind = iota
	literal
	sequence
	alternatives
	repeat
	reference
)

// node is a part of a rule.
type node struct {
	kind     kind
	set      automaton.Set
	text     string // of literal
	parts    []*node
	min, max int   // of repeat; unlimited if max is below 0
	rule     *rule // of reference

	size, height, ranges int // see measure
	compiled             compiled
}

type rule struct {
	name   string
	body   *node   // nil if the grammar does not define the rule
	uses   []*rule // a rule for each reference in body
	pos    int     // of the definition, or of the first reference
	start  grammar.Node
	called bool // start is set

	measured bool
}

const (
	maxBytes  = 1 << 20
	maxDepth  = 200 // how deep groups, and repeats of repeats, may nest
	nodeBytes = 160 // about what a node takes
)

type parser struct {
	text  string
	pos   int
	depth int
	rules map[string]*rule
	order []*rule // in the order in which they are mentioned
	uses  []*rule // of the rule that is being read
	meter *meter.Meter
}

// parse returns a parser that has read a grammar. Its order has the rules in the order of their first mention.
func parse(text string, m *meter.Meter) (*parser, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the grammar has %d bytes, more than %d", len(text), maxBytes)
	}
	p := &parser{text: text, rules: map[string]*rule{}, meter: m}
	for p.space(); p.pos < len(p.text); p.space() {
		pos := p.pos
		name := p.name()
		if name == "" || !p.accept("::=") {
			return nil, p.problem("a rule begins with its name and ::=")
		}
		r, err := p.rule(name)
		if err != nil {
			return nil, err
		}
		if r.body != nil {
			return nil, p.problem("the rule %s is defined twice", shown(name))
		}
		r.pos, p.uses = pos, nil
		if r.body, err = p.alternatives(); err != nil {
			return nil, err
		}
		r.uses = p.uses
		if p.pos < len(p.text) && !p.ruleFollows() {
			return nil, p.problem("%q is not expected here", p.rune())
		}
	}
	for _, r := range p.order {
		if r.body == nil {
			p.pos = r.pos
			return nil, p.problem("there is no rule %s", shown(r.name))
		}
	}
	return p, nil
}

// rule returns the rule with a name, which the parser may not have read yet.
func (p *parser) rule(name string) (*rule, error) {
	r := p.rules[name]
	if r == nil {
		if err := p.charge(1, ruleBytes+len(name)); err != nil {
			return nil, err
		}
		r = &rule{name: name, pos: p.pos - len(name)}
		p.rules[name] = r
		p.order = append(p.order, r)
	}
	return r, nil
}

const ruleBytes = 200 // about what a rule takes besides its name and body

// charge charges the meter, and adds the line to its error.
func (p *parser) charge(work, bytes int) error {
	err := p.meter.Spend(work)
	if err == nil {
		err = p.meter.Keep(bytes)
	}
	if err != nil {
		return fmt.Errorf("grammar of %d bytes, line %d: %w", len(p.text), p.line(), err)
	}
	return nil
}

// node charges a new node and returns it.
func (p *parser) node(n node) (*node, error) { return &n, p.charge(1, nodeBytes) }

func (p *parser) problem(format string, args ...any) error {
	return fmt.Errorf("grammar, line %d: %s", p.line(), fmt.Sprintf(format, args...))
}

// line returns the number of the current line. It counts from the beginning, so only errors may use it.
func (p *parser) line() int { return 1 + strings.Count(p.text[:min(p.pos, len(p.text))], "\n") }

// shown returns the beginning of a name for an error.
func shown(name string) string {
	if len(name) <= 40 {
		return name
	}
	return name[:40] + "..."
}

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
	var parts []*node
	for {
		s, err := p.sequence()
		if err != nil {
			return nil, err
		}
		parts = append(parts, s)
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
	for {
		p.space()
		if p.pos == len(p.text) || p.text[p.pos] == '|' || p.text[p.pos] == ')' || p.ruleFollows() {
			if len(parts) == 1 {
				return parts[0], nil
			}
			return p.node(node{kind: sequence, parts: parts})
		}
		part, err := p.atom()
		if err != nil {
			return nil, err
		}
		if part, err = p.quantified(part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
}

func (p *parser) quantified(part *node) (*node, error) {
	for levels := 0; ; {
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
		if err := p.charge(1, 0); err != nil {
			return nil, err
		}
		if inner := part; inner.kind == repeat && levels > 0 && isSimple(inner.min, inner.max) && isSimple(minimum, maximum) {
			part.min = min(inner.min, minimum)
			part.max = max(inner.max, maximum)
			if inner.max < 0 || maximum < 0 {
				part.max = -1
			}
			continue
		}
		if levels++; levels > maxDepth {
			return nil, p.problem("repeats of repeats nest deeper than %d", maxDepth)
		}
		var err error
		if part, err = p.node(node{kind: repeat, parts: []*node{part}, min: minimum, max: maximum}); err != nil {
			return nil, err
		}
	}
}

// isSimple reports whether a repeat is *, + or ?. A simple repeat of a simple repeat is a simple repeat.
func isSimple(minimum, maximum int) bool {
	return minimum <= 1 && maximum < 0 || minimum == 0 && maximum == 1
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
		return p.node(node{set: automaton.Any})
	case '(':
		p.pos++
		n, err := p.alternatives()
		if err == nil && !p.accept(")") {
			err = p.problem("a ( without its )")
		}
		return n, err
	}
	name := p.name()
	if name == "" {
		return nil, p.problem("%q is not expected here", p.rune())
	}
	r, err := p.rule(name)
	if err != nil {
		return nil, err
	}
	p.uses = append(p.uses, r)
	return p.node(node{kind: reference, rule: r})
}
