package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// integers generates the kernels for int8 keys. They multiply queries of 16-bit integers by the keys, and add the
// products as integers. They use two consecutive elements of a query or a key as a pair: two 16-bit numbers in 32 bits.
// For AVX2, integers also generates the kernels that prepare the queries and keys.
func integers(g *gen) {
	panelScores(g, g.rows, true)
	for _, n := range g.tileRows {
		tileScore(g, int8s, n)
	}
	if !g.wide() {
		magnitude(g)
		quantize(g)
		pack(g)
	}
}

// dot emits the code that multiplies the pairs in register a by the pairs in register b, and adds both products of each
// pair to register sum. Without VNNI, the code overwrites register spare.
func (g *gen) dot(a, b, sum, spare reg.VecPhysical) {
	if g.vnni {
		g.asm.VPDPWSSD(a, b, sum)
		return
	}
	g.asm.VPMADDWD(a, b, spare)
	g.asm.VPADDD(spare, sum, sum)
}

func (g *gen) toFloat(n int) {
	for i := range n {
		g.asm.VCVTDQ2PS(g.regs[i], g.regs[i])
	}
}

func (g *gen) pairing(k int) {
	if !g.wide() {
		return
	}
	if _, ok := g.known["pairing"]; !ok {
		g.known["pairing"] = g.asm.StaticGlobal("pairing" + g.suffix)
		g.asm.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range tileTokens {
			g.asm.AddDatum(4*i, operand.U32(i|(tileTokens+i)<<16))
		}
	}
	g.asm.VMOVDQU64(g.known["pairing"], g.regs[k])
}

func (g *gen) tilePairs(k *scoreKernel, q *assembly.Rows) {
	for pair := range 2 {
		for v := range 2 {
			g.loadPairs(k, v, pair)
		}
		for row := range k.n {
			b := g.regs[k.bcast]
			g.asm.VPBROADCASTD(q.At(row, 4*pair), b)
			for v := range 2 {
				g.dot(b, g.regs[k.keys+v], g.regs[2*row+v], g.regs[k.bcast+1])
			}
		}
	}
	q.Advance(g.asm, operand.I32(8))
	g.asm.ADDQ(operand.I32(4*k.line), k.offset)
}

// loadPairs emits the code that loads one pair of elements of each key, as 16-bit numbers, into register keys+v. With
// AVX-512, the register gets the 16 keys of tile v. With AVX2, it gets 8 keys: those in half v of the tile.
func (g *gen) loadPairs(k *scoreKernel, v, pair int) {
	r := g.regs[k.keys+v]
	m := operand.Mem{Base: k.key[0], Index: k.offset, Scale: 1, Disp: 2 * pair * k.line}
	if g.wide() {
		m.Base = k.key[v]
		g.asm.VPMOVSXBW(m, r)
		g.asm.VPERMW(r, g.regs[k.pairing], r)
		return
	}
	m.Disp += v * g.lanes
	g.asm.VPMOVSXBD(m, r)
	m.Disp += k.line
	high := g.regs[k.keys+2]
	g.asm.VPMOVSXBD(m, high)
	g.asm.VPSLLD(operand.U8(16), high, high)
	g.asm.VPBLENDW(operand.U8(0xaa), high, r, r)
}

// magnitude generates the kernel that sets flag to the bits of the largest magnitude of 8·n float32 in the array input.
// If a number is NaN, flag becomes the bits of a NaN, which are larger than those of infinity.
func magnitude(g *gen) {
	g.begin("magnitude")
	input, n := g.arg(atInput), g.arg(atN)
	top, x, mask := halves[0], halves[1], halves[2]
	g.zero(0)
	g.asm.VPBROADCASTD(g.constant("abs", 0x7fffffff), mask)
	g.loop(n, func() {
		g.asm.VPAND(mem(input, 0), mask, x)
		g.asm.VPMAXSD(x, top, top)
		g.asm.ADDQ(operand.I32(32), input)
	})
	g.asm.VEXTRACTI128(operand.U8(1), top, quarters[1])
	g.asm.VPMAXSD(quarters[1], quarters[0], quarters[0])
	for _, order := range []uint8{0x4e, 0xb1} {
		g.asm.VPSHUFD(operand.U8(order), quarters[0], quarters[1])
		g.asm.VPMAXSD(quarters[1], quarters[0], quarters[0])
	}
	bits := g.asm.GP32()
	g.asm.VMOVD(quarters[0], bits)
	g.asm.MOVQ(bits.As64(), g.argMem(atFlag))
	g.end()
}

// quantize generates the kernel that multiplies 8·n numbers in the array input by x, rounds them to 16-bit integers,
// and writes these to out.
func quantize(g *gen) {
	g.begin("quantize")
	input, out, n := g.arg(atInput), g.arg(atOut), g.arg(atN)
	factor, x := halves[0], halves[1]
	g.asm.VBROADCASTSS(g.argMem(atX), factor)
	g.loop(n, func() {
		g.asm.VMULPS(mem(input, 0), factor, x)
		g.asm.VCVTPS2DQ(x, x)
		g.asm.VEXTRACTI128(operand.U8(1), x, quarters[2])
		g.asm.VPACKSSDW(quarters[2], quarters[1], quarters[1])
		g.asm.VMOVDQU(quarters[1], mem(out, 0))
		g.asm.ADDQ(operand.I32(32), input)
		g.asm.ADDQ(operand.I32(16), out)
	})
	g.end()
}

// pack generates the kernel that combines rows of 16 integers into rows of 16 pairs. In the array input, each integer
// is stored as a float32. Of two consecutive rows, the integers with the same index become a pair: the first row's
// integer in the lower 16 bits, and the second row's in the upper 16 bits. n is the number of rows of pairs. The kernel
// writes them to out, which may be the same address as input.
func pack(g *gen) {
	g.begin("pack")
	input, out, n := g.arg(atInput), g.arg(atOut), g.arg(atN)
	low, high, mask := g.regs[0], g.regs[1], g.regs[2]
	g.asm.VPBROADCASTD(g.constant("low", 0xffff), mask)
	g.tiles(n, func(_, offset int) {
		g.asm.VCVTPS2DQ(mem(input, offset), low)
		g.asm.VCVTPS2DQ(mem(input, offset+tileBytes), high)
		g.and(mask, low)
		g.asm.VPSLLD(operand.U8(16), high, high)
		g.asm.VPOR(high, low, low)
		g.asm.VMOVUPS(low, mem(out, offset))
	}, advance{input, 2 * tileBytes}, advance{out, tileBytes})
	g.end()
}
