package jsonschema

import (
	"cmp"
	"strconv"
	"strings"

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
		return n.constants(budget)
	case n.whole && len(n.limits) == 0 && len(n.multiples) == 0:
		return regex.Full(wholePattern, budget)
	}
	m, err := n.machine()
	if err != nil {
		return nil, err
	}
	alphabet := "-.0123456789"
	if m.exponents {
		alphabet += "+eE"
	}
	if work := m.remainders() * (len(alphabet) + 1); work > budget.Left() {
		return nil, budget.Spend(work) // the error, before any state is made
	}
	return automaton.Explore([]rune(alphabet), digits{}, m.step, m.accept, budget)
}

// remainders returns how many combinations of remainders whole numbers that are not beyond a limit have. The automaton
// that Explore makes has at least a state for each of them.
func (m *digitMachine) remainders() int {
	all := int64(1) // the least common multiple of the moduli: at most maxModulus to the power of maxMultiples, which is below 2^58
	for _, step := range m.steps {
		a, b := all, step.modulus
		for b != 0 {
			a, b = b, a%b
		}
		all *= step.modulus / a
	}
	return int(min(all, 1+max(m.reach(false), m.reach(true))))
}

// constants returns how the numbers of a list are written.
func (n *numbers) constants(budget *meter.Meter) (*automaton.DFA, error) {
	var texts []string
	for _, c := range n.list {
		texts = append(texts, c.String())
		if err := budget.Spend(1 + len(texts[len(texts)-1])); err != nil {
			return nil, err
		}
		if !n.whole {
			texts = append(append(texts, c.text), c.scientific()...)
		}
	}
	d, err := automaton.Texts(texts, budget)
	if err != nil {
		return nil, err
	}
	return d.Untagged(), nil
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
	scientific bool // an exponent may follow the digits so far, or a fraction and then an exponent
	nonzero    bool // scientific is set, or was set before the exponent, and a digit of the mantissa is not 0
	limits     [maxLimits]comparison
	mantissa   [maxLimits]comparison // with the bounds' digits, from the first one that is not 0; used if nonzero is set
	remainders [maxMultiples]remainder
	exponent   exponent
}

type digitPhase byte

const (
	atSign digitPhase = iota
	atFirst
	zero // a first 0, after which no digit comes
	whole
	point
	fraction
	exponentSign  // after the e
	exponentFirst // after the sign
	exponentDigits
)

// exponent is what has been read of an exponent. The value stops at the machine's largest one.
type exponent struct {
	minus bool
	value int16
}

// remainder is the state of a division by a step of multipleOf: its value so far, and the number of decimals read.
// Decimals after the last one of the step are not counted.
type remainder struct {
	value  int32
	places int16
	broken bool // a decimal after the last one that a multiple can have is not 0
}

// digitMachine reads a number and decides whether an alternative of numbers allows it.
//
// The number may have an exponent unless multipleOf or the type integer limits it. If a bound is not 0, an exponent may
// follow only a mantissa with one digit before the point, which is not 0 unless the number is 0. No automaton could
// compare mantissas of any length, with any exponents, with such a bound.
type digitMachine struct {
	numbers   *numbers
	limits    []bound
	steps     []modulus
	exponents bool  // numbers may have an exponent
	signs     bool  // only the sign of the number matters, because each bound is 0
	largest   int16 // is larger than the absolute exponent of each bound, with one digit before the point
}

type modulus struct {
	modulus int64 // of the number without its point
	places  int
	negated bool
}

func (n *numbers) machine() (*digitMachine, error) {
	if len(n.limits) > maxLimits {
		l := n.limits[len(n.limits)-1].origin
		return nil, refuse(l.schema, l.keyword, "more than %d bounds and excluded numbers in one place are not supported", maxLimits)
	}
	if len(n.multiples) > maxMultiples {
		return nil, refuse(n.multiples[0].schema, "multipleOf", "more than %d different steps in one place are not supported", maxMultiples)
	}
	m := &digitMachine{numbers: n, signs: !n.broken, exponents: !n.whole && len(n.multiples) == 0, largest: 1}
	for _, l := range n.limits {
		b := bound{decimal: l.bound, relation: l.relation}
		b.whole, b.fraction = l.bound.parts()
		m.limits = append(m.limits, b)
		m.signs = m.signs && l.bound.sign() == 0
		m.largest = max(m.largest, int16(l.bound.exponent), int16(2-l.bound.exponent))
	}
	for _, step := range n.multiples {
		whole, fraction := step.step.parts()
		scaled, err := strconv.ParseInt(cmp.Or(strings.TrimLeft(whole+fraction, "0"), "0"), 10, 64)
		if err != nil || scaled > maxModulus {
			return nil, refuse(step.schema, "multipleOf", "a step whose digits are more than %d is not supported", maxModulus)
		}
		m.steps = append(m.steps, modulus{scaled, len(fraction), step.negated})
	}
	return m, nil
}

func (m *digitMachine) step(s digits, r rune) (digits, bool) {
	switch {
	case s.phase >= exponentSign:
		return m.readExponent(s, r)
	case r == 'e' || r == 'E':
		return m.beginExponent(s)
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
	case r == '+' || s.phase == zero:
		return s, false
	}
	s = m.readDigit(s, int(r-'0'))
	return s, !m.beyond(s)
}

// readDigit reads a digit of the mantissa.
func (m *digitMachine) readDigit(s digits, d int) digits {
	before, decimal := s.phase, s.phase >= point
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
	if m.exponents {
		m.readMantissa(&s, d, before)
	}
	return s
}

// readMantissa reads a digit of a mantissa, which an exponent may follow. The parameter before is the phase before the
// digit.
func (m *digitMachine) readMantissa(s *digits, d int, before digitPhase) {
	first := before <= atFirst
	s.scientific = m.signs || first || s.scientific && before != whole && (s.nonzero || d == 0)
	s.nonzero = s.scientific && (s.nonzero || d > 0)
	for i, b := range m.limits {
		if !s.nonzero || m.signs {
			s.mantissa[i] = comparison{}
			continue
		}
		s.mantissa[i].read(b.digits, d, true)
	}
}

// beginExponent reads the e of an exponent.
func (m *digitMachine) beginExponent(s digits) (digits, bool) {
	ok := s.scientific && (s.phase == zero || s.phase == whole || s.phase == fraction)
	after := digits{phase: exponentSign, minus: s.minus, nonzero: s.nonzero}
	for i, b := range m.limits {
		after.mantissa[i].order = s.mantissa[i].decimals(b.digits)
	}
	return after, ok
}

// readExponent reads the sign or a digit of an exponent.
func (m *digitMachine) readExponent(s digits, r rune) (digits, bool) {
	switch {
	case r == '+' || r == '-':
		ok := s.phase == exponentSign
		s.phase, s.exponent.minus = exponentFirst, r == '-'
		return s, ok
	case r < '0' || r > '9':
		return s, false
	}
	s.phase = exponentDigits
	if s.nonzero && !m.signs {
		s.exponent.value = min(s.exponent.value*10+int16(r-'0'), m.largest)
	}
	return s, true
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
	switch s.phase {
	case zero, whole, fraction:
	case exponentDigits: // the mantissa is below 10
		s.broken = s.nonzero && s.exponent.minus && s.exponent.value > 0
	default:
		return automaton.None
	}
	if m.numbers.broken && !s.broken {
		return automaton.None
	}
	for i, b := range m.limits {
		if !b.relation.holds(m.order(s, i, b)) {
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
