package attention

import (
	"math"
	"unsafe"
)

// sumElements returns how many elements of q and k one partial sum of the dot product q·k covers. The kernels add the
// partial sums to get q·k. With a single sum over a head of 256 elements, float32 logits up to refineAbove have errors
// of 3e-6. With sums of 32 elements, the errors are 0.8e-6. Sums of 16 take 3 % more time and are no better. Narrower
// types need only a single sum, because their rounding errors are larger.
func sumElements(c *Cache) int {
	if c.DType == F32 {
		return 32
	}
	return c.HeadSize
}

// weigh replaces the products q·k of a row by weights p, and returns the largest logit m and the sum l of the weights.
// A logit is factor times a product. Tokens in [lo, hi) to which the row does not attend get the weight 0. lo and hi
// are multiples of 16.
func (r *Runner) weigh(w *scratch, row *row, scores []float32, part, lo, hi int, factor float32) (m, l float32) {
	start, end := row.attendedIn(part)
	if start >= end {
		clear(scores[lo:hi])
		return 0, 0
	}
	first, last := start&^15, (end+15)&^15
	clear(scores[lo:first])
	clear(scores[last:hi])
	x := scores[first:last]
	keyFactor, _ := r.cache.Factors()
	factor *= r.batch.Scale * keyFactor
	if r.cache.DType == F32 {
		return r.weighPairs(w, row, scores, part, &w.tiles[(first-lo)/16], factor)
	}
	if r.cache.DType == Int8 {
		r.kernels.multiply(&w.args, x, w.keyScales[first:last])
		factor *= row.unit
	}
	if r.modified(factor) {
		r.modify(w, row, x, factor, part*partitionSize+first)
		factor = 1
	}
	r.maskTokens(row, scores, part, negInf)
	m, l = r.kernels.softmax(&w.args, x, factor)
	if r.cache.DType == Int8 {
		r.kernels.multiply(&w.args, x, w.valueScales[first:last])
	}
	return m, l
}

// refineAbove is the magnitude above which logits are computed again in float64 if keys are float32. A float32 below 8
// is rounded by up to 0.24e-6, and a float32 below 32 by four times as much. Logits above refineAbove should be rare,
// because computing them again takes 2.5 times as long as everything else.
const refineAbove = 8

// weighPairs is like weigh, for keys in float32. It computes large products again in float64; see refine. tiles
// points to the addresses of the tiles that contain the tokens to which the row attends. weighPairs first sets the
// products of the other tokens in these tiles to 0, so that refine does not compute them again.
func (r *Runner) weighPairs(w *scratch, row *row, scores []float32, part int, tiles *unsafe.Pointer,
	factor float32) (m, l float32) {
	start, end := row.attendedIn(part)
	first, last := start&^15, (end+15)&^15
	x, low, q := scores[first:last], w.low[first:last], w.q[row.query:][:r.cache.HeadSize]
	r.maskTokens(row, scores, part, 0)
	pairs := r.kernels.refine(&w.args, q, tiles, x, low, refineAbove/abs(factor))
	if r.modified(factor) {
		if !pairs {
			clear(low)
			pairs = true
		}
		r.modifyPairs(w, row, x, low, factor, part*partitionSize+first)
		factor = 1
	}
	r.maskTokens(row, scores, part, negInf)
	if pairs {
		return r.kernels.softmaxPairs(&w.args, x, low, factor)
	}
	return r.kernels.softmax(&w.args, x, factor)
}

// maskTokens replaces the scores of some tokens by score. These tokens are in the tile of the first or the last
// attended token, but the row does not attend to them.
func (r *Runner) maskTokens(row *row, scores []float32, part int, score float32) {
	start, end := row.attendedIn(part)
	fill(scores[start&^15:start], score)
	fill(scores[end:(end+15)&^15], score)
}

func (r *Runner) modified(factor float32) bool {
	return r.batch.SoftCap != 0 || r.batch.AlibiSlopes != nil || !(factor > 0)
}

// modifyPairs is like modify, for the products x[i] + low[i].
func (r *Runner) modifyPairs(w *scratch, row *row, x, low []float32, factor float32, token int) {
	b := r.batch
	slope, offset := r.bias(row, token)
	if b.SoftCap != 0 {
		for i, s := range x {
			logit := float64(factor) * (float64(s) + float64(low[i]))
			x[i], low[i] = pairOfFloats(float64(b.SoftCap) * math.Tanh(logit/float64(b.SoftCap)))
		}
		factor = 1
	}
	if b.SoftCap == 0 || slope != 0 {
		r.kernels.scalePair(&w.args, x, low, factor, slope, offset)
	}
}

// bias returns the two factors of the ALiBi bias of the given token: the row's slope, and the offset of the token from
// the row's query token. Without ALiBi, both are 0.
func (r *Runner) bias(row *row, token int) (slope, offset float32) {
	if r.batch.AlibiSlopes == nil {
		return 0, 0
	}
	return r.batch.AlibiSlopes[row.head], float32(token - row.position)
}

func (r *Runner) modify(w *scratch, row *row, x []float32, factor float32, token int) {
	b := r.batch
	slope, offset := r.bias(row, token)
	if b.SoftCap != 0 {
		r.kernels.scale(&w.args, x, factor, 0, 0)
		for i, s := range x {
			x[i] = b.SoftCap * float32(math.Tanh(float64(s)/float64(b.SoftCap)))
		}
		factor = 1
	}
	if b.SoftCap == 0 || slope != 0 {
		r.kernels.scale(&w.args, x, factor, slope, offset)
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}
