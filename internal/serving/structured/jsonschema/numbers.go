package jsonschema

import (
	"slices"

	"llmmemory/internal/serving/meter"
)

// numbers is an alternative of numbers.
type numbers struct {
	whole, broken bool // whole: only integers; broken: only numbers that are not integers
	limits        []limit
	multiples     []multiple
	listed        bool // only those of list, all of which the fields above allow
	list          []constant
}

// constant is a number in enum or const. An answer may write it in the shortest form without exponent. Where it need
// not be an integer, the answer may also write it as text, as the schema does, or as decimal.scientific does.
type constant struct {
	decimal
	text string
}

// limit compares a number with a bound.
type limit struct {
	bound    decimal
	relation relation
	origin   origin
}

type relation byte

const (
	atLeast relation = iota
	greaterThan
	atMost
	lessThan
	differs
)

// lower reports whether the relation is a lower limit.
func (r relation) lower() bool { return r <= greaterThan }

// holds reports whether the relation is true of a number. The parameter order is -1, 0 or 1 if the number is
// below, equal to or above the bound.
func (r relation) holds(order int) bool {
	switch r {
	case atLeast:
		return order >= 0
	case greaterThan:
		return order > 0
	case atMost:
		return order <= 0
	case lessThan:
		return order < 0
	}
	return order != 0
}

// multiple requires a multiple of step. If negated is true, it requires a number that is not a multiple.
type multiple struct {
	step    decimal
	negated bool
	schema  *value
}

func (n numbers) free() bool {
	return !n.whole && !n.broken && len(n.limits) == 0 && len(n.multiples) == 0 && !n.listed
}

// conditions is the work of allows for one number.
func (n *numbers) conditions() int { return 1 + len(n.limits) + multipleWork*len(n.multiples) }

// multipleWork is the work of one division.
const multipleWork = 20

// allows reports whether a number satisfies all but the list of n.
func (n *numbers) allows(d decimal) bool {
	if n.whole && !d.isInteger() || n.broken && d.isInteger() {
		return false
	}
	for _, l := range n.limits {
		if !l.relation.holds(d.cmp(l.bound)) {
			return false
		}
	}
	for _, m := range n.multiples {
		if d.isMultiple(m.step) == m.negated {
			return false
		}
	}
	return true
}

func (n numbers) intersect(o numbers, budget *meter.Meter) (numbers, bool, error) {
	switch {
	case n.free():
		return o, true, nil
	case o.free():
		return n, true, nil
	case n.listed || o.listed:
		if !n.listed {
			n, o = o, n
		}
		return n.only(&o, budget)
	}
	if err := budget.Spend((len(n.limits) + len(n.multiples)) * (1 + len(o.limits) + len(o.multiples))); err != nil {
		return n, false, err
	}
	n.whole, n.broken = n.whole || o.whole, n.broken || o.broken
	n.multiples = slices.Clone(n.multiples)
	for _, m := range o.multiples {
		if !slices.ContainsFunc(n.multiples, func(known multiple) bool { return known.step == m.step && known.negated == m.negated }) {
			n.multiples = append(n.multiples, m)
		}
	}
	n.limits = slices.Clone(n.limits)
	for _, l := range o.limits {
		n.limits = tighten(n.limits, l)
	}
	return n, !(n.whole && n.broken) && n.possible(), nil
}

// only returns those numbers of n, which is a list, that o allows.
func (n numbers) only(o *numbers, budget *meter.Meter) (numbers, bool, error) {
	if err := budget.Spend(len(n.list)*o.conditions() + len(o.list)); err != nil {
		return n, false, err
	}
	var other map[decimal]bool
	if o.listed {
		other = make(map[decimal]bool, len(o.list))
		for _, c := range o.list {
			other[c.decimal] = true
		}
	}
	kept := numbers{whole: n.whole || o.whole, listed: true}
	for _, c := range n.list {
		if (!o.listed || other[c.decimal]) && o.allows(c.decimal) {
			kept.list = append(kept.list, c)
		}
	}
	return kept, len(kept.list) > 0, nil
}

// tighten adds a limit to limits, or replaces a weaker limit in the same direction.
func tighten(limits []limit, l limit) []limit {
	for i, other := range limits {
		order := l.bound.cmp(other.bound)
		switch {
		case l.relation == differs && other.relation == differs && order == 0:
			return limits
		case l.relation == differs || other.relation == differs || l.relation.lower() != other.relation.lower():
			continue
		case l.relation.lower() && (order < 0 || order == 0 && l.relation == atLeast),
			!l.relation.lower() && (order > 0 || order == 0 && l.relation == atMost):
			return limits // weaker
		}
		limits[i] = l
		return limits
	}
	return append(limits, l)
}

// possible reports whether a number can satisfy both the lower and the upper limit. There is at most one of each.
func (n *numbers) possible() bool {
	low := slices.IndexFunc(n.limits, func(l limit) bool { return l.relation.lower() })
	high := slices.IndexFunc(n.limits, func(l limit) bool { return l.relation == atMost || l.relation == lessThan })
	if low < 0 || high < 0 {
		return true
	}
	order := n.limits[low].bound.cmp(n.limits[high].bound)
	return order < 0 || order == 0 && n.limits[low].relation == atLeast && n.limits[high].relation == atMost
}
