package workload

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

// shareGPTQuantiles has quantiles of the prompts and outputs of 79,725 first rounds of ShareGPT conversations
// in OPT's tokens, and the correlation of their normal scores (simulation/PAPER.md §1). The filter kept only
// rounds with fewer than 2,048 tokens.
//
//go:embed sharegpt_quantiles.json
var shareGPTQuantiles []byte

const (
	shareGPTRows  = 79725
	shareGPTBelow = 2048 // prompt + output
)

// A copula draws a prompt and an output length from two marginals that a Gaussian copula correlates. It draws
// again if the sum of the lengths is at least limit.
type copula struct {
	prompt, output marginal
	rho            float64 // correlation of the normal scores before any pair is dropped
	limit          int
}

// Draw implements Lengths.
func (c *copula) Draw(r *rand.Rand) (prompt, output int) {
	for {
		// The conversions forbid fused multiply-add, which would change the requests on some machines.
		a := r.NormFloat64()
		b := float64(c.rho*a) + float64(math.Sqrt(1-c.rho*c.rho)*r.NormFloat64())
		prompt, output = whole(c.prompt.at(normal(a))), whole(c.output.at(normal(b)))
		if prompt+output < c.limit {
			return prompt, output
		}
	}
}

// shareGPT is the workload of the paper's evaluation.
//
// The table has the quantiles of the pairs of lengths that the filter kept. A draw is filtered again, so
// drawing straight from the table would give a mean prompt of 148 tokens instead of 161. Therefore fit
// adjusts the levels until the pairs that pass the filter have the table's quantiles.
//
// The table's rho is assumed to be the correlation of all 84,226 pairs, before the filter. The standard
// deviation of prompt plus output is then 423 (simulation/PAPER.md §1: 420.8). With rho as the correlation of
// the kept pairs, it would be 428. The normal scores of the kept pairs have a correlation of only 0.17,
// because the filter drops pairs of two long lengths.
var shareGPT = sync.OnceValue(func() Lengths {
	var table struct {
		P, In, Out []float64
		Rho        float64
	}
	if err := json.Unmarshal(shareGPTQuantiles, &table); err != nil {
		panic(fmt.Sprintf("workload: the embedded quantiles of ShareGPT: %v", err))
	}
	tail := math.Log(shareGPTRows * (1 - table.P[len(table.P)-2]))
	c := &copula{
		prompt: marginal{levels: table.P, values: table.In, tail: tail},
		output: marginal{levels: table.P, values: table.Out, tail: tail},
		rho:    table.Rho,
		limit:  shareGPTBelow,
	}
	c.fit(table.P)
	return c
})

// fit adjusts the levels of both marginals until the pairs that pass the filter have quantiles values[i] at
// the levels want[i]. It alternates between the marginals (iterative proportional fitting): each round
// divides the probability of a segment by the fraction of its draws that the filter keeps. After 12 rounds
// the levels change by less than 1e-9.
func (c *copula) fit(want []float64) {
	for range 12 {
		c.prompt.levels = c.fitted(want, &c.prompt, &c.output)
		c.output.levels = c.fitted(want, &c.output, &c.prompt)
	}
}

// fitted returns new levels for m. With these levels, the lengths that pass the filter have quantiles m.values[i] at
// want[i], unless the levels of other change.
func (c *copula) fitted(want []float64, m, other *marginal) []float64 {
	const points = 16 // of a segment, where the share that is kept is measured
	levels := make([]float64, len(want))
	for i := range len(want) - 1 {
		kept := 0.0
		for k := range points {
			t := (float64(k) + 0.5) / points
			u := m.levels[i] + t*(m.levels[i+1]-m.levels[i])
			longest := float64(c.limit-whole(m.between(i, t))) - 0.5 // values of the other one below this are kept
			z := score(other.level(longest))
			kept += normal((z - c.rho*score(u)) / math.Sqrt(1-c.rho*c.rho))
		}
		levels[i+1] = levels[i] + (want[i+1]-want[i])*points/kept
	}
	for i := range levels {
		levels[i] /= levels[len(levels)-1]
	}
	return levels
}
