package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weights generates the kernels of the softmax of one row.
func weights(g *gen) {
	softmax(g, false)
	if !g.wide() {
		scale(g)
		multiply(g)
		combine(g)
		prefetch(g)
	}
}

// prefetch generates the kernel that prefetches cache lines. Argument data is a list of n addresses.
func prefetch(g *gen) {
	g.begin("ask")
	data, n, line := g.arg(atData), g.arg(atN), g.asm.GP64()
	g.loop(n, func() {
		g.asm.MOVQ(mem(data, 0), line)
		g.asm.PREFETCHT0(mem(line, 0))
		g.asm.ADDQ(operand.I32(8), data)
	})
	g.end()
}

func (g *gen) float(name string, v float32) operand.Mem {
	return g.constant(name, math.Float32bits(v))
}

// scale generates the kernel that replaces each product in the array input by its logit:
//
//	x·product + y·(z + index)
//
// Arguments x and y are a factor and the ALiBi slope. z is the position of the first token minus that of the query
// token. index is the index of the product in the array. n is the number of tiles.
func scale(g *gen) {
	g.begin("scale")
	input, n := g.arg(atInput), g.arg(atN)
	factor, slope, index, step, bias := 0, 1, 2, 3, 4
	g.asm.VBROADCASTSS(g.argMem(atX), g.regs[factor])
	g.asm.VBROADCASTSS(g.argMem(atY), g.regs[slope])
	g.asm.VBROADCASTSS(g.argMem(atZ), g.regs[index])
	iota := g.counting("iota", 16)
	g.asm.VADDPS(iota, g.regs[index], g.regs[index])
	g.asm.VBROADCASTSS(g.float("eight", float32(g.lanes)), g.regs[step])
	g.tiles(n, func(_, offset int) {
		g.asm.VMULPS(g.regs[index], g.regs[slope], g.regs[bias])
		g.asm.VMOVUPS(mem(input, offset), g.regs[bias+1])
		g.asm.VFMADD213PS(g.regs[bias], g.regs[factor], g.regs[bias+1])
		g.asm.VMOVUPS(g.regs[bias+1], mem(input, offset))
		g.asm.VADDPS(g.regs[step], g.regs[index], g.regs[index])
	}, advance{input, tileBytes})
	g.end()
}

// counting returns the address of an array of float32 that has the numbers 0 to n-1.
func (g *gen) counting(name string, n int) operand.Mem {
	m := g.asm.StaticGlobal(name + g.suffix)
	g.asm.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range n {
		g.asm.AddDatum(4*i, operand.U32(math.Float32bits(float32(i))))
	}
	return m
}

// Coefficients of a polynomial for e^x with |x| at most ln 2 / 2. They begin with the coefficient of x^6; the last two,
// of x and 1, are 1. In exact arithmetic, the relative error of the polynomial would be 3e-9. Rounding its value to
// float32 causes an error of up to 6e-8.
//
// roundMagic is 1.5·2^23. Adding it to a number rounds the number to an integer, and leaves the integer in the lowest
// bits of the sum.
const (
	log2e      = 1.44269504088896341
	ln2        = 0.693147180559945309 // as float32, too large by ln2Rest
	ln2Rest    = 1.904654299957771e-9
	roundMagic = 12582912
	minimum    = -87.336544 // for smaller x, e^x is not a normal number
)

var expCoefficients = []float32{1.3814611726e-3, 8.3687105284e-3, 4.1668387431e-2, 1.6666520684e-1, 4.9999993451e-1, 1,
	1}

// softmax generates the kernel that replaces each product in the array input by its weight:
//
//	exp(x·product - m)
//
// Argument x is a positive factor, and n is the number of tiles. m is the largest logit, which is the largest
// x·product. The kernel returns m in x and the sum of the weights in y.
//
// If pairs is true, each product is the sum of two float32 with the same index, one in the array input and one in the
// array low. The kernel then keeps the rounding errors of the logits and of the differences x·product - m.
func softmax(g *gen, pairs bool) {
	name := "softmax"
	if pairs {
		name = "softmaxPairs"
	}
	g.begin(name)
	k := softmaxKernel{gen: g, pairs: pairs, vecs: 16 / g.lanes, top: 0, sum: 1, factor: 3, x: 4, t: 5, y: 6, magic: 7,
		log2e: 8, ln2: 9, spare: 10, zeroed: 12, rest: 13}
	g.asm.VBROADCASTSS(g.argMem(atX), g.regs[k.factor])
	k.largest()
	for v := range k.vecs {
		g.zero(k.sum + v)
	}
	k.load()
	input, n := g.arg(atInput), g.arg(atN)
	pointers := []advance{{input, tileBytes}}
	if pairs {
		k.low = g.arg(atLow)
		pointers = append(pointers, advance{k.low, tileBytes})
	}
	g.tiles(n, func(v, _ int) { k.exp(input, v) }, pointers...)
	if k.vecs == 2 {
		g.asm.VADDPS(g.regs[k.sum+1], g.regs[k.sum], g.regs[k.sum])
	}
	g.horizontal(k.sum, k.t, g.asm.VADDPS)
	g.asm.VMOVSS(quarters[k.sum], g.argMem(atY))
	g.end()
}

// A softmaxKernel has the numbers of its registers.
type softmaxKernel struct {
	*gen
	vecs              int // registers of a tile
	top, sum, factor  int // largest logit; vecs sums of weights
	x, t, y           int
	magic, log2e, ln2 int // constants
	zeroed            int // 0
	pairs             bool
	low               reg.GPVirtual
	rest              int // the first of three: rounding errors of logits
	spare             int // the first of the remaining ones: coefficients and the minimum
	constants         []operand.Mem
}

// largest emits the code that finds the largest logit. A logit is a factor times an element of the input. The code
// finds the largest element, and then multiplies it by the factor. It keeps the largest elements so far in several
// registers, so that an instruction need not wait for the result of the instruction before it. For pairs, it ignores
// the array low.
func (k *softmaxKernel) largest() {
	g, tops := k.gen, []int{k.top, k.x, k.t, k.y}
	infinite := g.float("negInf", float32(math.Inf(-1)))
	for _, top := range tops {
		g.asm.VBROADCASTSS(infinite, g.regs[top])
	}
	input, n := g.arg(atInput), g.arg(atN)
	several, rest, found := g.label("several"), g.label("rest"), g.label("found")
	tiles := len(tops) / k.vecs
	g.asm.Label(several)
	g.asm.SUBQ(operand.U8(tiles), n)
	g.asm.JLT(operand.LabelRef(rest))
	for i, top := range tops {
		g.asm.VMAXPS(mem(input, i*g.bytes()), g.regs[top], g.regs[top])
	}
	g.asm.ADDQ(operand.I32(tiles*tileBytes), input)
	g.asm.JMP(operand.LabelRef(several))
	g.asm.Label(rest)
	g.asm.ADDQ(operand.U8(tiles), n)
	g.asm.JZ(operand.LabelRef(found))
	g.tiles(n, func(v, offset int) {
		g.asm.VMAXPS(mem(input, offset), g.regs[tops[v]], g.regs[tops[v]])
	}, advance{input, tileBytes})
	g.asm.Label(found)
	for half := len(tops) / 2; half > 0; half /= 2 {
		for i := range half {
			g.asm.VMAXPS(g.regs[tops[i+half]], g.regs[tops[i]], g.regs[tops[i]])
		}
	}
	g.horizontal(k.top, k.t, g.asm.VMAXPS)
	g.asm.VMULSS(quarters[k.factor], quarters[k.top], quarters[k.top])
	g.asm.VMOVSS(quarters[k.top], g.argMem(atX))
	g.asm.VBROADCASTSS(quarters[k.top], g.regs[k.top])
	// If all logits are -inf, subtract 0 and not -inf, so that the weights become 0 and not NaN.
	weighted := g.label("some")
	g.asm.VUCOMISS(infinite, quarters[k.top])
	g.asm.JNE(operand.LabelRef(weighted))
	g.asm.JP(operand.LabelRef(weighted))
	g.zero(k.top)
	g.asm.Label(weighted)
}

// load emits the code that loads constants into registers. With AVX2, there are registers only for some of the
// constants.
func (k *softmaxKernel) load() {
	g := k.gen
	g.asm.VBROADCASTSS(g.float("magic", roundMagic), g.regs[k.magic])
	g.zero(k.zeroed)
	g.asm.VBROADCASTSS(g.float("log2e", log2e), g.regs[k.log2e])
	g.asm.VBROADCASTSS(g.float("ln2", -ln2), g.regs[k.ln2])
	for i, f := range append(slices.Clone(expCoefficients), minimum, ln2Rest, -1) {
		k.constants = append(k.constants, g.float(fmt.Sprintf("exp%d", i), f))
	}
	if g.wide() {
		k.spare = 16
		for i, m := range k.constants {
			g.asm.VBROADCASTSS(m, g.regs[k.spare+i])
		}
	}
}

func (k *softmaxKernel) constant(i int) reg.VecPhysical {
	if k.wide() {
		return k.regs[k.spare+i]
	}
	k.asm.VBROADCASTSS(k.constants[i], k.regs[k.spare])
	return k.regs[k.spare]
}

// exp emits the code that replaces the products of register v by weights and adds the weights to their sum. A weight
// is 0 if its exponent is below minimum, and NaN if the product is NaN.
func (k *softmaxKernel) exp(input reg.Register, v int) {
	g, x, t, y := k.gen, k.regs[k.x], k.regs[k.t], k.regs[k.y]
	enough := k.regs[k.spare+1] // mask of the logits that are not less than the minimum
	if k.pairs {
		k.difference(input, v)
	} else {
		g.asm.VMULPS(mem(input, v*g.bytes()), g.regs[k.factor], x)
		g.asm.VSUBPS(g.regs[k.top], x, x)
	}
	if g.wide() {
		g.asm.VCMPPS(operand.U8(5), k.constant(len(expCoefficients)), x, reg.K1)
	} else {
		g.asm.VCMPPS(operand.U8(5), k.constant(len(expCoefficients)), x, enough)
	}
	g.asm.VMINPS(g.regs[k.zeroed], x, t)                   // 0 if x is NaN: the bits of t are added to y
	g.asm.VFMADD213PS(g.regs[k.magic], g.regs[k.log2e], t) // t = x·log2e + magic
	g.asm.VSUBPS(g.regs[k.magic], t, y)                    // y = the power of 2
	g.asm.VFMADD231PS(y, g.regs[k.ln2], x)                 // x = the rest
	if k.pairs {
		rest := g.regs[k.rest]
		g.asm.VFMADD231PS(k.constant(len(expCoefficients)+1), y, rest)
		g.asm.VMINPS(k.constant(len(expCoefficients)-1), rest, rest)
		g.asm.VMAXPS(k.constant(len(expCoefficients)+2), rest, rest)
		g.asm.VADDPS(rest, x, x)
	}
	g.asm.VMOVAPS(k.constant(0), y)
	for i := range expCoefficients[1:] {
		g.asm.VFMADD213PS(k.constant(i+1), x, y)
	}
	g.asm.VPSLLD(operand.U8(23), t, t)
	if g.wide() {
		g.asm.VPADDD_Z(t, y, reg.K1, y)
	} else {
		g.asm.VPADDD(t, y, y)
		g.asm.VANDPS(enough, y, y)
	}
	g.asm.VMOVUPS(y, mem(input, v*g.bytes()))
	g.asm.VADDPS(y, g.regs[k.sum+v], g.regs[k.sum+v])
}

// difference emits the code that sets register x to a logit minus the largest logit, and register rest to the rounding
// error of this difference. The rounding error exceeds 1 only if logits are too large for float32.
func (k *softmaxKernel) difference(input reg.Register, v int) {
	g, x, product, top := k.gen, k.regs[k.x], k.regs[k.y], k.regs[k.top]
	rest, a, b := k.regs[k.rest], k.regs[k.rest+1], k.regs[k.rest+2]
	g.asm.VMOVUPS(mem(input, v*g.bytes()), rest)
	g.asm.VMULPS(g.regs[k.factor], rest, product)
	g.asm.VFMSUB213PS(product, g.regs[k.factor], rest)
	g.asm.VFMADD231PS(mem(k.low, v*g.bytes()), g.regs[k.factor], rest)
	g.asm.VSUBPS(top, product, x)
	g.asm.VSUBPS(x, product, a) // the part of top that was subtracted
	g.asm.VADDPS(a, x, b)       // the part of product from which a was subtracted
	g.asm.VSUBPS(b, product, b)
	g.asm.VSUBPS(top, a, a)
	g.asm.VADDPS(a, b, b)
	g.asm.VADDPS(b, rest, rest)
}

// horizontal emits the code that combines all lanes of register r with op, and leaves the result in lane 0. With 16
// lanes, the code combines lane i with lane i+8, then with i+4, i+2 and i+1. With 8 lanes, it begins with i+4.
func (g *gen) horizontal(r, spare int, op func(...operand.Op)) {
	if g.wide() {
		g.asm.VEXTRACTF64X4(operand.U8(1), g.regs[r], halves[spare])
		op(halves[spare], halves[r], halves[r])
	}
	g.asm.VEXTRACTF128(operand.U8(1), halves[r], quarters[spare])
	op(quarters[spare], quarters[r], quarters[r])
	g.asm.VPSHUFD(operand.U8(0x4e), quarters[r], quarters[spare])
	op(quarters[spare], quarters[r], quarters[r])
	g.asm.VPSHUFD(operand.U8(0xb1), quarters[r], quarters[spare])
	op(quarters[spare], quarters[r], quarters[r])
}

// multiply generates the kernel that multiplies each number in the array input by the number with the same index in the
// array data. n is the number of tiles.
func multiply(g *gen) {
	g.begin("multiply")
	input, data, n := g.arg(atInput), g.arg(atData), g.arg(atN)
	g.tiles(n, func(_, offset int) {
		g.asm.VMOVUPS(mem(input, offset), g.regs[0])
		g.asm.VMULPS(mem(data, offset), g.regs[0], g.regs[0])
		g.asm.VMOVUPS(g.regs[0], mem(input, offset))
	}, advance{input, tileBytes}, advance{data, tileBytes})
	g.end()
}

// combine generates the kernel that adds two arrays of n tiles, each with a factor:
//
//	input[i] = x·input[i] + y·data[i]
func combine(g *gen) {
	g.begin("combine")
	input, data, n := g.arg(atInput), g.arg(atData), g.arg(atN)
	g.asm.VBROADCASTSS(g.argMem(atX), g.regs[0])
	g.asm.VBROADCASTSS(g.argMem(atY), g.regs[1])
	g.tiles(n, func(_, offset int) {
		g.asm.VMULPS(mem(input, offset), g.regs[0], g.regs[2])
		g.asm.VFMADD231PS(mem(data, offset), g.regs[1], g.regs[2])
		g.asm.VMOVUPS(g.regs[2], mem(input, offset))
	}, advance{input, tileBytes}, advance{data, tileBytes})
	g.end()
}
