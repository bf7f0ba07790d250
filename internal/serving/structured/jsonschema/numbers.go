package jsonschema

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// numbers is an alternative of numbers.
type numbers struct {
	whole, broken bool // whole: only integers; broken: only numbers that are not integers
	limits        []limit
	multiples     []multiple
	listed        bool // only those of list, all of which the fields above allow
	list          []constant
}

// constant is a number in enum or const. An answer may write it in the shortest form without exponent. If text is not
// "", the answer may also write it as text, which is the number as the schema writes it.
type constant struct {
	*big.Rat
	text string
}

// limit compares a number with a bound.
type limit struct {
	bound    *big.Rat
	relation relation
}

type relation byte

const (
	atLeast relation = iota
	greaterThan
	atMost
	lessThan
	differs
)

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
	step    *big.Rat
	negated bool
	schema  *value
}

func (n numbers) free() bool {
	return !n.whole && !n.broken && len(n.limits) == 0 && len(n.multiples) == 0 && !n.listed
}

func (n *numbers) allows(r *big.Rat) bool {
	if n.whole && !r.IsInt() || n.broken && r.IsInt() {
		return false
	}
	for _, l := range n.limits {
		if !l.relation.holds(r.Cmp(l.bound)) {
			return false
		}
	}
	for _, m := range n.multiples {
		if new(big.Rat).Quo(r, m.step).IsInt() == m.negated {
			return false
		}
	}
	return !n.listed || slices.ContainsFunc(n.list, func(x constant) bool { return x.Cmp(r) == 0 })
}

func (n numbers) intersect(o numbers) (numbers, bool) {
	if n.free() {
		return o, true
	}
	if o.free() {
		return n, true
	}
	if n.listed || o.listed {
		if !n.listed {
			n, o = o, n
		}
		kept := slices.DeleteFunc(slices.Clone(n.list), func(r constant) bool { return !o.allows(r.Rat) })
		for i := range kept {
			if o.whole {
				kept[i].text = ""
			}
		}
		return numbers{listed: true, list: kept}, len(kept) > 0
	}
	n.whole, n.broken = n.whole || o.whole, n.broken || o.broken
	n.multiples = slices.Concat(n.multiples, o.multiples)
	n.limits = slices.Clone(n.limits)
	for _, l := range o.limits {
		n.limits = tighten(n.limits, l)
	}
	return n, !(n.whole && n.broken) && n.possible()
}

// tighten adds a limit to limits, or replaces a weaker limit in the same direction.
func tighten(limits []limit, l limit) []limit {
	for i, other := range limits {
		order := l.bound.Cmp(other.bound)
		switch {
		case l.relation == differs || other.relation == differs || (l.relation <= greaterThan) != (other.relation <= greaterThan):
			continue
		case l.relation <= greaterThan && (order < 0 || order == 0 && l.relation == atLeast),
			l.relation > greaterThan && (order > 0 || order == 0 && l.relation == atMost):
			return limits // weaker
		}
		limits[i] = l
		return limits
	}
	return append(limits, l)
}

// possible reports whether a number can satisfy both the lower and the upper limits.
func (n *numbers) possible() bool {
	for _, low := range n.limits {
		for _, high := range n.limits {
			if low.relation <= greaterThan && (high.relation == atMost || high.relation == lessThan) {
				order := low.bound.Cmp(high.bound)
				if order > 0 || order == 0 && (low.relation == greaterThan || high.relation == lessThan) {
					return false
				}
			}
		}
	}
	return true
}

const (
	maxDigits   = 400
	maxExponent = 400
)

// parseDecimal parses a JSON number. It returns an error if the number has more than maxDigits characters
// before its exponent, or if its exponent is above maxExponent or below -maxExponent.
func parseDecimal(text string) (*big.Rat, error) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if e, err := strconv.Atoi(exponent); exponent != "" && (err != nil || e > maxExponent || e < -maxExponent) || len(mantissa) > maxDigits {
		return nil, fmt.Errorf("the number %.20s has more than %d digits or an exponent above %d", text, maxDigits, maxExponent)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%.20s is not a number", text)
	}
	return r, nil
}

// decimals returns the digits of a number before and after the point, without its sign. Every number in a
// schema has a finite number of digits.
func decimals(r *big.Rat) (whole, fraction string) {
	abs := new(big.Rat).Abs(r)
	places := 0
	scaled := new(big.Rat).Set(abs)
	for ten := big.NewRat(10, 1); !scaled.IsInt() && places < maxDigits+maxExponent; places++ {
		scaled.Mul(scaled, ten)
	}
	whole, fraction, _ = strings.Cut(abs.FloatString(places), ".")
	return whole, fraction
}

// written returns the shortest form of a number without exponent.
func written(r *big.Rat) string {
	whole, fraction := decimals(r)
	if fraction != "" {
		whole += "." + fraction
	}
	if r.Sign() < 0 {
		return "-" + whole
	}
	return whole
}
