package calibrate

import (
	"slices"

	"llmmemory/internal/simulation/cost"
)

const (
	factors = 20 // number of equally likely factors; factors above the 95th percentile become their mean
	minSame = 8  // a mean of measurements of the same work is used only if it has at least this many
)

// spread returns how much measurements of the same work differ from their mean. It does not depend on how exact the
// line is, because the line has the same error for all measurements of the same work.
func spread(points []Point, line [4]float64) *cost.Spread {
	var decodes, prompts []float64
	for _, p := range points {
		lines := p.measured()
		if len(lines) < minSame {
			continue
		}
		ratio := p.Seconds / predict(line, p)
		for _, m := range lines {
			factor := m.Seconds / predict(line, m) / ratio
			if p.Prompt > 0 {
				prompts = append(prompts, factor)
			} else {
				decodes = append(decodes, factor)
			}
		}
	}
	s := cost.Spread{Decodes: means(decodes), Prompts: means(prompts)}
	if s.Decodes == nil && s.Prompts == nil {
		return nil
	}
	return &s
}

// means sorts the factors, divides them into parts of equal size, and returns the mean of each part, scaled
// so that all means average 1. It returns nil if there are too few factors.
func means(all []float64) (parts []float64) {
	if len(all) < factors*minSame/2 {
		return nil
	}
	slices.Sort(all)
	for i := range factors {
		parts = append(parts, mean(all[len(all)*i/factors:len(all)*(i+1)/factors]))
	}
	total := mean(parts) // not the mean of all factors, because one part may have a factor more than another
	for i := range parts {
		parts[i] /= total
	}
	return parts
}

func mean(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
