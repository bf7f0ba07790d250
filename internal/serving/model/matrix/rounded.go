package matrix

import (
	"math"

	"llmmemory/internal/serving/half"
)

// inputBlock is the number of activations that share a scale when they are rounded to 8 bits.
const inputBlock = 32

// minActivation is a limit for blocks of activations. If no magnitude in a block reaches it, the block becomes 0.
// Otherwise 127 divided by the largest magnitude is finite.
const minActivation = 1.0 / (1 << 100)

// A step has the scale of a block of rounded activations. negSum is the negated sum of the block's integers; some
// kernels use it to correct for the offset of weights. scaledNegSum is negSum × scale.
type step struct {
	scale        float32
	negSum       int32
	scaledNegSum float32
}

func newStep(scale float32, negSum int32) step { return step{scale, negSum, float32(negSum) * scale} }

// A rounded has activations that are rounded to integers from -127 to 127. Each block of 32 activations has a scale,
// which is the block's largest magnitude divided by 127. If all magnitudes of a block are below minActivation, its
// integers and its scale are 0. If a block has an infinity or a NaN, its scale is NaN, and so is every product with it.
type rounded struct {
	q       []int8
	stride  int    // from one row of q to the next
	steps32 []step // of blocks of 32
	steps16 []step // of their halves, for weights with a scale for each 16
}

// wholeRows is a divisor of the number of rows for which there is memory. Kernels of tiles read so many rows at a time.
const wholeRows = 16

// resize allocates memory for rows of cols values. It leaves a cache line between rows of q: without this space, rows
// could be a multiple of 4 KB apart, and their values would be in the same few places of the first-level cache.
func (r *rounded) resize(rows, cols int) {
	rows = (rows + wholeRows - 1) / wholeRows * wholeRows
	r.stride = cols + line
	r.q, r.steps32, r.steps16 = grow(r.q, rows*r.stride), grow(r.steps32, rows*cols/32), grow(r.steps16, rows*cols/16)
}

func (r *rounded) row(row int, x []float32) {
	cols := len(x)
	q, steps32, steps16 := r.q[row*r.stride:][:cols], r.steps32[row*cols/32:][:cols/32], r.steps16[row*cols/16:][:cols/16]
	if quantize(q, steps32, steps16, x) {
		return
	}
	for b := range steps32 {
		quantizeBlock(q[b*32:][:32], &steps32[b], steps16[2*b:][:2], x[b*32:][:32])
	}
}

func (r *rounded) steps(block int) []step {
	if block == 16 {
		return r.steps16
	}
	return r.steps32
}

func quantizeBlock(q []int8, whole *step, halves []step, x []float32) {
	var top uint32 // magnitudes compare as integers, of which a NaN is the largest
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	largest := math.Float32frombits(top)
	scale, inverse := largest/127+(largest-largest), 127/largest
	if largest < minActivation {
		scale, inverse = 0, 0
	}
	var minus [2]int32
	for i, v := range x {
		q[i] = 0
		if scale == scale {
			q[i] = int8(math.RoundToEven(float64(v * inverse)))
		}
		minus[i/16] -= int32(q[i])
	}
	halves[0], halves[1] = newStep(scale, minus[0]), newStep(scale, minus[1])
	*whole = newStep(scale, minus[0]+minus[1])
}

// minShort is the magnitude below which weights and activations of W16A16 become 0. All products and sums are then
// multiples of 2^-126, so none is a denormal. VDPBF16PS and tiles treat denormals as 0, unlike other instructions.
const minShort = 1.0 / (1 << 56)

// short rounds v to BF16 as the kernels do: to nearest, ties to even. Magnitudes below minShort become 0.
func short(v float32) uint16 {
	if v > -minShort && v < minShort {
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

// roundPairs rounds x to BF16 and stores two values in each element of dst. The value with the even index is in the
// high half, which VDPBF16PS multiplies first.
func roundPairs(dst, x []float32) {
	n := pairsOf(dst, x) / 2
	for i := range dst[n:] {
		dst[n+i] = math.Float32frombits(uint32(short(x[2*(n+i)]))<<16 | uint32(short(x[2*(n+i)+1])))
	}
}

// half returns the index of the weight of output c for input k in a panel of 16-bit weights.
func (m *Matrix) half(c, k int) int {
	if m.pairs {
		return k/2*2*Panel + c*2 + 1 - k%2
	}
	return k*Panel + c
}
