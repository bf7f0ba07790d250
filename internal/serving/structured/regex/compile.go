package regex

import (
	"errors"
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
	n, err := parse(pattern, budget)
	if err != nil {
		return nil, err
	}
	parts := flat(nil, n)
	if search {
		parts = slices.Concat([]*node{anyText}, parts, []*node{anyText})
	}
	c := compiler{budget: budget}
	d, err := c.automaton(parts)
	if err != nil {
		return nil, fmt.Errorf("regular expression %s: %w", excerpt(pattern, 0), err)
	}
	return d, nil
}

var anyText = &node{kind: repeat, parts: []*node{{kind: set, set: automaton.Any}}, max: -1}

type compiler struct{ budget *meter.Meter }

// automaton returns the texts that some parts match one after another, from begin to end. It begins with the parts
// after the last group that looks ahead.
func (c *compiler) automaton(parts []*node) (*automaton.DFA, error) {
	last := len(parts)
	for last > 0 && parts[last-1].kind != look {
		last--
	}
	after := sequenceOf(parts[last:])
	rest, err := c.before(after, nil)
	for err == nil && last > 0 {
		lookahead := parts[last-1]
		first := last - 1
		for first > 0 && parts[first-1].kind != look {
			first--
		}
		after.begins = after.begins || contains(lookahead, begin)
		prefix := sequenceOf(parts[first : last-1])
		switch {
		case prefix.onlyBegins: // A ^ after the group can match only here, where the match of prefix is empty.
		case after.begins:
			return nil, errors.New("a ^ after something and a group that looks ahead is not supported")
		case prefix.ends:
			return nil, errors.New("a $ before a group that looks ahead is not supported")
		}
		if rest, err = c.looking(lookahead, rest); err == nil && !prefix.onlyBegins {
			rest, err = c.before(prefix, rest)
		}
		after.begins = after.begins || prefix.begins
		last = first
	}
	return rest, err
}

// run is a sequence of parts of which none looks ahead.
type run struct {
	parts        []*node
	begins, ends bool // whether the parts contain a ^, and a $
	onlyBegins   bool // whether no part is anything but a ^
}

func sequenceOf(parts []*node) *run {
	has := func(k kind) bool {
		return slices.ContainsFunc(parts, func(n *node) bool { return contains(n, k) })
	}
	return &run{parts, has(begin), has(end), !slices.ContainsFunc(parts, func(n *node) bool { return n.kind != begin })}
}

// before returns the texts that r matches, each followed by a text of rest if rest is not nil.
func (c *compiler) before(r *run, rest *automaton.DFA) (*automaton.DFA, error) {
	b := automaton.NewBuilder(c.budget)
	source, middle := b.State(), b.State()
	if err := c.add(b, &node{kind: sequence, parts: r.parts}, source, middle); err != nil {
		return nil, err
	}
	if rest == nil {
		b.Accept(middle, 0)
		return b.Build()
	}
	target := b.State()
	b.Accept(target, 0)
	b.Embed(rest, middle, target)
	return b.Build()
}

// looking returns the texts of rest that begin with a match of lookahead or, if it is negated, those that do not.
func (c *compiler) looking(lookahead *node, rest *automaton.DFA) (*automaton.DFA, error) {
	begins, err := c.automaton(append(flat(nil, lookahead.parts[0]), anyText))
	if err != nil {
		return nil, err
	}
	if lookahead.negative {
		return automaton.Subtract(rest, begins, c.budget)
	}
	return automaton.Intersect(rest, begins, c.budget)
}

// flat appends the parts of a sequence, with the parts of nested sequences in their place.
func flat(out []*node, n *node) []*node {
	if n.kind != sequence {
		return append(out, n)
	}
	for _, part := range n.parts {
		out = flat(out, part)
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
	case literal:
		b.Literal(source, string(n.text), target)
	case begin:
		b.Begin(source, target)
	case end:
		b.End(source, target)
	case look:
		return errors.New("a group that looks ahead inside a repeat or an alternative is not supported")
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
