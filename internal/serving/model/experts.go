package model

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

type experts struct {
	router       linear    // a logit for each expert
	correction   []float32 // see Experts.Correction; nil without
	sharedRouter linear    // a logit for the shared expert; empty if the expert has no gate
	all          []mlp
}

func (l *loader) mixture(dst *layer, i int) {
	c, e, n := l.config, l.config.Experts, l.names
	named := func(name string) string { return tensorName(name, i) }
	x := &experts{router: l.linear(shape{inputs: c.HiddenSize, outputs: []int{e.Count}, bias: e.RouterBias}, named(n.router))}
	dst.experts = x
	if e.Correction {
		x.correction = l.vector(named(n.correction), e.Count)
	}
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
	scores  []float32 // [rows][experts]: experts are chosen by them
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

// choose sets a row's experts and their weights. It takes the experts with the largest scores; if scores are equal, it
// prefers the expert with the smaller number. Scores are logits or, with a correction, weights plus the correction.
func (g *routing) choose(e *Experts, correction []float32, row int) {
	logits, scores := g.logits[row*e.Count:][:e.Count], g.scores[row*e.Count:][:e.Count]
	copy(scores, logits)
	weight := func(logit float32) float64 { return 1 / (1 + math.Exp(-float64(logit))) }
	if !e.Sigmoid {
		top, sum := float64(slices.Max(logits)), 0.0
		for _, v := range logits {
			sum += math.Exp(float64(v) - top)
		}
		weight = func(logit float32) float64 { return math.Exp(float64(logit)-top) / sum }
	}
	for i, v := range correction {
		scores[i] = float32(weight(logits[i])) + v
	}
	if e.Groups > 1 {
		e.chooseGroups(scores)
	}
	chosen, weights := g.chosen[row*e.PerToken:][:e.PerToken], g.weights[row*e.PerToken:][:e.PerToken]
	taken := 0.0
	for k := range chosen {
		best := largestOf(scores)
		p := weight(logits[best])
		chosen[k], weights[k] = int32(best), float32(p)
		taken += p
		scores[best] = float32(math.Inf(-1))
	}
	if !e.Normalize {
		taken = 1
	}
	for k, w := range weights {
		weights[k] = float32(float64(w) / (taken + 1e-20) * cmp.Or(e.Scale, 1)) // 1e-20 as in vLLM, for sigmoids that are 0
	}
}

func largestOf(scores []float32) (best int) {
	for i, v := range scores {
		if v > scores[best] {
			best = i
		}
	}
	return best
}

// chooseGroups sets the scores of all experts outside the best groups to -inf. The score of a group is the score of its
// best expert or, with a correction, the sum of the scores of its best two (vLLM's grouped_topk).
func (e *Experts) chooseGroups(scores []float32) {
	size := e.Count / e.Groups
	var all [maxGroups]float32
	groups := all[:e.Groups]
	for i := range groups {
		first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
		for _, v := range scores[i*size:][:size] {
			if v > first {
				first, second = v, first
			} else if v > second {
				second = v
			}
		}
		groups[i] = first
		if e.Correction {
			groups[i] += second
		}
	}
	var kept [maxGroups]bool
	for range e.Chosen {
		best := largestOf(groups)
		groups[best], kept[best] = float32(math.Inf(-1)), true
	}
	for i := range groups {
		for k := range scores[i*size:][:size] {
			if !kept[i] {
				scores[i*size+k] = float32(math.Inf(-1))
			}
		}
	}
}

// maxGroups is the largest number of groups of experts.
const maxGroups = 64

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
	g.logits, g.scores, g.weights = grow(g.logits, rows*e.Count), grow(g.scores, rows*e.Count), grow(g.weights, n)
	g.inputs, g.results = grow(g.inputs, rows*hidden), grow(g.results, n*hidden)
	g.chosen, g.indices, g.rows = grow(g.chosen, n), grow(g.indices, n), grow(g.rows, n)
	r.multiply(&l.experts.router, g.logits, x, rows)
	r.each(rows, rowJob{op: opRoute, layer: l})
	g.order(e, rows)
	for i := range l.experts.all {
		start, end := g.starts[i], g.starts[i+1]
		if start == end {
			continue
		}
		for k, row := range g.rows[start:end] {
			input := g.inputs[k*hidden:][:hidden]
			copy(input, x[int(row)*hidden:])
			if e.InputScale {
				g.scaleInput(e, input, int(row), int32(i))
			}
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

// scaleInput multiplies the input of an expert by its weight for the row.
func (g *routing) scaleInput(e *Experts, input []float32, row int, expert int32) {
	k := row*e.PerToken + slices.Index(g.chosen[row*e.PerToken:][:e.PerToken], expert)
	for i := range input {
		input[i] *= g.weights[k]
	}
}

func (r *Runner) combineRow(l *layer, row int) {
	e, g, hidden := r.model.Experts, &r.routing, r.model.HiddenSize
	sums := r.sums[row*hidden:][:hidden]
	clear(sums)
	for k := row * e.PerToken; k < (row+1)*e.PerToken; k++ {
		w, out := g.weights[k], g.results[int(g.indices[k])*hidden:][:hidden]
		if e.InputScale {
			w = 1
		}
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
