package experiment

import (
	"fmt"
	"math"

	"llmmemory/internal/simulation/chart"
)

func (b *bench) checkWithinPercent(kind chart.Kind, item string, ours chart.Value, paper, percent float64) {
	deviation := 100 * (ours.Mean - paper) / paper
	b.check(kind, item, fmt.Sprintf("%.2f", paper), meanAndSD(ours), fmt.Sprintf("%+.1f %%", deviation),
		fmt.Sprintf("within %g %%", percent), math.Abs(deviation) <= percent)
}

func (b *bench) checkWithinPoints(kind chart.Kind, item string, ours chart.Value, paper, points float64) {
	deviation := ours.Mean - paper
	b.check(kind, item, fmt.Sprintf("%.2f %%", paper), meanAndSD(ours)+" %", fmt.Sprintf("%+.2f points", deviation),
		fmt.Sprintf("within %g points", points), math.Abs(deviation) <= points)
}

func (b *bench) checkWithinRange(kind chart.Kind, item, paper string, ours chart.Value, low, high float64) {
	b.check(kind, item, paper, meanAndSD(ours), "", fmt.Sprintf("%g to %g", low, high), ours.Mean >= low && ours.Mean <= high)
}

// checkNearRange checks that a value is in the paper's range, or differs from the nearer end by at most the
// given percentage.
func (b *bench) checkNearRange(kind chart.Kind, item string, paper [2]float64, ours chart.Value, percent float64) {
	deviation, position := 0.0, "inside"
	switch {
	case ours.Mean < paper[0]:
		deviation = 100 * (ours.Mean/paper[0] - 1)
	case ours.Mean > paper[1]:
		deviation = 100 * (ours.Mean/paper[1] - 1)
	}
	if deviation != 0 {
		position = fmt.Sprintf("outside by %.1f %%", math.Abs(deviation))
	}
	b.check(kind, item, formatRange(paper), meanAndSD(ours), position, fmt.Sprintf("at most %g %% outside", percent),
		math.Abs(deviation) <= percent)
}

// checkKnownMiss records a value of ours that differs from the paper's by more than any tolerance, and the known
// cause. The check does not count as a pass. It fails if our value is not between low and high, because another
// value would have another cause.
func (b *bench) checkKnownMiss(item, paper string, ours chart.Value, low, high float64, cause string) {
	b.check(chart.KnownMiss, item, paper, meanAndSD(ours), "", cause, ours.Mean >= low && ours.Mean <= high)
}

func (b *bench) checkOrder(item, paper, ours string, ok bool) {
	b.check(chart.OrderOnly, item, paper, ours, "", "order", ok)
}

func (b *bench) check(kind chart.Kind, item, paper, ours, difference, tolerance string, ok bool) {
	b.report.Checks = append(b.report.Checks, chart.Check{
		Item: item, Paper: paper, Ours: ours, Difference: difference, Tolerance: tolerance, OK: ok, Kind: kind,
	})
}

// compareWith states that the last check compares with the named reference instead of the paper.
func (b *bench) compareWith(reference string) {
	b.report.Checks[len(b.report.Checks)-1].Reference = reference
}

func meanAndSD(v chart.Value) string {
	if v.SD == 0 {
		return fmt.Sprintf("%.2f", v.Mean)
	}
	return fmt.Sprintf("%.2f ± %.2f", v.Mean, v.SD)
}
