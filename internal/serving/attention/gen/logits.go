package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// logits generates the kernels for logits that are more precise than a float32. Each is the sum of two float32.
func logits(g *gen) {
	refine(g)
	softmax(g, true)
	if !g.wide() {
		scalePairs(g)
	}
}

// A refineKernel has the numbers of the registers that refine uses. A register of products has 16 float32 (a tile) with
// AVX-512, and 8 (half a tile) with AVX2. In float64, the same products take two registers.
type refineKernel struct {
	*gen
	limit, abs, infinite       int
	sums                       int // the first of 4 registers: two sum the even elements, two the odd elements
	keys                       int // the first of 2
	bcast, products, high, low int
	large                      int // AVX2 only: which products are large
}

// refine generates the kernel that computes the large products of one row again in float64. A product is large if it is
// finite and its magnitude is larger than argument x. Arguments:
//
//	input   the query
//	size    the number of elements of the query
//	data    a list of the addresses of tiles of keys in float32
//	n       the number of tiles
//	out     the products
//	low     an array as long as out
//	buffer  temporary memory
//
// The kernel replaces each large product by the sum of two float32: the rounded product in out, and its rounding error
// in low. For other products, the number in low becomes 0. If no product is NaN and no magnitude is larger than x, the
// kernel does not write low. Otherwise it sets flag to 1.
func refine(g *gen) {
	g.begin("refine")
	k := refineKernel{gen: g, limit: 11, abs: 12, infinite: 13, sums: 0, keys: 4, bcast: 6, products: 7, high: 8, low: 9,
		large: 10}
	g.asm.VBROADCASTSS(g.argMem(atX), g.regs[k.limit])
	g.asm.VBROADCASTSS(g.constant("abs", 0x7fffffff), g.regs[k.abs])
	g.asm.VBROADCASTSS(g.constant("infinite", 0x7f800000), g.regs[k.infinite])
	noneLarge := g.label("none")
	k.anyLarge(noneLarge)
	g.asm.MOVQ(operand.I32(1), g.argMem(atFlag))
	k.widen()
	out, low, tiles, n := g.arg(atOut), g.arg(atLow), g.arg(atData), g.arg(atN)
	g.tiles(n, func(_, offset int) { k.refine(out, low, tiles, offset) },
		advance{out, tileBytes}, advance{low, tileBytes}, advance{tiles, 8})
	g.asm.Label(noneLarge)
	g.end()
}

// anyLarge emits the code that jumps to label noneLarge if no magnitude of a product is larger than the limit. The code
// compares the bits of magnitudes as integers, so infinity and NaN count as larger.
func (k *refineKernel) anyLarge(noneLarge string) {
	g := k.gen
	tops := []int{0, 1}
	for _, top := range tops {
		g.zero(top)
	}
	out, n := g.arg(atOut), g.arg(atN)
	g.tiles(n, func(v, offset int) {
		g.asm.VMOVUPS(mem(out, offset), g.regs[2+v])
		g.and(g.regs[k.abs], g.regs[2+v])
		g.asm.VPMAXSD(g.regs[2+v], g.regs[tops[v]], g.regs[tops[v]])
	}, advance{out, tileBytes})
	g.asm.VPMAXSD(g.regs[1], g.regs[0], g.regs[0])
	k.jumpIfNone(g.asm.VPCMPGTD, noneLarge)
}

// jumpIfNone emits a jump to label. The jump is taken if no number in register 0 is greater than the limit. greater
// emits the comparison.
func (k *refineKernel) jumpIfNone(greater func(...operand.Op), label string) {
	g := k.gen
	if g.wide() {
		greater(g.regs[k.limit], g.regs[0], reg.K1)
		g.asm.KORTESTW(reg.K1, reg.K1)
	} else {
		bits := g.asm.GP32()
		greater(g.regs[k.limit], g.regs[0], g.regs[0])
		g.asm.VMOVMSKPS(g.regs[0], bits)
		g.asm.TESTL(bits, bits)
	}
	g.asm.JEQ(operand.LabelRef(label))
}

// widen emits the code that converts the query to float64.
func (k *refineKernel) widen() {
	g := k.gen
	input, query, n := g.arg(atInput), g.arg(atBuffer), g.arg(atSize)
	g.asm.SHRQ(operand.U8(2), n)
	g.loop(n, func() {
		g.asm.VCVTPS2PD(mem(input, 0), halves[0])
		g.asm.VMOVUPD(halves[0], mem(query, 0))
		g.asm.ADDQ(operand.I32(16), input)
		g.asm.ADDQ(operand.I32(32), query)
	})
}

// refine emits the code that computes products in one register again, with more precision. It does this for large
// products only: those that are finite and whose magnitude is above the limit. The register has the products of a tile
// of keys, or of half a tile. Its first product is offset bytes after the first product of the tile. Register tiles
// points to the address of the tile of keys.
func (k *refineKernel) refine(out, low, tiles reg.Register, offset int) {
	g := k.gen
	s, size := g.regs[k.products], g.regs[k.high]
	g.asm.VMOVUPS(mem(out, offset), s)
	g.zero(k.low)
	g.asm.VMOVAPS(s, size)
	g.and(g.regs[k.abs], size)
	const greaterThan, lessThan = 30, 17 // false for NaN
	keep := g.label("keep")
	if g.wide() {
		g.asm.VCMPPS(operand.U8(greaterThan), g.regs[k.limit], size, reg.K1)
		g.asm.VCMPPS(operand.U8(lessThan), g.regs[k.infinite], size, reg.K1, reg.K2)
		g.asm.KORTESTW(reg.K2, reg.K2)
	} else {
		large, bits := g.regs[k.large], g.asm.GP32()
		g.asm.VCMPPS(operand.U8(greaterThan), g.regs[k.limit], size, large)
		g.asm.VCMPPS(operand.U8(lessThan), g.regs[k.infinite], size, size)
		g.asm.VANDPS(size, large, large)
		g.asm.VMOVMSKPS(large, bits)
		g.asm.TESTL(bits, bits)
	}
	g.asm.JEQ(operand.LabelRef(keep))
	k.multiply(tiles, offset)
	k.split()
	if g.wide() {
		g.asm.VMOVAPS(g.regs[k.high], reg.K2, s)
		g.asm.VMOVAPS_Z(g.regs[k.low], reg.K2, g.regs[k.low])
	} else {
		g.asm.VBLENDVPS(g.regs[k.large], g.regs[k.high], s, s)
		g.asm.VANDPS(g.regs[k.large], g.regs[k.low], g.regs[k.low])
	}
	g.asm.VMOVUPS(s, mem(out, offset))
	g.asm.Label(keep)
	g.asm.VMOVUPS(g.regs[k.low], mem(low, offset))
}

// multiply emits the code that multiplies the query in float64 by keys of a tile: with AVX-512 by its 16 keys, with
// AVX2 by 8 of them. A row of the tile has one element of each key. The elements of the keys to multiply begin offset
// bytes after the beginning of the row. Register tiles points to the address of the tile.
func (k *refineKernel) multiply(tiles reg.Register, offset int) {
	g := k.gen
	for i := range 4 {
		g.zero(k.sums + i)
	}
	key, q, pairs := g.asm.GP64(), g.arg(atBuffer), g.arg(atSize)
	g.asm.MOVQ(mem(tiles, 0), key)
	g.asm.SHRQ(operand.U8(1), pairs)
	g.loop(pairs, func() {
		for e := range 2 {
			g.asm.VBROADCASTSD(mem(q, 8*e), g.regs[k.bcast])
			for half := range 2 {
				g.asm.VCVTPS2PD(mem(key, e*tileBytes+offset+half*g.bytes()/2), g.regs[k.keys+half])
				g.asm.VFMADD231PD(g.regs[k.bcast], g.regs[k.keys+half], g.regs[k.sums+2*e+half])
			}
		}
		g.asm.ADDQ(operand.I32(16), q)
		g.asm.ADDQ(operand.I32(2*tileBytes), key)
	})
}

// split emits the code that splits each float64 product into two float32: the rounded product in register high, and the
// rounding error in register low.
func (k *refineKernel) split() {
	g := k.gen
	for half := range 2 {
		sum, rounded, target := g.regs[k.sums+half], g.regs[k.keys], []int{k.high, k.bcast}[half]
		g.asm.VADDPD(g.regs[k.sums+2+half], sum, sum)
		g.round(sum, g.half[target])
		g.asm.VCVTPS2PD(g.half[target], rounded)
		g.asm.VSUBPD(rounded, sum, sum)
		g.round(sum, g.half[k.sums+half])
	}
	if g.wide() {
		g.asm.VINSERTF64X4(operand.U8(1), g.half[k.bcast], g.regs[k.high], g.regs[k.high])
		g.asm.VINSERTF64X4(operand.U8(1), g.half[k.sums+1], g.regs[k.sums], g.regs[k.low])
		return
	}
	g.asm.VINSERTF128(operand.U8(1), g.half[k.bcast], g.regs[k.high], g.regs[k.high])
	g.asm.VINSERTF128(operand.U8(1), g.half[k.sums+1], g.regs[k.sums], g.regs[k.low])
}

func (g *gen) round(src, dst reg.VecPhysical) {
	if g.wide() {
		g.asm.VCVTPD2PS(src, dst)
	} else {
		g.asm.VCVTPD2PSY(src, dst)
	}
}

// scalePairs generates the kernel that replaces each product by its logit:
//
//	x·product + y·(z + index)
//
// Arguments x and y are a factor and the ALiBi slope. z is the position of the first token minus that of the query
// token. index is the index of the product. Each product and each logit is the sum of two float32 with the same index,
// one in the array input and one in the array low. n is the number of tiles.
func scalePairs(g *gen) {
	g.begin("scalePairs")
	input, low, n := g.arg(atInput), g.arg(atLow), g.arg(atN)
	factor, slope, index, step := g.regs[0], g.regs[1], g.regs[2], g.regs[3]
	product, rest, bias, a, b := g.regs[4], g.regs[5], g.regs[6], g.regs[7], g.regs[8]
	g.asm.VBROADCASTSS(g.argMem(atX), factor)
	g.asm.VBROADCASTSS(g.argMem(atY), slope)
	g.asm.VBROADCASTSS(g.argMem(atZ), index)
	g.asm.VADDPS(g.counting("iota", 16), index, index)
	g.asm.VBROADCASTSS(g.float("lanes", float32(g.lanes)), step)
	g.tiles(n, func(_, offset int) {
		g.asm.VMOVUPS(mem(input, offset), rest)
		g.asm.VMULPS(factor, rest, product)
		g.asm.VFMSUB213PS(product, factor, rest)
		g.asm.VFMADD231PS(mem(low, offset), factor, rest)
		g.asm.VMULPS(index, slope, bias)
		g.asm.VMOVAPS(bias, a)
		g.asm.VFMSUB231PS(index, slope, a) // the negative rounding error of the bias
		g.asm.VADDPS(a, rest, rest)
		g.asm.VADDPS(bias, product, a)
		g.asm.VMOVUPS(a, mem(input, offset))
		g.asm.VSUBPS(product, a, b) // the part of bias that was added
		g.asm.VSUBPS(b, a, a)       // the part of product that was added
		g.asm.VSUBPS(b, bias, b)
		g.asm.VSUBPS(a, product, a)
		g.asm.VADDPS(a, b, b)
		g.asm.VADDPS(b, rest, rest)
		g.asm.VMOVUPS(rest, mem(low, offset))
		g.asm.VADDPS(step, index, index)
	}, advance{input, tileBytes}, advance{low, tileBytes})
	g.end()
}
