package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// logits generates the kernels for more precise logits. They represent each logit of a row by the sum of two float32.
func logits(g *gen) {
	refine(g)
	softmax(g, true)
	if !g.wide() {
		scalePairs(g)
	}
}

// A refineKernel has the numbers of the registers that refine uses. A register of products has 16 float32 (a tile) with
// AVX-512 and 8 (half a tile) with AVX2. In float64, these products take two registers.
type refineKernel struct {
	*gen
	limit, abs, infinite       int
	sums                       int // the first of 4 registers: two sum the even elements, two the odd elements
	keys                       int // the first of 2
	bcast, products, high, low int
	large                      int // AVX2 only: which products are large
}

// refine generates the kernel that computes large products again in float64. The products are in the array out, and
// large means finite and larger than x. The kernel stores each result as the sum of two float32: the rounded product in
// out, and the rest in the array low. Argument in is the query of one row, and size the elements of a head. data is the
// addresses of tiles of keys in float32, and n the number of tiles. buffer is temporary memory. If no magnitude is
// larger than x, the kernel does not write low; otherwise it sets flag to 1.
func refine(g *gen) {
	g.begin("refine")
	k := refineKernel{gen: g, limit: 11, abs: 12, infinite: 13, sums: 0, keys: 4, bcast: 6, products: 7, high: 8, low: 9,
		large: 10}
	g.asm.VBROADCASTSS(g.argMem(atX), g.regs[k.limit])
	g.asm.VBROADCASTSS(g.constant("abs", 0x7fffffff), g.regs[k.abs])
	g.asm.VBROADCASTSS(g.constant("infinite", 0x7f800000), g.regs[k.infinite])
	none := g.label("none")
	k.anyLarge(none)
	g.asm.MOVQ(operand.I32(1), g.argMem(atFlag))
	k.widen()
	out, low, list, n := g.arg(atOut), g.arg(atLow), g.arg(atData), g.arg(atN)
	g.tiles(n, func(_, at int) { k.refine(out, low, list, at) },
		advance{out, tileBytes}, advance{low, tileBytes}, advance{list, 8})
	g.asm.Label(none)
	g.end()
}

// anyLarge emits the code that jumps to the label none if no product is larger than the limit. It compares magnitudes
// as integers, so infinity and NaN count as larger.
func (k *refineKernel) anyLarge(none string) {
	g := k.gen
	tops := []int{0, 1}
	for _, top := range tops {
		g.zero(top)
	}
	out, n := g.arg(atOut), g.arg(atN)
	g.tiles(n, func(v, at int) {
		g.asm.VMOVUPS(mem(out, at), g.regs[2+v])
		g.and(g.regs[k.abs], g.regs[2+v])
		g.asm.VPMAXSD(g.regs[2+v], g.regs[tops[v]], g.regs[tops[v]])
	}, advance{out, tileBytes})
	g.asm.VPMAXSD(g.regs[1], g.regs[0], g.regs[0])
	k.jumpIfNone(g.asm.VPCMPGTD, none)
}

// jumpIfNone emits a jump to the label none that is taken if no number in register 0 is greater than the limit.
// greater emits the comparison.
func (k *refineKernel) jumpIfNone(greater func(...operand.Op), none string) {
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
	g.asm.JEQ(operand.LabelRef(none))
}

func (k *refineKernel) widen() {
	g := k.gen
	in, query, n := g.arg(atIn), g.arg(atBuffer), g.arg(atSize)
	g.asm.SHRQ(operand.U8(2), n)
	g.loop(n, func() {
		g.asm.VCVTPS2PD(mem(in, 0), halves[0])
		g.asm.VMOVUPD(halves[0], mem(query, 0))
		g.asm.ADDQ(operand.I32(16), in)
		g.asm.ADDQ(operand.I32(32), query)
	})
}

// refine emits the code that computes the large products of one register again. The register has the products of a tile
// that begin at byte at. Register list points to the address of the tile of keys.
func (k *refineKernel) refine(out, low, list reg.Register, at int) {
	g := k.gen
	s, size := g.regs[k.products], g.regs[k.high]
	g.asm.VMOVUPS(mem(out, at), s)
	g.zero(k.low)
	g.asm.VMOVAPS(s, size)
	g.and(g.regs[k.abs], size)
	const greater, less = 30, 17 // false for NaN
	keep := g.label("keep")
	if g.wide() {
		g.asm.VCMPPS(operand.U8(greater), g.regs[k.limit], size, reg.K1)
		g.asm.VCMPPS(operand.U8(less), g.regs[k.infinite], size, reg.K1, reg.K2)
		g.asm.KORTESTW(reg.K2, reg.K2)
	} else {
		large, bits := g.regs[k.large], g.asm.GP32()
		g.asm.VCMPPS(operand.U8(greater), g.regs[k.limit], size, large)
		g.asm.VCMPPS(operand.U8(less), g.regs[k.infinite], size, size)
		g.asm.VANDPS(size, large, large)
		g.asm.VMOVMSKPS(large, bits)
		g.asm.TESTL(bits, bits)
	}
	g.asm.JEQ(operand.LabelRef(keep))
	k.multiply(list, at)
	k.split()
	if g.wide() {
		g.asm.VMOVAPS(g.regs[k.high], reg.K2, s)
		g.asm.VMOVAPS_Z(g.regs[k.low], reg.K2, g.regs[k.low])
	} else {
		g.asm.VBLENDVPS(g.regs[k.large], g.regs[k.high], s, s)
		g.asm.VANDPS(g.regs[k.large], g.regs[k.low], g.regs[k.low])
	}
	g.asm.VMOVUPS(s, mem(out, at))
	g.asm.Label(keep)
	g.asm.VMOVUPS(g.regs[k.low], mem(low, at))
}

// multiply emits the code that multiplies the query in float64 by some keys of a tile: by as many keys as a register
// has float32. A row of the tile has one element of each key. The elements of these keys begin at byte at of the row.
// Register list points to the address of the tile.
func (k *refineKernel) multiply(list reg.Register, at int) {
	g := k.gen
	for i := range 4 {
		g.zero(k.sums + i)
	}
	key, q, pairs := g.asm.GP64(), g.arg(atBuffer), g.arg(atSize)
	g.asm.MOVQ(mem(list, 0), key)
	g.asm.SHRQ(operand.U8(1), pairs)
	g.loop(pairs, func() {
		for e := range 2 {
			g.asm.VBROADCASTSD(mem(q, 8*e), g.regs[k.bcast])
			for half := range 2 {
				g.asm.VCVTPS2PD(mem(key, e*tileBytes+at+half*g.bytes()/2), g.regs[k.keys+half])
				g.asm.VFMADD231PD(g.regs[k.bcast], g.regs[k.keys+half], g.regs[k.sums+2*e+half])
			}
		}
		g.asm.ADDQ(operand.I32(16), q)
		g.asm.ADDQ(operand.I32(2*tileBytes), key)
	})
}

func (k *refineKernel) split() {
	g := k.gen
	for half := range 2 {
		sum, back, to := g.regs[k.sums+half], g.regs[k.keys], []int{k.high, k.bcast}[half]
		g.asm.VADDPD(g.regs[k.sums+2+half], sum, sum)
		g.round(sum, g.half[to])
		g.asm.VCVTPS2PD(g.half[to], back)
		g.asm.VSUBPD(back, sum, sum)
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

func (g *gen) round(from, to reg.VecPhysical) {
	if g.wide() {
		g.asm.VCVTPD2PS(from, to)
	} else {
		g.asm.VCVTPD2PSY(from, to)
	}
}

// scalePairs generates the kernel that replaces products by logits, x·product + y·(z + index). Each product or logit
// is the sum of two float32, one in the array in and one in the array low. n is the number of tiles.
func scalePairs(g *gen) {
	g.begin("scalePairs")
	in, low, n := g.arg(atIn), g.arg(atLow), g.arg(atN)
	factor, slope, index, step := g.regs[0], g.regs[1], g.regs[2], g.regs[3]
	product, rest, bias, a, b := g.regs[4], g.regs[5], g.regs[6], g.regs[7], g.regs[8]
	g.asm.VBROADCASTSS(g.argMem(atX), factor)
	g.asm.VBROADCASTSS(g.argMem(atY), slope)
	g.asm.VBROADCASTSS(g.argMem(atZ), index)
	g.asm.VADDPS(g.counting("iota", 16), index, index)
	g.asm.VBROADCASTSS(g.float("lanes", float32(g.lanes)), step)
	g.tiles(n, func(_, at int) {
		g.asm.VMOVUPS(mem(in, at), rest)
		g.asm.VMULPS(factor, rest, product)
		g.asm.VFMSUB213PS(product, factor, rest)
		g.asm.VFMADD231PS(mem(low, at), factor, rest)
		g.asm.VMULPS(index, slope, bias)
		g.asm.VMOVAPS(bias, a)
		g.asm.VFMSUB231PS(index, slope, a) // the negative rounding error of the bias
		g.asm.VADDPS(a, rest, rest)
		g.asm.VADDPS(bias, product, a)
		g.asm.VMOVUPS(a, mem(in, at))
		g.asm.VSUBPS(product, a, b) // the part of bias that was added
		g.asm.VSUBPS(b, a, a)       // the part of product that was added
		g.asm.VSUBPS(b, bias, b)
		g.asm.VSUBPS(a, product, a)
		g.asm.VADDPS(a, b, b)
		g.asm.VADDPS(b, rest, rest)
		g.asm.VMOVUPS(rest, mem(low, at))
		g.asm.VADDPS(step, index, index)
	}, advance{in, tileBytes}, advance{low, tileBytes})
	g.end()
}
