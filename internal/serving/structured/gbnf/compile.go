package gbnf

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

const (
	maxLexeme = 2000    // about the characters in one lexeme that is not a literal; larger parts become several
	maxHeight = 100     // how deep parts and rules may nest in one lexeme
	maxNodes  = 200_000 // nodes and edges of the grammar
)

// lexemeWork returns the limit of the work for the lexeme of a part, in units of meter.Meter. What needs more becomes
// several lexemes.
func lexemeWork(n *node) int { return min(200_000, 10_000+100*n.size) + 20*n.ranges }

// Compile returns the grammar of a text.
func Compile(text string, budget *meter.Meter) (*grammar.Grammar, error) {
	p, err := parse(text, budget)
	if err != nil {
		return nil, err
	}
	root := p.rules["root"]
	if root == nil {
		return nil, errors.New("grammar: there is no rule root")
	}
	if err := p.measure(); err != nil {
		return nil, err
	}
	b := &builder{g: grammar.New(), budget: budget}
	end := b.g.Node()
	b.g.Final(end)
	b.rule = root
	b.add(0, end, &node{kind: reference, rule: root})
	for len(b.work) > 0 && b.err == nil {
		b.rule = b.work[len(b.work)-1]
		b.work = b.work[:len(b.work)-1]
		end := b.g.Node()
		b.g.Final(end)
		b.add(b.rule.start, end, b.rule.body)
	}
	if b.err != nil {
		return nil, fmt.Errorf("grammar, rule %s: %w", shown(b.rule.name), b.err)
	}
	return b.g, nil
}

const tooLarge = maxLexeme + 1

const (
	measureBytes = 160 // about what measure allocates for a rule
	useBytes     = 40  // and for each reference in it
)

// measure sets the size and the height of the parts of each rule. A rule comes after the rules that it uses. For the
// rules that are left because they contain themselves, and for those that use them, the size is tooLarge.
func (p *parser) measure() error {
	waiting := make(map[*rule]int, len(p.order)) // the references of each rule to rules that are not measured yet
	users := make(map[*rule][]*rule, len(p.order))
	var ready []*rule
	for _, r := range p.order {
		if err := p.charge(1+len(r.uses), measureBytes+useBytes*len(r.uses)); err != nil {
			return err
		}
		if waiting[r] = len(r.uses); len(r.uses) == 0 {
			ready = append(ready, r)
		}
		for _, used := range r.uses {
			users[used] = append(users[used], r)
		}
	}
	for i := 0; i < len(ready); i++ {
		measure(ready[i].body)
		ready[i].measured = true
		for _, user := range users[ready[i]] {
			if waiting[user]--; waiting[user] == 0 {
				ready = append(ready, user)
			}
		}
	}
	for _, r := range p.order {
		if !r.measured {
			measure(r.body)
		}
	}
	return nil
}

// measure sets the size, the height and the number of ranges of a part and of its parts. The size is about the number
// of characters. For a reference, it is the size of the rule. For a repeat, it is the size of the contents times the
// maximum number of repetitions, or times the minimum if there is no maximum. This factor is at least 1. The size is
// tooLarge if it is above maxLexeme, if parts and rules nest deeper than maxHeight, or if the rule of a reference is not
// measured yet.
func measure(n *node) {
	n.size, n.height = 1, 1
	switch n.kind {
	case chars:
		n.ranges = len(n.set)
		return
	case literal:
		n.size = min(tooLarge, 1+utf8.RuneCountInString(n.text))
		return
	case reference:
		n.size = tooLarge
		if body := n.rule.body; n.rule.measured {
			n.size, n.height, n.ranges = body.size, body.height+1, body.ranges
		}
	}
	for _, part := range n.parts {
		measure(part)
		n.size = min(tooLarge, n.size+part.size)
		n.height = max(n.height, part.height+1)
		n.ranges += part.ranges
	}
	if n.kind == repeat {
		n.size *= max(1, n.min, n.max)
	}
	if n.size = min(n.size, tooLarge); n.height > maxHeight {
		n.size = tooLarge
	}
}

type builder struct {
	work   []*rule // rules that have a start and nothing else
	rule   *rule   // that is being compiled
	g      *grammar.Grammar
	budget *meter.Meter
	size   int   // of g when it was charged last
	err    error // the first one; the methods stop after it
}

// compiled is what a part has become, so that a second copy of it costs one edge.
type compiled struct {
	tried    bool
	terminal *grammar.Terminal // nil if the part is not one lexeme
	empty    bool              // a lexeme without texts
	rule     grammar.Node      // that derives the part, or 0
}

// ok charges for what the grammar has grown, and reports whether the builder may go on.
func (b *builder) ok() bool {
	if b.err == nil {
		b.err = b.charge()
	}
	return b.err == nil
}

func (b *builder) charge() error {
	size := b.g.Size()
	grown := size - b.size
	b.size = size
	if size > maxNodes {
		return fmt.Errorf("the grammar has more than %d nodes and edges", maxNodes)
	}
	if err := b.budget.Spend(1 + grown); err != nil {
		return err
	}
	return b.budget.Keep(grown * grammar.NodeBytes)
}

// add adds edges between two nodes for the texts that a part of the grammar matches.
func (b *builder) add(source, target grammar.Node, n *node) {
	if !b.ok() || b.lexeme(source, target, n) {
		return
	}
	switch n.kind {
	case reference:
		if !n.rule.called {
			n.rule.start, n.rule.called = b.g.Node(), true
			b.work = append(b.work, n.rule)
		}
		b.g.Call(source, n.rule.start, target)
	case sequence:
		b.sequence(source, target, grouped(n))
	case alternatives:
		for _, part := range grouped(n) {
			b.add(source, target, part)
		}
	case repeat:
		b.repeat(source, target, n)
	}
}

// grouped returns the parts of a sequence or of alternatives. It joins consecutive parts that together are small enough
// for one lexeme. If they are all of n, which did not become a lexeme, it returns the two halves of n.
func grouped(n *node) []*node {
	var out []*node
	group := func(start, end int) {
		if end-start == 1 {
			out = append(out, n.parts[start])
			return
		}
		part := &node{kind: n.kind, parts: n.parts[start:end], size: 1}
		for _, p := range part.parts {
			part.size = min(tooLarge, part.size+p.size)
			part.height = max(part.height, p.height+1)
			part.ranges += p.ranges
		}
		out = append(out, part)
	}
	if half := len(n.parts) / 2; n.size <= maxLexeme && half > 0 {
		group(0, half)
		group(half, len(n.parts))
		return out
	}
	for start := 0; start < len(n.parts); {
		total, end := 1, start
		for end < len(n.parts) && (end == start || total+n.parts[end].size <= maxLexeme) {
			total += n.parts[end].size
			end++
		}
		group(start, end)
		start = end
	}
	return out
}

func (b *builder) sequence(source, target grammar.Node, parts []*node) {
	for i, part := range parts {
		next := target
		if i < len(parts)-1 {
			next = b.g.Node()
		}
		b.add(source, next, part)
		source = next
	}
	if len(parts) == 0 {
		b.g.Jump(source, target)
	}
}

// repeat adds the copies of a repeated part. The last one may be repeated if there is no maximum.
func (b *builder) repeat(source, target grammar.Node, n *node) {
	copies := n.max
	if n.max < 0 {
		copies = max(1, n.min)
	}
	for i := 0; i < copies && b.ok(); i++ {
		if i >= n.min {
			b.g.Jump(source, target)
		}
		next := b.g.Node()
		if n.max < 0 && i == copies-1 {
			loop := b.g.Node()
			b.g.Jump(source, loop)
			b.g.Jump(next, loop)
			source = loop
		}
		if copies == 1 {
			b.add(source, next, n.parts[0])
		} else {
			b.one(source, next, n.parts[0])
		}
		source = next
	}
	b.g.Jump(source, target)
}

// one adds an edge for one of several copies of a part.
func (b *builder) one(source, target grammar.Node, n *node) {
	if !b.ok() || b.lexeme(source, target, n) {
		return
	}
	if n.compiled.rule == 0 {
		n.compiled.rule = b.g.Node()
		end := b.g.Node()
		b.g.Final(end)
		b.add(n.compiled.rule, end, n)
	}
	b.g.Call(source, n.compiled.rule, target)
}

// lexeme adds an edge between two nodes that reads a part as one lexeme. It returns false if the lexeme would be too
// large.
func (b *builder) lexeme(source, target grammar.Node, n *node) bool {
	if n.kind == reference {
		n = n.rule.body
	}
	c := &n.compiled
	if !c.tried {
		c.tried = true
		switch {
		case n.kind == literal && n.text != "":
			c.terminal = grammar.NewTerminal(lexeme.Literal(n.text))
		case n.size <= maxLexeme:
			b.compile(n)
		}
	}
	if c.terminal != nil && b.err == nil {
		b.g.Read(source, c.terminal, target)
	}
	return b.err != nil || c.terminal != nil || c.empty
}

// compile makes the lexeme of a part, unless it would be too large.
func (b *builder) compile(n *node) {
	work := b.budget
	if n.kind != chars { // which cannot be divided
		work = work.Within(lexemeWork(n))
	}
	a := automaton.NewBuilder(work)
	start, end := a.State(), a.State()
	a.Accept(end, 0)
	write(a, n, start, end)
	d, err := a.Build()
	switch {
	case err != nil:
		b.err = b.budget.Err() // nil if only the lexeme is too large
	case d.Empty():
		n.compiled.empty = true
	default:
		n.compiled.terminal = grammar.NewTerminal(lexeme.Text("", d, lexeme.Raw, false))
	}
}

// write adds transitions between two states for the texts that a part of the grammar matches. The part is small enough
// for one lexeme, so its height limits the recursion.
func write(a *automaton.Builder, n *node, source, target int32) {
	switch n.kind {
	case chars:
		a.Edge(source, n.set, target)
	case literal:
		a.Literal(source, n.text, target)
	case reference:
		write(a, n.rule.body, source, target)
	case alternatives:
		for _, part := range n.parts {
			write(a, part, source, target)
		}
	case sequence:
		for i, part := range n.parts {
			next := target
			if i < len(n.parts)-1 {
				next = a.State()
			}
			write(a, part, source, next)
			source = next
		}
		if len(n.parts) == 0 {
			a.Empty(source, target)
		}
	case repeat:
		_ = a.Repeat(source, target, n.min, n.max, func(source, target int32) error {
			write(a, n.parts[0], source, target)
			return nil
		})
	}
}
