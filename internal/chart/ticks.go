package chart

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// A scale takes a value to where it is on an axis: itself, or its logarithm. The
// plot below knows linear axes only.
type scale bool

const logarithmic scale = true

func (s scale) at(v float64) float64 {
	if s == logarithmic {
		return math.Log10(v)
	}
	return v
}

// ticks are the marks of an axis from low to high, both in its scale, with about
// as many labels as wanted.
func (s scale) ticks(low, high float64, wanted int) []plot.Tick {
	if s == logarithmic {
		return decades(low, high, wanted)
	}
	step := niceStep((high - low) / float64(max(1, wanted)))
	var all []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		all = append(all, plot.Tick{Value: i * step, Label: tickLabel(i*step, step)})
	}
	return all
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func tickLabel(v, step float64) string {
	if step >= 1e6 || step < 1e-6 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	if v == 0 {
		v = 0 // not its negative
	}
	return strconv.FormatFloat(v, 'f', int(max(0, -math.Floor(math.Log10(step)+1e-9))), 64)
}

func decades(low, high float64, wanted int) []plot.Tick {
	labelled := []float64{1}
	if high-low < 2.2 {
		labelled = []float64{1, 2, 5}
	}
	every := int(max(1, math.Ceil((high-low)/float64(max(1, wanted)))))
	var all []plot.Tick
	for power := math.Floor(low); power <= high; power++ {
		for m := 1.; m < 10; m++ {
			v := power + math.Log10(m)
			if v < low-1e-9 || v > high+1e-9 {
				continue
			}
			t := plot.Tick{Value: v}
			if slices.Contains(labelled, m) && int(math.Abs(power))%every == 0 {
				t.Label = strconv.FormatFloat(m*math.Pow(10, power), 'g', 4, 64)
			}
			all = append(all, t)
		}
	}
	return all
}
