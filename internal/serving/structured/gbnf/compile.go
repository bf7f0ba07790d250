package gbnf

import (
	"errors"
	"fmt"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

const (
	maxLexeme  = 2000    // characters in one lexeme; larger parts are rules
	lexemeWork = 200_000 // units of meter.Meter for one lexeme
	maxNodes   = 200_000 // nodes and edges of the grammar
)

// Compile returns the grammar of a text.
func Compile(text string, budget *meter.Meter) (*grammar.Grammar, error) {
	rules, err := parse(text)
	if err != nil {
		return nil, err
	}
	if rules["root"] == nil {
		return nil, errors.New("grammar: there is no rule root")
	}
	b := &builder{rules: rules, sizes: map[string]int{}, starts: map[string]grammar.Node{}, g: grammar.New(), budget: budget}
	for _, body := range rules {
		if err := b.check(body); err != nil {
			return nil, err
		}
	}
	end := b.g.Node()
	b.g.Final(end)
	b.add(0, end, &node{kind: reference, name: "root"})
	for len(b.work) > 0 && b.err == nil {
		name := b.work[len(b.work)-1]
		b.work = b.work[:len(b.work)-1]
		end := b.g.Node()
		b.g.Final(end)
		b.add(b.starts[name], end, rules[name])
	}
	return b.g, b.err
}

type builder struct {
	rules  map[string]*node
	sizes  map[string]int // of the rules, as size returns them
	starts map[string]grammar.Node
	work   []string // rules that have a start and nothing else
	g      *grammar.Grammar
	budget *meter.Meter
	err    error // the first one; add stops after it
}

// check reports a reference to a rule that does not exist.
func (b *builder) check(n *node) error {
	if n.kind == reference && b.rules[n.name] == nil {
		return fmt.Errorf("grammar, line %d: there is no rule %s", n.line, n.name)
	}
	for _, part := range n.parts {
		if err := b.check(part); err != nil {
			return err
		}
	}
	return nil
}

const (
	tooLarge   = maxLexeme + 1
	unfinished = -1 // the size of a rule while it is being computed: a rule that contains itself is too large
)

// size returns about the number of characters in a part of the grammar. For a reference, it is the size of the rule.
// For a repeat, it is the size of the contents times the maximum number of repetitions, or times the minimum if there
// is no maximum. This factor is at least 1. size returns tooLarge if the size is above maxLexeme, or if the part
// contains itself.
func (b *builder) size(n *node) int {
	switch n.kind {
	case chars:
		return 1
	case reference:
		size, known := b.sizes[n.name]
		if size == unfinished {
			return tooLarge
		}
		if !known {
			b.sizes[n.name] = unfinished
			size = b.size(b.rules[n.name])
			b.sizes[n.name] = size
		}
		return size
	}
	total := 1
	for _, part := range n.parts {
		total = min(tooLarge, total+b.size(part))
	}
	if n.kind == repeat {
		total *= max(1, n.min, n.max)
	}
	return min(total, tooLarge)
}

// add adds edges between two nodes for the texts that a part of the grammar matches.
func (b *builder) add(source, target grammar.Node, n *node) {
	if b.g.Size() > maxNodes && b.err == nil {
		b.err = fmt.Errorf("the grammar has more than %d nodes and edges", maxNodes)
	}
	if b.err != nil || b.size(n) <= maxLexeme && b.lexeme(source, target, n) {
		return
	}
	switch n.kind {
	case reference:
		start, ok := b.starts[n.name]
		if !ok {
			start = b.g.Node()
			b.starts[n.name] = start
			b.work = append(b.work, n.name)
		}
		b.g.Call(source, start, target)
	case sequence:
		b.sequence(source, target, b.grouped(n))
	case alternatives:
		for _, part := range b.grouped(n) {
			b.add(source, target, part)
		}
	case repeat:
		b.repeat(source, target, n)
	}
}

// grouped returns the parts of a sequence or of alternatives. It joins consecutive parts that together are
// small enough for one lexeme.
func (b *builder) grouped(n *node) []*node {
	var out []*node
	total := tooLarge
	for _, part := range n.parts {
		size := b.size(part)
		if total+size > maxLexeme {
			out = append(out, part)
			total = size
			continue
		}
		total += size
		last := out[len(out)-1]
		if last.kind != n.kind {
			last = &node{kind: n.kind, parts: []*node{last}}
		}
		out[len(out)-1] = &node{kind: n.kind, parts: append(last.parts[:len(last.parts):len(last.parts)], part)}
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

func (b *builder) repeat(source, target grammar.Node, n *node) {
	for i := 0; i < n.min && b.err == nil; i++ {
		next := b.g.Node()
		b.add(source, next, n.parts[0])
		source = next
	}
	if n.max < 0 {
		loop := b.g.Node()
		b.g.Jump(source, loop)
		b.g.Jump(loop, target)
		b.add(loop, loop, n.parts[0])
		return
	}
	for i := n.min; i < n.max && b.err == nil; i++ {
		b.g.Jump(source, target)
		next := b.g.Node()
		b.add(source, next, n.parts[0])
		source = next
	}
	b.g.Jump(source, target)
}

// lexeme adds an edge between two nodes that reads a part as one lexeme. It returns false if the automaton of
// the lexeme would be too large.
func (b *builder) lexeme(source, target grammar.Node, n *node) bool {
	work := b.budget.Within(lexemeWork)
	var a automaton.Builder
	start, end := a.State(), a.State()
	a.Accept(end, 0)
	b.write(&a, n, start, end)
	d, err := a.Build(work)
	if b.err = b.budget.Err(); b.err != nil {
		return true
	}
	if err != nil {
		return false // only because it is too large
	}
	if !d.Empty() {
		b.g.Read(source, grammar.NewTerminal(lexeme.Text("", d, lexeme.Raw, false)), target)
	}
	return true
}

// write adds transitions between two states for the texts that a part of the grammar matches.
func (b *builder) write(a *automaton.Builder, n *node, source, target int32) {
	switch n.kind {
	case chars:
		a.Edge(source, n.set, target)
	case reference:
		b.write(a, b.rules[n.name], source, target)
	case alternatives:
		for _, part := range n.parts {
			b.write(a, part, source, target)
		}
	case sequence:
		for _, part := range n.parts {
			next := a.State()
			b.write(a, part, source, next)
			source = next
		}
		a.Empty(source, target)
	case repeat:
		_ = a.Repeat(source, target, n.min, n.max, func(source, target int32) error { b.write(a, n.parts[0], source, target); return nil })
	}
}
