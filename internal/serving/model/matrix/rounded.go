package matrix

import "math"

// inputBlock is the number of activations that share a scale when they are rounded to 8 bits.
const inputBlock = 32

// tiny is the magnitude below which activations count as zeros, so that 127/magnitude is finite.
const tiny = 1.0 / (1 << 100)

// A step is the scale of a block of rounded activations, and the sum of the integers, which is kept
// negative: with it, kernels take away what was added to the weights. times is minus times scale.
type step struct {
	scale float32
	minus int32
	times float32
}

func newStep(scale float32, minus int32) step { return step{scale, minus, float32(minus) * scale} }

// A rounded has activations that are integers from -127 to 127 times the scale of their block of 32: its largest
// magnitude divided by 127. A block whose magnitudes are all below tiny becomes zeros. The scale of a
// block with an infinity or a NaN is NaN, and so is each product with it, whatever its integers are.
type rounded struct {
	q       []int8
	steps32 []step // of blocks of 32
	steps16 []step // of their halves, for weights whose scales are of 16
}

// reach grows all rows to a number of values.
func (r *rounded) reach(values int) {
	if len(r.q) < values {
		r.q, r.steps32, r.steps16 = make([]int8, values), make([]step, values/32), make([]step, values/16)
	}
}

// row rounds one row.
func (r *rounded) row(row int, x []float32) {
	in := len(x)
	q, steps32, steps16 := r.q[row*in:][:in], r.steps32[row*in/32:][:in/32], r.steps16[row*in/16:][:in/16]
	if quantize(q, steps32, steps16, x) {
		return
	}
	for b := range steps32 {
		quantizeBlock(q[b*32:][:32], &steps32[b], steps16[2*b:][:2], x[b*32:][:32])
	}
}

// of has the steps of blocks of 32 or 16.
func (r *rounded) of(block int) []step {
	if block == 16 {
		return r.steps16
	}
	return r.steps32
}

// quantizeBlock does the same operations as the kernels do.
func quantizeBlock(q []int8, whole *step, halves []step, x []float32) {
	var top uint32 // magnitudes compare as integers, of which a NaN is the largest
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	largest := math.Float32frombits(top)
	scale, inverse := largest/127+(largest-largest), 127/largest
	if largest < tiny {
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
