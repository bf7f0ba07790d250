package calibrate

import (
	"slices"

	"llmmemory/internal/simulation/cost"
)

const (
	factors   = 20 // equally likely ones; what is beyond the 95th percentile becomes its mean
	leastSame = 8  // measurements of the same work, fewer of which do not tell their mean
)

// spread returns how much measurements of the same work differ from their mean. How far that mean is from the
// line does not count.
func spread(points []Point, line [4]float64) *cost.Spread {
	var decodes, prompts []float64
	for _, p := range points {
		lines := p.measured()
		if len(lines) < leastSame {
			continue
		}
		off := p.Seconds / at(line, p)
		for _, m := range lines {
			factor := m.Seconds / at(line, m) / off
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

// means returns those of the sorted factors in parts of equal size, over the mean of all parts; nil if there
// are too few factors.
func means(all []float64) (parts []float64) {
	if len(all) < factors*leastSame/2 {
		return nil
	}
	slices.Sort(all)
	for i := range factors {
		parts = append(parts, mean(all[len(all)*i/factors:len(all)*(i+1)/factors]))
	}
	total := mean(parts) // not that of all: a part may have one factor more than another
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
