package page

import (
	"fmt"
	"strings"
)

// bars is a histogram of scores, in units of its viewBox.
type bars struct {
	Width, Height int
	Bars          []bar
	Words         string // the same for who cannot see it
}

// A bar is the students of ten percent, or those with full marks.
type bar struct {
	Label               string
	Count               int
	X, Y, Width, Height int
	Middle, LabelY      int
}

const (
	barWidth = 30
	barGap   = 4
	barRoom  = 120 // of the tallest
	barTop   = 22
)

func histogram(percents []float64) bars {
	var counts [11]int
	for _, p := range percents {
		counts[min(10, max(0, int(p/10)))]++
	}
	tallest := 1
	for _, n := range counts {
		tallest = max(tallest, n)
	}
	h := bars{Width: len(counts)*(barWidth+barGap) + barGap, Height: barTop + barRoom + 24}
	var words []string
	for i, n := range counts {
		label, long := fmt.Sprint(10*i), fmt.Sprintf("%d to below %d percent", 10*i, 10*i+10)
		if i == 10 {
			label, long = "full", "full marks"
		}
		height := (n*barRoom + tallest - 1) / tallest
		x := barGap + i*(barWidth+barGap)
		h.Bars = append(h.Bars, bar{label, n, x, barTop + barRoom - height, barWidth, height, x + barWidth/2, barTop + barRoom + 16})
		if n > 0 {
			words = append(words, fmt.Sprintf("%s: %d", long, n))
		}
	}
	h.Words = strings.Join(words, "; ")
	return h
}
