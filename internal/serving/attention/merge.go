package attention

import "math"

var negInf = float32(math.Inf(-1))

// initState sets the record state (see recordSize) to the result of a row before its first partition. If the plan has a
// common prefix and the item is of kind itemWhole, this is the result of the prefix. Otherwise, if heads have sinks, it
// is the result of the head's sink: a sink counts as a token with a logit but without a value. If there is neither a
// prefix nor a sink, the largest logit is -inf, and the sum of the weights and the output are 0.
func (r *Runner) initState(state []float32, row *row, it *item) {
	if it.kind == itemWhole && r.plan.prefixParts > 0 {
		copy(state, r.prefixRecord(row, len(state)))
		return
	}
	clear(state)
	state[0] = negInf
	if r.batch.Sinks != nil {
		state[0], state[1] = r.batch.Sinks[row.head], 1
	}
}

func (r *Runner) prefixRecord(row *row, record int) []float32 {
	return r.prefix[(row.token*r.batch.NumHeads+row.head)*record:][:record]
}

func (r *Runner) merge(w *scratch) {
	record := recordSize(r.cache)
	for i := range w.rows {
		r.mergeRecord(w, w.state[i*record:][:record], w.part[i*record:][:record])
	}
}

// mergeRecord merges part, the result of the next partition, into state. A partition whose weights are all 0 changes
// nothing.
func (r *Runner) mergeRecord(w *scratch, state, part []float32) {
	m, l := part[0], part[1]
	if l == 0 {
		return
	}
	a, b := float32(1), float32(1)
	if m > state[0] {
		a, state[0] = exp(state[0], m), m
	} else {
		b = exp(m, state[0])
	}
	state[1] = state[1]*a + l*b
	r.kernels.combine(&w.args, state[recordHead:], part[recordHead:], a, b)
}

func exp(x, y float32) float32 { return float32(math.Exp(float64(x) - float64(y))) }

func (r *Runner) save(w *scratch, it *item, part int) {
	record := recordSize(r.cache)
	for i := range w.rows {
		index := it.first + i*it.stride + part - it.part0
		copy(r.partials[index*record:][:record], w.part[i*record:][:record])
	}
}

func (r *Runner) savePrefix(w *scratch) {
	record := recordSize(r.cache)
	for i := range w.rows {
		copy(r.prefixRecord(&w.rows[i], record), w.state[i*record:][:record])
	}
}

func (r *Runner) reduce(w *scratch, red *reduction) {
	r.setRows(w, &item{kind: itemWhole, seq: red.seq, kvHead: red.kvHead, heads: red.heads, token0: red.token0,
		token1: red.token1})
	record := recordSize(r.cache)
	for i := range w.rows {
		state := w.state[i*record:][:record]
		for part := range red.parts {
			index := red.first + i*red.parts + part
			r.mergeRecord(w, state, r.partials[index*record:][:record])
		}
	}
	r.finish(w)
}

func (r *Runner) finish(w *scratch) {
	record, size := recordSize(r.cache), r.cache.ValueSize()
	_, factor := r.cache.Factors()
	for i := range w.rows {
		state := w.state[i*record:][:record]
		o := state[recordHead:][:size]
		if state[1] == 0 { // no weights
			clear(o)
			state[1] = 1
		}
		scale := factor / state[1]
		for j := range o {
			o[j] *= scale
		}
		r.batch.Out.Store(o, w.rows[i].token, w.rows[i].head*r.cache.HeadSize)
	}
}
