package page

import (
	"fmt"
	"slices"
	"time"
)

// A stageTime is how long a stage took.
type stageTime struct {
	Name         string
	Runs         int
	Median, Most time.Duration
}

// Seconds has as many digits as are worth reading.
func (stageTime) Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

const everything = "everything"

func stageTimes(entries []Entry) []stageTime {
	var order []string
	times := map[string][]time.Duration{}
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		for _, s := range e.Report.Stages {
			name := string(s.Name)
			if times[name] == nil {
				order = append(order, name)
			}
			times[name] = append(times[name], s.Time)
		}
		times[everything] = append(times[everything], e.Report.Time)
	}
	var all []stageTime
	for _, name := range append(order, everything) {
		if runs := times[name]; len(runs) > 0 {
			all = append(all, stageTime{name, len(runs), median(runs), slices.Max(runs)})
		}
	}
	return all
}

func median[T time.Duration | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
