package sweep

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"llmmemory/internal/simulation/sim"
)

// ParseSystems reads "a,b", or "all".
func ParseSystems(text string) []string {
	if text == "all" {
		return sim.Systems()
	}
	return items(text)
}

// ParseRates parses lists such as "0.5,1,2" and ranges such as "0.5:3:0.25", which has steps of 0.25 and
// includes both ends.
func ParseRates(text string) ([]float64, error) {
	var all []float64
	for _, item := range items(text) {
		parts := strings.Split(item, ":")
		var v [3]float64
		var err error
		for i := range min(len(parts), len(v)) {
			if v[i], err = strconv.ParseFloat(parts[i], 64); err != nil {
				break
			}
		}
		first, last, step := v[0], v[1], v[2]
		switch {
		case err != nil || len(parts) != 1 && len(parts) != 3:
			return nil, fmt.Errorf("%w: rates %q: want numbers, or from:to:step", ErrGrid, item)
		case len(parts) == 1:
			all = append(all, first)
			continue
		case !(step > 0) || !(last >= first) || !((last-first)/step < maxJobs):
			return nil, fmt.Errorf("%w: rates %q: want from:to:step that begins below its end and has a step above 0, and at "+
				"most %d of them",
				ErrGrid, item, maxJobs)
		}
		for i := range int((last-first)/step+1e-9) + 1 {
			all = append(all, math.Round((first+float64(i)*step)*1e9)/1e9) // 0.3, not 0.30000000000000004
		}
	}
	return all, nil
}

// ParseInts reads "1,4,8" and "1-8".
func ParseInts[T int | uint64](name, text string) ([]T, error) {
	var all []T
	for _, item := range items(text) {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 63)
		b, err2 := strconv.ParseUint(last, 10, 63)
		if err1 != nil || err2 != nil || b < a || b-a >= maxJobs {
			return nil, fmt.Errorf("%w: %s %q: want whole numbers like 1,4 or 1-8, at most %d of them", ErrGrid, name, item,
				maxJobs)
		}
		for v := a; v <= b; v++ {
			all = append(all, T(v))
		}
	}
	return all, nil
}

func items(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
