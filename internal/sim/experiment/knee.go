package experiment

import (
	"errors"
	"math"
	"sync"

	"llmmemory/internal/sim/chart"
	"llmmemory/internal/sim/scenario"
)

// threshold is the normalized latency, in s/token, at which rates are compared.
// The paper gives none; a reading of its curves at this one agrees with the
// ratios that its text gives (paper §2).
const threshold = 0.5

// A curve is the normalized latency of a system against the rate.
type curve struct {
	system   string
	scenario scenario.Scenario
	capacity chart.Value // requests/s at the threshold, over seeds
	line     chart.Line
	each     []float64 // capacity by seed
}

// curves finds, for each scenario, where it crosses the threshold, and draws the
// line around there.
func (b *bench) curves(all []curve, seeds []uint64) error {
	var wait sync.WaitGroup
	errs := make([]error, len(all))
	for i := range all {
		wait.Add(1)
		go func() {
			defer wait.Done()
			errs[i] = b.curve(&all[i], seeds)
		}()
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (b *bench) curve(c *curve, seeds []uint64) error {
	guess := 1.0
	for _, seed := range seeds {
		rate, err := b.knee(c.scenario, seed, guess)
		if err != nil {
			return err
		}
		c.each = append(c.each, rate)
		guess = rate
	}
	c.capacity = mean(c.each, nil)
	c.line.Name = label(c.system)
	for _, part := range []float64{0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 1, 1.03, 1.08} {
		s := c.scenario
		s.Rate = round(part * c.capacity.Mean)
		v, err := b.over(s, seeds, latency, nil)
		if err != nil {
			return err
		}
		c.line.Points = append(c.line.Points, chart.Point{X: s.Rate, Value: v})
	}
	return nil
}

// knee finds the rate at which the normalized latency crosses the threshold:
// first a factor of 1.5 up or down from the guess, then by halves to 1 %.
func (b *bench) knee(s scenario.Scenario, seed uint64, guess float64) (float64, error) {
	s.Seed = seed
	over := func(rate float64) (bool, error) {
		s.Rate = round(rate)
		r, err := b.run([]scenario.Scenario{s})
		if err != nil {
			return false, err
		}
		return r[0].Normalized.Mean > threshold, nil
	}
	high, err := over(guess)
	if err != nil {
		return 0, err
	}
	step := 1.5
	if high {
		step = 1 / step
	}
	low, top := guess, guess
	for {
		low, top = top, top*step
		now, err := over(top)
		if err != nil {
			return 0, err
		}
		if now != high {
			break
		}
	}
	if low > top {
		low, top = top, low
	}
	for top/low > 1.01 {
		middle := math.Sqrt(low * top)
		now, err := over(middle)
		if err != nil {
			return 0, err
		}
		if now {
			top = middle
		} else {
			low = middle
		}
	}
	return math.Sqrt(low * top), nil
}

// round keeps three digits, so that a rate can be written down.
func round(rate float64) float64 {
	scale := math.Pow(10, 2-math.Floor(math.Log10(rate)))
	return math.Round(rate*scale) / scale
}

// ratio is how much more of a rate one system sustains than another, seed by
// seed.
func ratio(a, b *curve, paper *chart.Range) chart.Value {
	var values []float64
	for i := range a.each {
		values = append(values, a.each[i]/b.each[i])
	}
	return mean(values, paper)
}

// ratios is the panel beside curves: how many times the rate of another system
// vLLM sustains at the threshold, and what the paper says.
func ratios(groups []string, values []chart.Value) chart.Panel {
	return chart.Panel{
		Title: "rate at 0.5 s/token", X: chart.XAxis{Title: "vLLM against"}, Y: chart.YAxis{Title: "times the rate"},
		Data: chart.Bars{Groups: groups, Series: []chart.Series{{Name: "times the rate at 0.5 s/token", Values: values}}},
	}
}
