package workload

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

// shareGPTQuantiles describes 79,725 first rounds of ShareGPT conversations in OPT's tokens (simulation/PAPER.md §1).
// These are all rounds in which prompt and output together have fewer than 2,048 tokens. The file has the quantiles of
// the lengths of prompts, and of outputs. It also has the correlation of the two lengths, after each length was
// replaced by its normal score.
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
		prompt, output = toLength(c.prompt.quantile(normal(a))), toLength(c.output.quantile(normal(b)))
		if prompt+output < c.limit {
			return prompt, output
		}
	}
}

// shareGPT is the workload of the paper's evaluation.
//
// The table has the quantiles of the pairs of lengths that have fewer than 2,048 tokens in total. If Draw drew prompt
// and output from these quantiles, the sum would sometimes be 2,048 tokens or more. Draw drops such pairs, so too few
// long prompts and outputs would be left: the mean prompt would have 148 tokens instead of 161. Therefore fit changes
// the quantiles from which Draw draws, until the pairs that Draw keeps have the quantiles of the table.
//
// The table's rho is assumed to be the correlation of all 84,226 pairs, before any is dropped. The standard deviation
// of prompt plus output is then 423 (simulation/PAPER.md §1: 420.8). If rho were the correlation of the kept pairs, it
// would be 428. The normal scores of the pairs that Draw keeps have a correlation of only 0.17, because pairs of two
// long lengths are dropped.
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

// fit adjusts the levels of both marginals, because Draw drops some of the lengths that it draws from them. After fit,
// the lengths that Draw keeps have the quantiles values[i] at the levels targets[i], in each marginal. fit alternates
// between the marginals (iterative proportional fitting). In each round it sets the probability of each segment to its
// target, divided by the fraction of the segment's draws that Draw keeps, and scales the sum to 1. After 12 rounds the
// levels change by less than 1e-9.
func (c *copula) fit(targets []float64) {
	for range 12 {
		c.prompt.levels = c.fitted(targets, &c.prompt, &c.output)
		c.output.levels = c.fitted(targets, &c.output, &c.prompt)
	}
}

// fitted makes one step of fit: it returns new levels for m, one of the two marginals. partner is the other marginal.
// With the new levels, the lengths of m that Draw keeps have nearly the quantiles m.values[i] at the levels targets[i].
// Which of them Draw keeps depends on the levels of both marginals, so fit repeats the step.
func (c *copula) fitted(targets []float64, m, partner *marginal) []float64 {
	const points = 16 // of a segment, where the share that is kept is measured
	levels := make([]float64, len(targets))
	for i := range len(targets) - 1 {
		kept := 0.0
		for k := range points {
			t := (float64(k) + 0.5) / points
			u := m.levels[i] + t*(m.levels[i+1]-m.levels[i])
			longest := float64(c.limit-toLength(m.interpolate(i, t))) - 0.5 // values of the other one below this are kept
			z := score(partner.level(longest))
			kept += normal((z - c.rho*score(u)) / math.Sqrt(1-c.rho*c.rho))
		}
		levels[i+1] = levels[i] + (targets[i+1]-targets[i])*points/kept
	}
	for i := range levels {
		levels[i] /= levels[len(levels)-1]
	}
	return levels
}
