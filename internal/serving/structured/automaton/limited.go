package automaton

import (
	"math"

	"llmmemory/internal/serving/meter"
)

// Limited accepts the texts of an automaton that have at least minimum and at most maximum characters. A state of
// Limited is a pair: a state of the automaton, and the number of characters read so far. If there is no upper limit,
// the number stops at minimum. Limited does not store its states: Next computes them. From each state that Next
// returns, an accepting state can be reached.
type Limited struct {
	*DFA
	minimum, maximum int
	alive            []uint64 // one bit for each state: whether it can reach an accepting state
}

// Limit returns an automaton for the texts of d with minimum to maximum characters. If maximum is below 0, there is
// no upper limit.
func Limit(d *DFA, minimum, maximum int, budget *meter.Meter) (*Limited, error) {
	last := maximum
	if maximum < 0 {
		last = minimum // from here on, the number makes no difference
	}
	n := d.States()
	if last >= math.MaxInt32/max(1, n) {
		return nil, budget.Spend(math.MaxInt)
	}
	if err := budget.Spend(LimitWork(d, minimum, maximum)); err != nil {
		return nil, err
	}
	l := &Limited{d, minimum, maximum, make([]uint64, ((last+1)*n+63)/64)}
	if maximum < 0 { // every state of d can reach an accepting one
		for state := range n {
			l.mark(last, state)
		}
		last--
	}
	targets := d.targets()
	for count := last; count >= 0; count-- {
		for state := range n {
			ends := count >= minimum && d.tags[state] != None
			for _, target := range targets[state] {
				ends = ends || (count < maximum || maximum < 0) && l.isAlive(count+1, int(target))
			}
			if ends {
				l.mark(count, state)
			}
		}
	}
	return l, nil
}

// LimitWork returns the work of Limit.
func LimitWork(d *DFA, minimum, maximum int) int {
	return (max(minimum, maximum) + 1) * (d.States()*d.width/limitedWork + 1)
}

// limitedWork is how many transitions Limit follows at the cost of one unit of a Budget.
const limitedWork = 8

// targets returns the states that follow each state, each once.
func (d *DFA) targets() [][]int32 {
	out := make([][]int32, d.States())
	seen := make([]int32, d.States())
	for state := range out {
		for _, target := range d.next[state*d.width : (state+1)*d.width] {
			if target != None && seen[target] != int32(state)+1 {
				seen[target] = int32(state) + 1
				out[state] = append(out[state], target)
			}
		}
	}
	return out
}

func (l *Limited) mark(count, state int) {
	i := count*l.States() + state
	l.alive[i/64] |= 1 << (i % 64)
}

func (l *Limited) isAlive(count, state int) bool {
	i := count*l.States() + state
	return l.alive[i/64]>>(i%64)&1 == 1
}

// Empty reports whether no text has the length.
func (l *Limited) Empty() bool { return l.DFA.Empty() || !l.isAlive(0, 0) }

// Next returns the state after a character of a class, or None.
func (l *Limited) Next(state, class int32) int32 {
	n := int32(l.States())
	count, target := int(state/n), l.DFA.Next(state%n, class)
	if target == None || count == l.maximum {
		return None
	}
	if l.maximum >= 0 || count < l.minimum {
		count++
	}
	if !l.isAlive(count, int(target)) {
		return None
	}
	return int32(count)*n + target
}

// Tag returns the tag with which a state accepts, or None.
func (l *Limited) Tag(state int32) int32 {
	n := int32(l.States())
	if int(state/n) < l.minimum {
		return None
	}
	return l.DFA.Tag(state % n)
}
