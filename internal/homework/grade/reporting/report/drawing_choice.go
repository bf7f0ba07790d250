package report

import "slices"

// gap stands for columns that are left out.
const gap = -1

// pick chooses the columns of a strip that fit in a line of limit characters. First it takes wrong columns, then the
// columns that the call had to change, then the neighbours of both. The ends follow, and finally the others from the
// left. pick returns the indices of the chosen columns from left to right. In the place of columns that were not
// chosen, the result has the value gap.
func pick(s strip, limit int, width func(column int) int, gapWidth int) []int {
	chosen := make([]bool, len(s))
	refused := 0
	for _, i := range byInterest(s) {
		if chosen[i] {
			continue
		}
		chosen[i] = true
		if total(chosen, width, gapWidth) > limit {
			chosen[i] = false
			if refused++; refused == 8 { // the rest is barely narrower
				break
			}
		}
	}
	var columns []int
	for i, in := range chosen {
		if in {
			columns = append(columns, i)
		} else if len(columns) == 0 || columns[len(columns)-1] != gap {
			columns = append(columns, gap)
		}
	}
	return columns
}

func byInterest(s strip) []int {
	var order, beside []int
	for _, m := range []mark{wrong, changed} {
		for i := range s {
			if s[i].mark() == m {
				order = append(order, i)
				beside = append(beside, max(0, i-1), min(len(s)-1, i+1))
			}
		}
	}
	order = append(order, beside...)
	if len(s) > 0 {
		order = append(order, 0, len(s)-1)
	}
	for i := range s {
		order = append(order, i)
	}
	return order
}

func total(chosen []bool, width func(int) int, gapWidth int) int {
	sum := 0
	for i, in := range chosen {
		if in {
			sum += width(i)
		} else if i == 0 || chosen[i-1] {
			sum += gapWidth
		}
	}
	return sum
}

// A row is a line of the drawing for a table of a sequence, or for a sequence without tables.
type row struct{ sequence, table int }

// rows chooses at most maxRows rows. It prefers rows with differences, and then rows of the sequences that the call
// names. It adds other rows only while there are fewer than maxRows/2 rows. rows returns the chosen rows in their
// original order, and the number of the rows that were not chosen.
func (v *view) rows(maxRows int) (chosen []row, omitted int) {
	var all []row
	for i := range v.sequences {
		for j := range max(1, len(v.sequences[i].tables)) {
			all = append(all, row{i, j})
		}
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b row) int { return v.interest(b) - v.interest(a) })
	sorted = sorted[:min(maxRows, len(sorted))]
	for dull := len(sorted); dull > maxRows/2 && v.interest(sorted[dull-1]) == 0; dull-- {
		sorted = sorted[:dull-1]
	}
	omitted = len(all) - len(sorted)
	return slices.DeleteFunc(all, func(r row) bool { return !slices.Contains(sorted, r) }), omitted
}

func (v *view) interest(r row) int {
	n := 2 * int(v.markOf(r))
	if slices.Contains(v.concerned, v.sequences[r.sequence].id) {
		n++
	}
	return n
}

func (v *view) markOf(r row) mark {
	s := &v.sequences[r.sequence]
	if len(s.tables) == 0 {
		return s.mark()
	}
	worst := s.tables[r.table].mark()
	if r.table == 0 { // its line also shows the sequence
		whole := *s
		whole.tables = nil
		worst = max(worst, whole.mark())
	}
	return worst
}
