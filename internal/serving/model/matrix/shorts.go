package matrix

import (
	"math"

	"llmmemory/internal/serving/half"
)

// leastShort is the magnitude below which weights and activations of W16A16 count as 0. All products and their sums are
// then multiples of 2^-126, so that none is a denormal: VDPBF16PS treats denormals as 0, other instructions do not.
const leastShort = 1.0 / (1 << 56)

// short rounds to BF16 as the kernels do: to nearest, ties to even, and to 0 below leastShort.
func short(v float32) uint16 {
	if v > -leastShort && v < leastShort {
		return 0
	}
	return half.ToBF16(v)
}

func roundShorts(dst, x []float32) {
	n := shortsOf(dst, x)
	for i, v := range x[n:] {
		dst[n+i] = half.FromBF16(short(v))
	}
}

// roundPairs sets each value of dst to two values of x, rounded to BF16. The value of the even k is in the high half,
// which VDPBF16PS multiplies first.
func roundPairs(dst, x []float32) {
	n := pairsOf(dst, x) / 2
	for i := range dst[n:] {
		dst[n+i] = math.Float32frombits(uint32(short(x[2*(n+i)]))<<16 | uint32(short(x[2*(n+i)+1])))
	}
}

// half returns the index of an output's weight k in a panel of 16-bit weights.
func (m *Matrix) half(c, k int) int {
	if m.pairs {
		return k/2*2*Panel + c*2 + 1 - k%2
	}
	return k*Panel + c
}
