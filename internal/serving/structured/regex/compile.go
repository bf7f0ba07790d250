package regex

import (
	"fmt"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
)

// Full returns the automaton of the texts that an expression matches completely.
func Full(pattern string, budget *meter.Meter) (*automaton.DFA, error) {
	return compile(pattern, false, budget)
}

// Search returns the automaton of the texts that contain a match of an expression, as JSON Schema's
// keyword pattern requires.
func Search(pattern string, budget *meter.Meter) (*automaton.DFA, error) {
	return compile(pattern, true, budget)
}

func compile(pattern string, search bool, budget *meter.Meter) (*automaton.DFA, error) {
	n, err := parse(pattern)
	if err != nil {
		return nil, err
	}
	if search {
		anyText := &node{kind: repeat, parts: []*node{{kind: set, set: automaton.Any}}, max: -1}
		n = &node{kind: sequence, parts: []*node{anyText, n, anyText}}
	}
	c := compiler{budget: budget}
	d, err := c.automaton(n)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	return d, nil
}

type compiler struct{ budget *meter.Meter }

// automaton returns the texts that n matches from begin to end.
func (c *compiler) automaton(n *node) (*automaton.DFA, error) {
	parts := flat(n)
	for i, part := range parts {
		if part.kind == look {
			return c.looking(parts[:i], part, parts[i+1:])
		}
	}
	var b automaton.Builder
	source, target := b.State(), b.State()
	b.Accept(target, 0)
	if err := c.add(&b, n, source, target); err != nil {
		return nil, err
	}
	return b.Build(c.budget)
}

// looking returns the texts that have two parts: the first part matches prefix, and the second matches suffix. The
// beginning of the second part must also match lookahead. If lookahead is negated, no beginning of the second part may
// match it.
func (c *compiler) looking(prefix []*node, lookahead *node, suffix []*node) (*automaton.DFA, error) {
	// A ^ in suffix or in lookahead can match only if the match of prefix is empty. It certainly is empty only if
	// prefix contains nothing but ^.
	if !slices.ContainsFunc(prefix, func(n *node) bool { return n.kind != begin }) {
		prefix = nil
	} else if contains(lookahead, begin) || slices.ContainsFunc(suffix, func(n *node) bool { return contains(n, begin) }) {
		return nil, fmt.Errorf("a ^ after something and a group that looks ahead is not supported")
	}
	if slices.ContainsFunc(prefix, func(n *node) bool { return contains(n, end) }) {
		return nil, fmt.Errorf("a $ before a group that looks ahead is not supported")
	}
	rest, err := c.automaton(&node{kind: sequence, parts: suffix})
	if err != nil {
		return nil, err
	}
	anyText := &node{kind: repeat, parts: []*node{{kind: set, set: automaton.Any}}, max: -1}
	begins, err := c.automaton(&node{kind: sequence, parts: []*node{lookahead.parts[0], anyText}})
	if err != nil {
		return nil, err
	}
	combine := automaton.Intersect
	if lookahead.negative {
		combine = automaton.Subtract
	}
	if rest, err = combine(rest, begins, c.budget); err != nil || len(prefix) == 0 {
		return rest, err
	}
	var b automaton.Builder
	source, middle, target := b.State(), b.State(), b.State()
	b.Accept(target, 0)
	if err := c.add(&b, &node{kind: sequence, parts: prefix}, source, middle); err != nil {
		return nil, err
	}
	b.Embed(rest, middle, target)
	return b.Build(c.budget)
}

// flat returns the parts of a sequence, with the parts of nested sequences in their place.
func flat(n *node) []*node {
	if n.kind != sequence {
		return []*node{n}
	}
	var out []*node
	for _, part := range n.parts {
		out = append(out, flat(part)...)
	}
	return out
}

func contains(n *node, k kind) bool {
	return n.kind == k || slices.ContainsFunc(n.parts, func(part *node) bool { return contains(part, k) })
}

// add adds transitions between two states of b for the texts that n matches.
func (c *compiler) add(b *automaton.Builder, n *node, source, target int32) error {
	if err := c.budget.Spend(1); err != nil {
		return err
	}
	switch n.kind {
	case set:
		b.Edge(source, n.set, target)
	case begin:
		b.Begin(source, target)
	case end:
		b.End(source, target)
	case look:
		return fmt.Errorf("a group that looks ahead inside a repeat or an alternative is not supported")
	case alternatives:
		for _, part := range n.parts {
			if err := c.add(b, part, source, target); err != nil {
				return err
			}
		}
	case sequence:
		for i, part := range n.parts {
			next := target
			if i < len(n.parts)-1 {
				next = b.State()
			}
			if err := c.add(b, part, source, next); err != nil {
				return err
			}
			source = next
		}
		if len(n.parts) == 0 {
			b.Empty(source, target)
		}
	case repeat:
		return b.Repeat(source, target, n.min, n.max, func(source, target int32) error { return c.add(b, n.parts[0], source, target) })
	}
	return nil
}
