package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// float16s are the kernels that prepare what those in float16 read, and put in order
// what they write.
func float16s(g *gen) {
	expand(g)
	pair(g)
	inOrder(g)
	for _, d := range []string{"E4M3", "E5M2", "Int8"} {
		makeWords(g, d)
	}
}

// expand makes float16 of 8·n numbers, times x, each of them 8 times. in: numbers;
// out: float16.
func expand(g *gen) {
	g.begin("expand")
	in, out, n := g.arg(atIn), g.arg(atOut), g.arg(atN)
	order := g.asm.StaticGlobal("eightfold" + g.suffix)
	g.asm.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 32 {
		g.asm.AddDatum(4*i, operand.U32(i/4*0x10001))
	}
	next := order
	next.Disp += 64
	g.asm.VMOVDQU64(order, g.regs[1])
	g.asm.VMOVDQU64(next, g.regs[2])
	g.asm.VBROADCASTSS(g.argMem(atX), halves[3])
	g.loop(n, func() {
		g.asm.VMULPS(mem(in, 0), halves[3], halves[0])
		g.asm.VCVTPS2PH(operand.U8(0), halves[0], quarters[0])
		for i := range 2 {
			g.asm.VPERMW(g.regs[0], g.regs[1+i], g.regs[4])
			g.asm.VMOVDQU64(g.regs[4], mem(out, 64*i))
		}
		g.asm.ADDQ(operand.I32(32), in)
		g.asm.ADDQ(operand.I32(128), out)
	})
	g.end()
}

// pair makes two equal float16 of each of n tiles of weights, times x. in: weights.
func pair(g *gen) {
	g.begin("pair")
	in, n := g.arg(atIn), g.arg(atN)
	g.asm.VBROADCASTSS(g.argMem(atX), g.regs[3])
	g.loop(n, func() {
		g.asm.VMULPS(mem(in, 0), g.regs[3], g.regs[0])
		g.asm.VCVTPS2PH(operand.U8(0), g.regs[0], halves[0])
		g.asm.VPMOVZXWD(halves[0], g.regs[0])
		g.asm.VPSLLD(operand.U8(16), g.regs[0], g.regs[1])
		g.asm.VPORD(g.regs[1], g.regs[0], g.regs[0])
		g.asm.VMOVDQU64(g.regs[0], mem(in, 0))
		g.asm.ADDQ(operand.I32(64), in)
	})
	g.end()
}

// inOrder puts the sums of 16·n elements in order, times x. in: sums as in room; out:
// sums.
func inOrder(g *gen) {
	g.begin("inOrder")
	in, out, n := g.arg(atIn), g.arg(atOut), g.arg(atN)
	factor, done := halves[2], g.label("done")
	g.asm.VBROADCASTSS(g.argMem(atX), factor)
	again := g.label("loop")
	g.asm.Label(again)
	for i := range 4 {
		for part := range 2 {
			g.asm.VMULPS(mem(in, 32*i+128*part), factor, halves[part])
			g.asm.VMOVUPS(halves[part], mem(out, 64*i+32*part))
		}
		g.asm.DECQ(n)
		g.asm.JZ(operand.LabelRef(done))
	}
	g.asm.ADDQ(operand.I32(256), in)
	g.asm.ADDQ(operand.I32(256), out)
	g.asm.JMP(operand.LabelRef(again))
	g.asm.Label(done)
	g.end()
}

// makeWords makes words of n times 64 bytes. in: bytes; out: words. flag becomes 1 if a
// number is NaN or infinite, else 0.
func makeWords(g *gen, d string) {
	g.begin("words" + d)
	in, out, n := g.arg(atIn), g.arg(atOut), g.arg(atN)
	g.halfConstants(d)
	const lo, hi, x, top, limit = 0, 1, 2, 3, 4
	g.zero(top)
	if d == "E5M2" {
		g.asm.VPBROADCASTD(g.constant("magnitude", 0x7f7f7f7f), g.regs[halfMagnitude])
	}
	g.loop(n, func() {
		g.halfLoad(d, mem(in, 0), lo, hi, false)
		if d == "E5M2" {
			g.asm.VPANDD(mem(in, 0), g.regs[halfMagnitude], g.regs[x])
			g.asm.VPMAXUB(g.regs[x], g.regs[top], g.regs[top])
		}
		g.asm.VMOVDQU64(g.regs[lo], mem(out, 0))
		g.asm.VMOVDQU64(g.regs[hi], mem(out, 64))
		g.asm.ADDQ(operand.I32(64), in)
		g.asm.ADDQ(operand.I32(128), out)
	})
	switch d {
	case "E4M3":
		g.foundNaNWide(halfNaN, halfMagnitude)
	case "E5M2":
		g.asm.VPBROADCASTD(g.constant("infinity", 0x7c7c7c7c), g.regs[limit])
		bits, hit := g.asm.GP64(), g.asm.GP32()
		g.asm.VPCMPUB(operand.U8(5), g.regs[limit], g.regs[top], reg.K1) // top not less than limit
		g.asm.KMOVQ(reg.K1, bits)
		g.asm.XORL(hit, hit)
		g.asm.TESTQ(bits, bits)
		g.asm.SETNE(hit.As8L())
		g.asm.MOVL(hit, g.argMem(atFlag))
	}
	g.end()
}
