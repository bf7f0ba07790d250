package experiment

import (
	"fmt"
	"math"

	"llmmemory/internal/simulation/chart"
)

// checkWithinPercent compares with one number of the paper, within a tolerance in percent of it.
func (b *bench) checkWithinPercent(kind chart.Kind, item string, ours chart.Value, paper, percent float64) {
	off := 100 * (ours.Mean - paper) / paper
	b.check(kind, item, fmt.Sprintf("%.2f", paper), meanAndSD(ours), fmt.Sprintf("%+.1f %%", off),
		fmt.Sprintf("within %g %%", percent), math.Abs(off) <= percent)
}

// checkWithinPoints compares percentages, within a tolerance in percentage points.
func (b *bench) checkWithinPoints(kind chart.Kind, item string, ours chart.Value, paper, points float64) {
	off := ours.Mean - paper
	b.check(kind, item, fmt.Sprintf("%.2f %%", paper), meanAndSD(ours)+" %", fmt.Sprintf("%+.2f points", off),
		fmt.Sprintf("within %g points", points), math.Abs(off) <= points)
}

// checkWithinRange compares with a range.
func (b *bench) checkWithinRange(kind chart.Kind, item, paper string, ours chart.Value, low, high float64) {
	tolerance := fmt.Sprintf("%g to %g", low, high)
	if math.IsInf(high, 1) {
		tolerance = fmt.Sprintf("over %g", low)
	}
	b.check(kind, item, paper, meanAndSD(ours), "", tolerance, ours.Mean >= low && ours.Mean <= high)
}

// checkNearRange compares with a range of the paper: how far outside of it, and whether
// that is within a percentage of the nearer end.
func (b *bench) checkNearRange(kind chart.Kind, item string, paper [2]float64, ours chart.Value, percent float64) {
	off, said := 0.0, "inside"
	switch {
	case ours.Mean < paper[0]:
		off = 100 * (ours.Mean/paper[0] - 1)
	case ours.Mean > paper[1]:
		off = 100 * (ours.Mean/paper[1] - 1)
	}
	if off != 0 {
		said = fmt.Sprintf("outside by %.1f %%", math.Abs(off))
	}
	b.check(kind, item, between(paper), meanAndSD(ours), said, fmt.Sprintf("at most %g %% outside", percent),
		math.Abs(off) <= percent)
}

// checkKnownMiss states a number that is outside any tolerance, and its cause. It is not counted as a pass. It must be
// between low and high, because another value would have another cause.
func (b *bench) checkKnownMiss(item, paper string, ours chart.Value, low, high float64, cause string) {
	b.check(chart.KnownMiss, item, paper, meanAndSD(ours), "", cause, ours.Mean >= low && ours.Mean <= high)
}

// checkOrder holds if ok; ours says in numbers why.
func (b *bench) checkOrder(item, paper, ours string, ok bool) {
	b.check(chart.OrderOnly, item, paper, ours, "", "order", ok)
}

func (b *bench) check(kind chart.Kind, item, paper, ours, difference, tolerance string, ok bool) {
	b.report.Checks = append(b.report.Checks, chart.Check{
		Item: item, Paper: paper, Ours: ours, Difference: difference, Tolerance: tolerance, OK: ok, Kind: kind,
	})
}

func meanAndSD(v chart.Value) string {
	if v.SD == 0 {
		return fmt.Sprintf("%.2f", v.Mean)
	}
	return fmt.Sprintf("%.2f ± %.2f", v.Mean, v.SD)
}
