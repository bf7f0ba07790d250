package jsonschema

import (
	"cmp"
	"math/big"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/regex"
)

const (
	wholePattern  = `-?(0|[1-9][0-9]*)`
	numberPattern = wholePattern + `(\.[0-9]+)?([eE][+-]?[0-9]+)?`
)

// automaton returns how the numbers of an alternative are written.
func (n *numbers) automaton(budget *meter.Meter) (*automaton.DFA, error) {
	switch {
	case n.free():
		return regex.Full(numberPattern, budget)
	case n.listed:
		var texts []string
		for _, r := range n.list {
			texts = append(texts, written(r.Rat))
			if r.text != "" {
				texts = append(texts, r.text)
			}
		}
		d, err := automaton.Texts(texts, budget)
		if err != nil {
			return nil, err
		}
		return d.Untagged(), nil
	case n.whole && len(n.limits) == 0 && len(n.multiples) == 0:
		return regex.Full(wholePattern, budget)
	}
	m, err := n.machine()
	if err != nil {
		return nil, err
	}
	return automaton.Explore([]rune("-.0123456789"), digits{}, m.step, m.accept, budget)
}

const (
	maxLimits    = 6
	maxMultiples = 4
	maxModulus   = 20000
)

// digits is the state of a digitMachine after the characters of a number that have been read so far.
type digits struct {
	phase      digitPhase
	minus      bool
	broken     bool // a decimal is not 0
	limits     [maxLimits]comparison
	remainders [maxMultiples]remainder
}

type digitPhase byte

const (
	atSign digitPhase = iota
	atFirst
	zero // a first 0, after which no digit comes
	whole
	point
	fraction
)

// comparison compares the digits read with those of a bound.
type comparison struct {
	order int8
	place int16 // digits read, before or after the point; it stops after the last digit of the bound
}

// remainder is the state of a division by a step of multipleOf: its value so far, and the number of decimals read.
// Decimals after the last one of the step are not counted.
type remainder struct {
	value  int32
	places int16
	broken bool // a decimal after the last one that a multiple can have is not 0
}

type digitMachine struct {
	numbers *numbers
	limits  []bound
	steps   []modulus
}

type bound struct {
	whole, fraction string
	sign            int
	relation        relation
}

type modulus struct {
	modulus int64 // of the number without its point
	places  int
	negated bool
}

func (n *numbers) machine() (*digitMachine, error) {
	m := &digitMachine{numbers: n}
	for _, l := range n.limits {
		b := bound{sign: l.bound.Sign(), relation: l.relation}
		b.whole, b.fraction = decimals(l.bound)
		m.limits = append(m.limits, b)
	}
	for _, step := range n.multiples {
		_, fraction := decimals(step.step)
		scaled := new(big.Rat).Mul(step.step, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)))
		if !scaled.IsInt() || scaled.Num().Cmp(big.NewInt(maxModulus)) > 0 {
			return nil, refuse(step.schema, "multipleOf", "a step whose digits are more than %d is not supported", maxModulus)
		}
		m.steps = append(m.steps, modulus{scaled.Num().Int64(), len(fraction), step.negated})
	}
	if len(m.limits) > maxLimits || len(m.steps) > maxMultiples {
		return nil, meter.ErrTooLarge
	}
	return m, nil
}

func (m *digitMachine) step(s digits, r rune) (digits, bool) {
	switch {
	case r == '-':
		s.minus = true
		ok := s.phase == atSign
		s.phase = atFirst
		return s, ok
	case r == '.':
		ok := (s.phase == zero || s.phase == whole) && !m.numbers.whole
		s.phase = point
		for i, b := range m.limits {
			s.limits[i] = comparison{order: s.limits[i].whole(b)}
		}
		return s, ok
	case s.phase == zero:
		return s, false
	}
	d := int(r - '0')
	decimal := s.phase >= point
	switch {
	case decimal:
		s.phase = fraction
		s.broken = s.broken || d > 0
	case s.phase != whole && d == 0:
		s.phase = zero
	default:
		s.phase = whole
	}
	for i, b := range m.limits {
		if decimal {
			s.limits[i].read(b.fraction, d, true)
		} else {
			s.limits[i].read(b.whole, d, false)
		}
	}
	for i, step := range m.steps {
		s.remainders[i].read(step, d, decimal)
	}
	return s, true
}

// read compares the next digit.
func (c *comparison) read(bound string, d int, decimal bool) {
	i := int(c.place)
	if i < len(bound) {
		c.place++
		if c.order == 0 {
			c.order = int8(cmp.Compare(d, int(bound[i]-'0')))
		}
		return
	}
	if !decimal {
		c.place = int16(len(bound) + 1)
		c.order = 1
	} else if c.order == 0 && d > 0 {
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

func (r *remainder) read(m modulus, d int, decimal bool) {
	if decimal {
		if int(r.places) == m.places {
			r.broken = r.broken || d > 0
			return
		}
		r.places++
	}
	r.value = int32((int64(r.value)*10 + int64(d)) % m.modulus)
}

func (m *digitMachine) accept(s digits) int32 {
	if s.phase != zero && s.phase != whole && s.phase != fraction || m.numbers.broken && !s.broken {
		return automaton.None
	}
	for i, b := range m.limits {
		if !b.relation.holds(m.order(s, s.limits[i], b)) {
			return automaton.None
		}
	}
	for i, step := range m.steps {
		r := s.remainders[i]
		for ; int(r.places) < step.places; r.places++ {
			r.value = int32(int64(r.value) * 10 % step.modulus)
		}
		if (r.value == 0 && !r.broken) == step.negated {
			return automaton.None
		}
	}
	return 0
}

// order compares the number with a bound.
func (m *digitMachine) order(s digits, c comparison, b bound) int {
	order := int(c.order)
	if s.phase != fraction {
		order = int(c.whole(b))
		c.place = 0
	}
	if order == 0 && int(c.place) < len(b.fraction) { // the bound's other decimals do not all equal 0
		order = -1
	}
	switch {
	case s.minus && b.sign > 0:
		return -1
	case !s.minus && b.sign < 0:
		return 1
	case s.minus:
		return -order
	}
	return order
}
