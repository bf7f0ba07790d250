package chart

import (
	"math"
	"strconv"
)

// A scale maps numbers from min to max to 0 to 1. It is linear or logarithmic.
type scale struct {
	min, max float64
	log      bool
}

// noScale has no numbers yet.
func noScale() scale { return scale{min: math.Inf(1), max: math.Inf(-1)} }

// include extends the scale to a number.
func (s *scale) include(v float64) { s.min, s.max = min(s.min, v), max(s.max, v) }

// widen makes a scale of one number longer.
func (s *scale) widen() {
	if s.max <= s.min {
		s.max = s.min + 1
	}
}

func (s *scale) contains(v float64) bool { return s.min <= v && v <= s.max }

// place returns where v is on the scale.
func (s *scale) place(v float64) float64 {
	if s.log {
		return math.Log(v/s.min) / math.Log(s.max/s.min)
	}
	return (v - s.min) / (s.max - s.min)
}

func (s *scale) clamp(v float64) float64 { return max(s.min, min(v, s.max)) }

// A tick is a mark of an axis. A tick without a text is shorter.
type tick struct {
	value float64
	text  string
}

// ticks returns ticks at round numbers, of which at most six have a text, or at the powers of ten and their multiples if
// the scale is logarithmic.
func (s *scale) ticks() (all []tick) {
	if s.log {
		for power := s.min; power <= s.max*1.01; power *= 10 {
			all = append(all, tick{power, strconv.FormatFloat(power, 'g', 3, 64)})
			for k := 2.0; k < 10 && k*power < s.max; k++ {
				all = append(all, tick{k * power, ""})
			}
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10(s.max-s.min)))
	parts := 5.0 // between two texts
	switch n := (s.max - s.min) / step; {
	case n < 1.2:
		step /= 5
		parts = 4
	case n < 2.5:
		step /= 2
	case n > 5:
		step *= 2
		parts = 4
	}
	format, digits := byte('f'), max(0, -int(math.Floor(math.Log10(step*1.01))))
	if step < 1e-4 || s.max >= 1e6 || s.min <= -1e6 {
		format, digits = 'g', 4
	}
	small := step / parts
	for k := math.Ceil(s.min / small); k*small <= s.max*(1+1e-9); k++ {
		t := tick{value: k * small}
		if math.Mod(k, parts) == 0 {
			t.text = strconv.FormatFloat(t.value+0, format, digits, 64) // + 0 makes 0 of -0
		}
		all = append(all, t)
	}
	return all
}

// decades returns the powers of ten around the numbers from low to high, which differ.
func decades(low, high float64) (bottom, top float64) {
	power := math.Floor(math.Log10(low))
	return math.Pow(10, power), math.Pow(10, max(power+1, math.Ceil(math.Log10(high))))
}
