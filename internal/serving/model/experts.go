package model

import (
	"math"
	"slices"
	"strings"
)

type experts struct {
	router       linear // a logit for each expert
	sharedRouter linear // a logit for the shared expert; empty if the expert has no gate
	all          []mlp
}

func (l *loader) mixture(dst *layer, i int) {
	c, e, n := l.config, l.config.Experts, l.names
	named := func(name string) string { return tensorName(name, i) }
	x := &experts{router: l.linear(shape{inputs: c.HiddenSize, outputs: []int{e.Count}, bias: e.RouterBias}, named(n.router))}
	dst.experts = x
	if e.SharedSize > 0 {
		dst.mlp = l.mlp(mlpShape{experts: 1, inter: e.SharedSize}, named(n.sharedGate), named(n.sharedUp), named(n.sharedDown))
	}
	if e.SharedGate {
		x.sharedRouter = l.linear(shape{inputs: c.HiddenSize, outputs: []int{1}}, named(n.sharedRouter))
	}
	for k := 0; k < e.Count && l.err == nil; k++ {
		s, named := mlpShape{e.Count, k, e.IntermediateSize, e.Bias, false}, named
		if strings.Count(n.expertUp, "%d") == 2 {
			s.experts, s.expert = 1, 0
			named = func(name string) string { return tensorName(name, i, k) }
		}
		x.all = append(x.all, l.mlp(s, named(n.expertGate), named(n.expertUp), named(n.expertDown)))
	}
}

// A routing has the experts of each row, and the rows in the order of experts. Rows with the same expert are computed
// together.
type routing struct {
	logits  []float32 // [rows][experts]
	chosen  []int32   // [rows][experts per token]: the experts of a row
	weights []float32 // their weights
	indices []int32   // their indices in the order of experts

	// In the order of experts.
	starts  []int     // the first index of each expert
	rows    []int32   // the rows that use an expert
	results []float32 // the results

	inputs []float32 // the input rows of one expert
	gates  []float32 // logits of the shared expert
	shared []float32 // results of the shared expert
}

// choose sets a row's experts and their weights. It takes the experts with the largest logits; if logits are equal, it
// prefers the expert with the smaller number.
func (g *routing) choose(e *Experts, row int) {
	logits := g.logits[row*e.Count:][:e.Count]
	top, sum := float64(slices.Max(logits)), 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	chosen, weights := g.chosen[row*e.PerToken:][:e.PerToken], g.weights[row*e.PerToken:][:e.PerToken]
	taken := 0.0
	for k := range chosen {
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		p := math.Exp(float64(logits[best])-top) / sum
		chosen[k], weights[k] = int32(best), float32(p)
		taken += p
		logits[best] = float32(math.Inf(-1))
	}
	if e.Normalize {
		for k, w := range weights {
			weights[k] = float32(float64(w) / taken)
		}
	}
}

func (g *routing) order(e *Experts, rows int) {
	g.starts = append(g.starts[:0], make([]int, e.Count+1)...)
	for _, expert := range g.chosen[:rows*e.PerToken] {
		g.starts[expert+1]++
	}
	for i := range e.Count {
		g.starts[i+1] += g.starts[i]
	}
	for i, expert := range g.chosen[:rows*e.PerToken] {
		place := g.starts[expert]
		g.starts[expert]++
		g.indices[i], g.rows[place] = int32(place), int32(i/e.PerToken)
	}
	copy(g.starts[1:], g.starts[:e.Count])
	g.starts[0] = 0
}

// mixture sets r.sums to the weighted sums of the experts' outputs for the given rows of x. The shared expert, if there
// is one, is added last. mixture reads the weights of an expert once for all rows. The method routing.choose sets the
// order of a row's experts, and mixture adds their outputs for the row in this order. The result of a row therefore
// does not depend on other rows.
func (r *Runner) mixture(l *layer, x []float32, rows int) error {
	e, g, hidden := r.model.Experts, &r.routing, r.model.HiddenSize
	n := rows * e.PerToken
	g.logits, g.weights = grow(g.logits, rows*e.Count), grow(g.weights, n)
	g.inputs, g.results = grow(g.inputs, rows*hidden), grow(g.results, n*hidden)
	g.chosen, g.indices, g.rows = grow(g.chosen, n), grow(g.indices, n), grow(g.rows, n)
	r.multiply(&l.experts.router, g.logits, x, rows)
	r.each(rows, rowJob{op: opRoute})
	g.order(e, rows)
	for i := range l.experts.all {
		start, end := g.starts[i], g.starts[i+1]
		if start == end {
			continue
		}
		for k, row := range g.rows[start:end] {
			copy(g.inputs[k*hidden:][:hidden], x[int(row)*hidden:])
		}
		expert := &l.experts.all[i]
		r.firstHalf(expert, g.inputs, end-start)
		r.product.residual, r.product.bias = nil, nil
		r.multiplyPanels(&expert.downProj, g.results[start*hidden:], r.act, end-start, 0, expert.downProj.panels())
	}
	if r.group != nil {
		if err := r.group.AllReduce(r.model.part.Rank, g.results[:n*hidden]); err != nil {
			return err
		}
	}
	if e.SharedSize > 0 {
		r.firstHalf(&l.mlp, x, rows)
		g.shared = grow(g.shared, rows*hidden)
		if err := r.sumProduct(&l.mlp.downProj, g.shared, r.act, rows); err != nil {
			return err
		}
	}
	if e.SharedGate {
		g.gates = grow(g.gates, rows)
		r.multiply(&l.experts.sharedRouter, g.gates, x, rows)
	}
	r.each(rows, rowJob{op: opCombine, layer: l})
	return nil
}

func (r *Runner) combineRow(l *layer, row int) {
	e, g, hidden := r.model.Experts, &r.routing, r.model.HiddenSize
	sums := r.sums[row*hidden:][:hidden]
	clear(sums)
	for k := row * e.PerToken; k < (row+1)*e.PerToken; k++ {
		w, out := g.weights[k], g.results[int(g.indices[k])*hidden:][:hidden]
		if bias := l.experts.all[g.chosen[k]].downProj.bias; bias != nil {
			for i, b := range bias {
				out[i] += b
			}
		}
		for i, v := range out {
			sums[i] += w * v
		}
	}
	if e.SharedSize == 0 {
		return
	}
	w := float32(1)
	if e.SharedGate {
		w = float32(1 / (1 + math.Exp(-float64(g.gates[row]))))
	}
	for i, v := range g.shared[row*hidden:][:hidden] {
		sums[i] += w * v
	}
}
