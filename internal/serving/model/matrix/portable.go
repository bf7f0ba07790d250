package matrix

import (
	"math"
	"unsafe"

	"llmmemory/internal/serving/half"
)

// portableTile is like tile, but without prefetching. It rounds each product and each sum, so the last bits
// differ from those of kernels with fused multiply-add.
func portableTile(dst *float32, dstStride int, x *float32, xStride int, w *byte, k, rows int) {
	weights := unsafe.Slice((*float32)(unsafe.Pointer(w)), k*Panel)
	for r := range rows {
		sums := unsafe.Slice(add(dst, r*dstStride), Panel)
		xs := unsafe.Slice(add(x, r*xStride), k)
		for i, v := range xs {
			ws := weights[i*Panel:][:Panel]
			for c := range sums {
				sums[c] += v * ws[c]
			}
		}
	}
}

func (m *Matrix) portableDecode(dst *float32, p, k, n int) {
	weights := unsafe.Slice(dst, n*Panel)
	if m.Type.bits() > 0 {
		for c := range Panel {
			m.decodeBlocks(p, c, k, n, weights[c:], Panel)
		}
		return
	}
	for i, h := range m.halves(p)[k*Panel:][:n*Panel] {
		if m.Type == F16 {
			weights[i] = half.FromF16(h)
		} else {
			weights[i] = half.FromBF16(h)
		}
	}
}

// decodeBlocks writes the weights of output c of panel p for the inputs [k, k+n) to dst, stride values apart.
func (m *Matrix) decodeBlocks(p, c, k, n int, dst []float32, stride int) {
	bits, table := m.Type.bits(), m.Type.Table()
	for b := k / m.Block; b < (k+n)/m.Block; b++ {
		scale, integers := m.scale(p, c, b), m.integers(p, b)
		for i := range m.Block {
			q := int8(integers[i*bits/8*Panel+c])
			if bits == 4 {
				q = int8(byte(q) >> (i % 2 * 4) & 15)
			}
			dst[(b*m.Block+i-k)*stride] = scale.Weight(q, table)
		}
	}
}

func silu(g float32) float32 {
	return float32(float64(g) / (1 + math.Exp(-float64(g))))
}

// exponential returns exp(x) as 2^q × p(r), with q = round(x/ln 2) and r = x − q ln 2. ln 2 is the sum of two numbers; the
// product of q and the first is exact. p is the Taylor polynomial of degree 7. Each operation is rounded, so that other
// processors compute the same bits: expRounded of package asm is the same for AVX-512, and exponential of
// cuda/kernels/sample.cu for GPUs.
func exponential(x float32) float32 {
	const nearest = 3 << 22 // at such a number, a float32 has no fraction
	if x < -1000 {
		x = -1000
	}
	q := float32(float32(x*math.Log2E)+nearest) - nearest
	x -= float32(q * 0.693359375)
	x -= float32(q * -2.12194440e-4)
	p := float32(x*(1.0/5040)) + 1.0/720
	p = float32(p*x) + 1.0/120
	p = float32(p*x) + 1.0/24
	p = float32(p*x) + 1.0/6
	p = float32(p*x) + 1.0/2
	p = float32(p*x) + 1
	p = float32(p*x) + 1
	if q > -126 && q < 127 {
		return math.Float32frombits(math.Float32bits(p) + uint32(int32(q))<<23)
	}
	return float32(math.Ldexp(float64(p), int(q)))
}
