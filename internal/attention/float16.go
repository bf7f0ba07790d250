package attention

import "math"

// With AVX512-FP16 the products of 8-bit types are computed in float16, where a
// register holds twice as many numbers. What is rounded to float16 is scaled by a
// power of 2 first, so that no sum overflows, whatever the keys and values are.

// Queries and weights are scaled so that the largest of them stays below 2 to the power of these
// exponents. A sum has 64 products of queries, or 16 of weights; stored numbers are at most 448 (E4M3),
// 57344 (E5M2) and 128 (Int8). In float16 they are divided by what lacks says.
var (
	queryExponent  = [dtypes]int{E4M3: 9, E5M2: -6}
	weightExponent = [dtypes]int{E4M3: 11, E5M2: -4, Int8: -3}
	lacks          = [dtypes]float32{E4M3: 0x1p8, E5M2: 1, Int8: 0x1p-8}
)

// expand rounds a query to float16 and says what its numbers are multiples of.
func (r *Runner) expand(w *scratch, x, q []float32) (unit float32) {
	d := r.cache.DType
	factor := scaleBelow(r.kernels.largest(&w.call, x), queryExponent[d])
	r.kernels.expand(&w.call, x, factor, q)
	return lacks[d] / factor
}

// pair rounds the weights of the tokens from to to-1 of a partition to float16, two
// equal ones in each number, and notes what they are multiples of. Weights of tokens
// that the row does not see become 0, whatever their scales are.
func (r *Runner) pair(w *scratch, row *row, p []float32, part, from, to int) {
	d := r.cache.DType
	first, last := from&^15, (to+15)&^15
	clear(p[first:from])
	clear(p[to:last])
	if r.batch.Sparse != nil && !w.finite {
		for t := from; t < to; t++ {
			if !r.sees(row, part*partitionSize+t) {
				p[t] = 0
			}
		}
	}
	x, factor := p[first:last], powerOf2(weightExponent[d])
	if d == Int8 { // the others are at most 1
		factor = scaleBelow(r.kernels.largest(&w.call, x), weightExponent[d])
	}
	r.kernels.pair(&w.call, x, factor)
	row.weight = lacks[d] / factor
}

// scaleBelow is the power of 2 by which a number, given by its bits, comes just below
// 2^exponent. It is limited, so that it and its inverse are normal numbers. For what is
// not finite, any power will do.
func scaleBelow(bits uint32, exponent int) float32 {
	if bits == 0 {
		return 1
	}
	return powerOf2(max(-118, min(118, exponent-1-(int(bits>>23)-127))))
}

func powerOf2(exponent int) float32 { return math.Float32frombits(uint32(127+exponent) << 23) }
