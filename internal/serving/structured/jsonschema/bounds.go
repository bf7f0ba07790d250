package jsonschema

import (
	"cmp"
	"math"
	"strconv"
)

// bound is a limit of a digitMachine.
type bound struct {
	whole, fraction string
	decimal
	relation relation
}

// stops reports whether the bound limits how large the absolute values of numbers with a sign may be.
func (b bound) stops(minus bool) bool {
	return b.relation != differs && b.relation.lower() == minus
}

// beyond reports whether each number that begins with what has been read is above an upper limit or below a lower one. So
// numbers between two limits have few states, even if the steps of multipleOf have many remainders. If an exponent may
// follow, beyond always returns false.
func (m *digitMachine) beyond(s digits) bool {
	if m.exponents && s.scientific {
		return false
	}
	for i, b := range m.limits {
		if b.stops(s.minus) && s.exceeds(i, b) {
			return true
		}
	}
	return false
}

// exceeds reports whether what has been read, which has no exponent, is above the absolute value of bound i. If it is,
// each number that begins with it is.
func (s *digits) exceeds(i int, b bound) bool {
	if s.phase >= point {
		return s.limits[i].order > 0
	}
	return s.limits[i].whole(b) > 0
}

// reach returns the largest whole number that the machine reads, before a point and after the given sign, without being
// beyond a limit. If there is no such limit, it returns a number that is larger than each product of moduli.
func (m *digitMachine) reach(minus bool) int64 {
	reach := int64(math.MaxInt64 - 1)
	for _, b := range m.limits {
		if n, err := strconv.ParseInt(b.whole, 10, 64); err == nil && b.stops(minus) {
			reach = min(reach, n)
		}
	}
	return reach
}

// order compares the number with bound i.
func (m *digitMachine) order(s digits, i int, b bound) int {
	var order int // of the absolute values
	switch {
	case s.phase == exponentDigits:
		order = s.scientificOrder(i, b)
	case s.phase == fraction:
		order = int(s.limits[i].decimals(b.fraction))
	default:
		order = int(comparison{order: s.limits[i].whole(b)}.decimals(b.fraction))
	}
	switch {
	case s.minus && b.sign() > 0:
		return -1
	case !s.minus && b.sign() < 0:
		return 1
	case s.minus:
		return -order
	}
	return order
}

// scientificOrder compares the absolute value of a number that has an exponent with that of bound i.
func (s *digits) scientificOrder(i int, b bound) int {
	switch {
	case !s.nonzero && b.sign() == 0:
		return 0
	case !s.nonzero:
		return -1
	case b.sign() == 0:
		return 1
	}
	exponent := int(s.exponent.value)
	if s.exponent.minus {
		exponent = -exponent
	}
	return cmp.Or(cmp.Compare(exponent, b.exponent-1), int(s.mantissa[i].order))
}

// comparison compares the digits read with those of a bound.
type comparison struct {
	order int8
	place int16 // digits read, before or after the point; it stops after the last digit of the bound
}

// read compares the next digit.
func (c *comparison) read(bound string, d int, decimal bool) {
	i := int(c.place)
	switch {
	case i < len(bound):
		c.place++
		if c.order == 0 {
			c.order = int8(cmp.Compare(d, int(bound[i]-'0')))
		}
		if decimal && c.order != 0 {
			c.place = int16(len(bound)) // the other digits make no difference
		}
	case !decimal:
		c.place = int16(len(bound) + 1)
		c.order = 1
	case c.order == 0 && d > 0:
		c.order = 1
	}
}

// whole returns the order of the digits before the point.
func (c comparison) whole(b bound) int8 {
	switch {
	case int(c.place) < len(b.whole):
		return -1
	case int(c.place) > len(b.whole):
		return 1
	}
	return c.order
}

// decimals returns the order after all decimals, which read has compared with those of a bound.
func (c comparison) decimals(bound string) int8 {
	if c.order == 0 && int(c.place) < len(bound) { // the bound's other decimals do not all equal 0
		return -1
	}
	return c.order
}
