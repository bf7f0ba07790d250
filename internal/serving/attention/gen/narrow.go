package main

import "github.com/mmcloughlin/avo/operand"

// narrows generates the kernels that round float32 to 16 bits.
func narrows(g *gen) {
	g.onStack = true
	narrow(g, "F16", func(i int) {
		g.asm.VCVTPS2PH(operand.U8(0), g.regs[i], g.half[i])
	})
	narrow(g, "BF16", func(i int) { g.roundBF16(i) })
}

// narrow generates the kernel that rounds 16·n numbers of in to nearest, ties to even, and writes them to out.
func narrow(g *gen, name string, round func(i int)) {
	g.begin("narrow" + name)
	in, out, n := g.arg(atIn), g.arg(atOut), g.arg(atN)
	if name == "BF16" {
		g.broadcast("one", 1, 8)
		g.broadcast("half", 0x7fff, 9)
		g.broadcast("quiet", 0x40, 10)
	}
	g.tiles(n, func(_, at int) {
		g.asm.VMOVUPS(mem(in, at), g.regs[0])
		round(0)
		g.asm.VMOVDQU(quarters[0], mem(out, at/2))
	}, next{in, tileBytes}, next{out, tileBytes / 2})
	g.end()
}

func (g *gen) broadcast(name string, bits uint32, i int) {
	g.asm.VPBROADCASTD(g.constant(name, bits), g.regs[i])
}

// roundBF16 leaves the rounded numbers in the lower half of a register. It does not round NaN, but makes it quiet.
func (g *gen) roundBF16(i int) {
	x, up, nan := g.regs[i], g.regs[1], g.regs[2]
	g.asm.VPSRLD(operand.U8(16), x, nan)
	g.asm.VPAND(g.regs[8], nan, up)
	g.asm.VPOR(g.regs[10], nan, nan)
	g.asm.VCMPPS(operand.U8(3), x, x, g.regs[3])
	g.asm.VPADDD(g.regs[9], up, up)
	g.asm.VPADDD(up, x, x)
	g.asm.VPSRLD(operand.U8(16), x, x)
	g.asm.VPBLENDVB(g.regs[3], nan, x, x)
	g.asm.VEXTRACTI128(operand.U8(1), x, quarters[1])
	g.asm.VPACKUSDW(quarters[1], quarters[i], quarters[i])
}
