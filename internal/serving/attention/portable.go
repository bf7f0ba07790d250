package attention

import (
	"math"
	"unsafe"
)

type portable struct{}

func (portable) String() string { return "portable" }

// scores computes each product of a query and a key in float64, and rounds only the result to float32.
func (portable) scores(_ *args, q []float32, rows, size, _ int, keys []float32, n int, out []float32) {
	for i := range rows {
		q := q[i*size:][:size]
		for tile := range n {
			var sum [16]float64
			for j, x := range q {
				k, x := (*[16]float32)(keys[(tile*size+j)*16:]), float64(x)
				for lane := range sum {
					sum[lane] += x * float64(k[lane])
				}
			}
			products := (*[16]float32)(out[i*scoreStride+tile*16:])
			for lane := range sum {
				products[lane] = float32(sum[lane])
			}
		}
	}
}

func (portable) integerScores(_ *args, q []float32, rows, pairs int, keys []float32, n int, out []float32) {
	for i := range rows {
		q := q[i*pairs:][:pairs]
		for tile := range n {
			var sum [16]int32
			for j, x := range q {
				k := (*[16]float32)(keys[(tile*pairs+j)*16:])
				x0, x1 := pairOf(x)
				for lane := range sum {
					k0, k1 := pairOf(k[lane])
					sum[lane] += x0*k0 + x1*k1
				}
			}
			products := (*[16]float32)(out[i*scoreStride+tile*16:])
			for lane, s := range sum {
				products[lane] = float32(s)
			}
		}
	}
}

func pairOf(x float32) (a, b int32) {
	bits := math.Float32bits(x)
	return int32(int16(bits)), int32(int16(bits >> 16))
}

func pairFrom(a, b float32) float32 {
	return math.Float32frombits(uint32(uint16(int16(a))) | uint32(uint16(int16(b)))<<16)
}

func (portable) largest(_ *args, x []float32) (bits uint32) {
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&^(1<<31))
	}
	return bits
}

func (portable) quantize(_ *args, x []float32, factor float32, out []float32) {
	round := func(v float32) float32 { return float32(math.RoundToEven(float64(v * factor))) }
	for i := 0; i < len(x); i += 2 {
		out[i/2] = pairFrom(round(x[i]), round(x[i+1]))
	}
}

func (portable) pack(_ *args, keys, out []float32) {
	for i := range len(keys) / 2 {
		row := i / 16 * 32
		out[i] = pairFrom(keys[row+i%16], keys[row+16+i%16])
	}
}

func (portable) scale(_ *args, x []float32, factor, slope, offset float32) {
	for i := range x {
		x[i] = x[i]*factor + slope*(offset+float32(i))
	}
}

func (portable) softmax(_ *args, x []float32, factor float32) (m, l float32) {
	m, base := largestLogit(x, factor)
	var lanes [16]float32
	for i, s := range x {
		p := weight(float64(float32(factor*s) - base))
		x[i] = p
		lanes[i%16] += p
	}
	return m, sumOfLanes(&lanes)
}

func (portable) softmaxPairs(_ *args, x, low []float32, factor float32) (m, l float32) {
	m, base := largestLogit(x, factor)
	var lanes [16]float32
	for i, s := range x {
		rounded := float32(factor * s)
		difference := float64(rounded) - float64(base)
		if difference >= minExponent { // otherwise rest may be NaN
			rest := float64(factor)*(float64(s)+float64(low[i])) - float64(rounded)
			difference += max(-1, min(1, rest)) // rest is larger only if logits are too large for float32
		}
		p := weight(difference)
		x[i] = p
		lanes[i%16] += p
	}
	return m, sumOfLanes(&lanes)
}

// largestLogit returns m, the largest logit, and base, which the caller subtracts from each logit before exp. A logit
// is an element of x times factor. base is m, or 0 if m is -inf. If a logit is NaN, m is NaN.
func largestLogit(x []float32, factor float32) (m, base float32) {
	m = negInf
	for _, s := range x {
		if s > m || s != s {
			m = s
		}
	}
	m *= factor
	if m == negInf {
		return m, 0
	}
	return m, m
}

func sumOfLanes(lanes *[16]float32) float32 {
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}

func (portable) refine(_ *args, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool {
	found := false
	for i, s := range x {
		if !(abs(s) > limit && isFinite(s)) {
			continue
		}
		if !found {
			clear(low)
			found = true
		}
		var sums [2]float64 // of even and odd elements
		keys := unsafe.Slice((*float32)(unsafe.Slice(tiles, len(x)/16)[i/16]), 16*len(q))
		for j, v := range q {
			sums[j%2] += float64(v) * float64(keys[j*16+i%16])
		}
		x[i], low[i] = pairOfFloats(sums[0] + sums[1])
	}
	return found
}

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }

// pairOfFloats splits x into the sum of two float32.
func pairOfFloats(x float64) (high, low float32) {
	high = float32(x)
	return high, float32(x - float64(high))
}

func (portable) scalePair(_ *args, x, low []float32, factor, slope, offset float32) {
	for i, s := range x {
		logit := float64(factor)*(float64(s)+float64(low[i])) + float64(slope)*float64(offset+float32(i))
		x[i], low[i] = pairOfFloats(logit)
	}
}

// minExponent is the smallest exponent of a weight: below it, e^x is not a normal number and becomes 0.
const minExponent = -87.336544

func weight(x float64) float32 {
	if x < minExponent {
		return 0
	}
	return float32(math.Exp(x))
}

func (portable) multiply(_ *args, x, y []float32) {
	for i := range x {
		x[i] *= y[i]
	}
}

func (portable) values(_ *args, p []float32, rows, n int, values []float32, chunks int, out []float32, stride,
	firstSum int) {
	for i := range rows {
		for c := range chunks {
			o, p, v := (*[chunk]float32)(out[i*stride+c*chunk:]), p[i*scoreStride:][:n], values[c*panelValues:]
			if firstSum == 0 {
				addValues(o, p, v)
				continue
			}
			for start, end := 0, min(n, firstSum); start < n; start, end = end, min(n, end+TileTokens) {
				var sums [chunk]float32
				addValues(&sums, p[start:end], v[start*chunk:])
				for j, s := range sums {
					o[j] += s
				}
			}
		}
	}
}

func addValues(o *[chunk]float32, p, values []float32) {
	for t, x := range p {
		v := (*[chunk]float32)(values[t*chunk:])
		for j := range o {
			o[j] += x * v[j]
		}
	}
}

func (portable) combine(_ *args, x, y []float32, a, b float32) {
	for i := range x {
		x[i] = x[i]*a + y[i]*b
	}
}

func (portable) convert(*args, DType, unsafe.Pointer, int, int, []float32) bool { return false }

func (portable) halve(*args, DType, unsafe.Pointer, int, unsafe.Pointer) bool { return false }

func (portable) narrow(DType, unsafe.Pointer, []float32) int { return 0 }

func (portable) widen(DType, []float32, unsafe.Pointer) int { return 0 }

func (portable) transpose(out, input unsafe.Pointer, stride, size, bytes int, _ bool) {
	for t := range TileTokens {
		row := unsafe.Add(input, t*stride)
		for i := range size {
			src, dst := unsafe.Add(row, i*bytes), unsafe.Add(out, (i*TileTokens+t)*bytes)
			if bytes == 2 {
				*(*uint16)(dst) = *(*uint16)(src)
			} else {
				*(*uint32)(dst) = *(*uint32)(src)
			}
		}
	}
}

func (portable) copyRows(out, input unsafe.Pointer, stride, n, size int, _ bool) {
	for i := range n {
		copy(unsafe.Slice((*byte)(unsafe.Add(out, i*size)), size), unsafe.Slice((*byte)(unsafe.Add(input, i*stride)), size))
	}
}

func (portable) prefetch(*args, []unsafe.Pointer) {}

func (portable) tileRows() int { return 0 }

func (portable) tileScores(*args, DType, []float32, int, int, *unsafe.Pointer, int, []float32) bool {
	return false
}

func (portable) tileValues(*args, DType, []float32, int, int, int, *unsafe.Pointer, int, []float32, int) bool {
	return false
}
