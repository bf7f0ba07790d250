package automaton

import (
	"math"
	"slices"

	"llmmemory/internal/serving/meter"
)

// Limited accepts the texts of an automaton that have at least minimum and at most maximum characters. A state of
// Limited is a pair: a state of the automaton, and the number of characters read so far. If there is no upper limit,
// the number stops at minimum. Limited does not store its states: Next computes them. From each state that Next
// returns, an accepting state can be reached.
type Limited struct {
	*DFA
	minimum, maximum int
	shortest         []int32  // of each state: characters of the shortest text that leads to an accepting one
	farthest         int32    // the largest of these numbers
	first            int      // the number of characters of the first row; smaller numbers have the same row
	rows             [][]bool // up to minimum characters: whether each state can reach an accepting one
}

// Limit returns an automaton for the texts of d with minimum to maximum characters. If maximum is below 0, there is
// no upper limit. The work depends on minimum, not on maximum.
func Limit(d *DFA, minimum, maximum int, budget *meter.Meter) (*Limited, error) {
	n := d.States()
	if last := max(minimum, maximum); last >= math.MaxInt32/max(1, n) {
		return nil, &meter.LimitError{Limit: meter.Work, Allowed: budget.Left()}
	}
	rowWork := n*d.width/limitedWork + 1
	if err := budget.Spend(2 * rowWork); err != nil {
		return nil, err
	}
	targets := d.targets()
	l := &Limited{DFA: d, minimum: minimum, maximum: maximum, shortest: d.distances(targets)}
	for _, distance := range l.shortest {
		l.farthest = max(l.farthest, distance)
	}
	row := make([]bool, n) // that of minimum characters, then that of one less, and so on
	for state := range row {
		row[state] = l.canEnd(minimum, state)
	}
	rows := [][]bool{row}
	for changed := true; changed && len(rows) <= minimum; {
		if err := budget.Spend(rowWork); err != nil {
			return nil, err
		}
		if err := budget.Keep(n); err != nil {
			return nil, err
		}
		before := make([]bool, n)
		changed = false
		for state := range before {
			before[state] = slices.ContainsFunc(targets[state], func(target int32) bool { return row[target] })
			changed = changed || before[state] != row[state]
		}
		rows, row = append(rows, before), before
	}
	slices.Reverse(rows)
	l.first, l.rows = minimum+1-len(rows), rows
	return l, nil
}

// limitedWork is how many transitions Limit follows at the cost of one unit of a Meter.
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

// distances returns for each state the number of characters of the shortest text that leads to an accepting state.
func (d *DFA) distances(targets [][]int32) []int32 {
	sources := make([][]int32, len(targets))
	for source, list := range targets {
		for _, target := range list {
			sources[target] = append(sources[target], int32(source))
		}
	}
	distances := make([]int32, len(targets))
	var reached []int32
	for state, tag := range d.tags {
		distances[state] = None
		if tag != None {
			distances[state] = 0
			reached = append(reached, int32(state))
		}
	}
	for i := 0; i < len(reached); i++ {
		for _, source := range sources[reached[i]] {
			if distances[source] == None {
				distances[source] = distances[reached[i]] + 1
				reached = append(reached, source)
			}
		}
	}
	return distances
}

// canEnd reports whether a state can reach an accepting state after count characters, which are at least minimum.
func (l *Limited) canEnd(count, state int) bool {
	return l.maximum < 0 || int(l.shortest[state]) <= l.maximum-count
}

// isAlive reports whether a state can reach an accepting state after count characters.
func (l *Limited) isAlive(count, state int) bool {
	if count >= l.minimum {
		return l.canEnd(count, state)
	}
	return l.rows[max(0, count-l.first)][state]
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

// Alike returns a state from which Next and Tag allow the same texts of at most longest characters as from the given
// state. If such a text cannot reach the first row, the state that Alike returns has read no characters. If minimum is
// reached and maximum is too far away to matter, that state has read minimum characters.
func (l *Limited) Alike(state int32, longest int) int32 {
	n := int32(l.States())
	count := int(state / n)
	switch {
	case count+longest < l.first:
		return state % n
	case l.maximum >= 0 && count >= l.minimum && count+longest+int(l.farthest) <= l.maximum:
		return int32(l.minimum)*n + state%n
	}
	return state
}
