package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// narrows are the kernels that round float32 to 16 bits, and that turn rows of
// keys into a tile.
func narrows(g *gen) {
	narrow(g, "F16", func(i int) {
		g.VCVTPS2PH(operand.U8(0), g.regs[i], g.half[i])
	})
	narrow(g, "BF16", func(i int) { g.roundBF16(i) })
	transpose(g)
}

// narrow rounds 16·n numbers of in, to nearest and ties to even, and writes them
// to out.
func narrow(g *gen, name string, round func(i int)) {
	g.begin("narrow" + name)
	in, out, n := g.arg(atIn), g.arg(atOut), g.arg(atN)
	if name == "BF16" {
		g.broadcast("one", 1, 8)
		g.broadcast("half", 0x7fff, 9)
		g.broadcast("quiet", 0x40, 10)
	}
	g.loop(n, func() {
		for v := range 16 / g.lanes {
			g.VMOVUPS(mem(in, v*g.bytes()), g.regs[0])
			round(0)
			if g.wide() {
				g.VMOVDQU(halves[0], mem(out, 0))
			} else {
				g.VMOVDQU(quarters[0], mem(out, 16*v))
			}
		}
		g.ADDQ(operand.I32(64), in)
		g.ADDQ(operand.I32(32), out)
	})
	g.end()
}

func (g *gen) broadcast(name string, bits uint32, i int) {
	g.VPBROADCASTD(g.constant(name, bits), g.regs[i])
}

// roundBF16 leaves the rounded numbers in the lower half of a register. NaN
// becomes quiet and is not rounded.
func (g *gen) roundBF16(i int) {
	x, up, nan := g.regs[i], g.regs[1], g.regs[2]
	g.VPSRLD(operand.U8(16), x, nan)
	if g.wide() {
		g.VPANDD(g.regs[8], nan, up)
		g.VPORD(g.regs[10], nan, nan)
		g.VCMPPS(operand.U8(3), x, x, reg.K1)
	} else {
		g.VPAND(g.regs[8], nan, up)
		g.VPOR(g.regs[10], nan, nan)
		g.VCMPPS(operand.U8(3), x, x, g.regs[3])
	}
	g.VPADDD(g.regs[9], up, up)
	g.VPADDD(up, x, x)
	g.VPSRLD(operand.U8(16), x, x)
	if g.wide() {
		g.VPBLENDMD(nan, x, reg.K1, x)
		g.VPMOVDW(x, g.half[i])
		return
	}
	g.VPBLENDVB(g.regs[3], nan, x, x)
	g.VEXTRACTI128(operand.U8(1), x, quarters[1])
	g.VPACKUSDW(quarters[1], quarters[i], quarters[i])
}

// transpose turns 16 rows of size numbers into size rows of 16. size is a multiple
// of 8.
func transpose(g *gen) {
	g.begin("transpose")
	in, out, n := g.arg(atIn), g.arg(atOut), g.arg(atSize)
	stride := g.arg(atSize)
	g.SHLQ(operand.U8(2), stride)
	g.SHRQ(operand.U8(3), n)
	second := g.GP64()
	g.LEAQ(operand.Mem{Base: in, Index: stride, Scale: 8}, second)
	three := g.GP64()
	g.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, three)
	g.loop(n, func() {
		for half, base := range []reg.Register{in, second} {
			g.transpose8(base, stride, three, out, 32*half)
		}
		g.ADDQ(operand.I32(32), in)
		g.ADDQ(operand.I32(32), second)
		g.ADDQ(operand.I32(8*64), out)
	})
	g.end()
}

// transpose8 turns an 8 by 8 corner around, in registers of 8 numbers.
func (g *gen) transpose8(base, stride, three, out reg.Register, disp int) {
	y := halves
	four := g.GP64()
	g.LEAQ(operand.Mem{Base: base, Index: stride, Scale: 4}, four)
	for i := range 8 {
		m := operand.Mem{Base: base}
		if i >= 4 {
			m.Base = four
		}
		switch i % 4 {
		case 1:
			m.Index, m.Scale = stride, 1
		case 2:
			m.Index, m.Scale = stride, 2
		case 3:
			m.Index, m.Scale = three, 1
		}
		g.VMOVUPS(m, y[i])
	}
	for i := range 4 { // pairs of rows
		g.VUNPCKLPS(y[2*i+1], y[2*i], y[8+2*i])
		g.VUNPCKHPS(y[2*i+1], y[2*i], y[9+2*i])
	}
	for i := range 2 { // fours
		a, b := 8+4*i, 10+4*i
		g.VUNPCKLPD(y[b], y[a], y[4*i])
		g.VUNPCKHPD(y[b], y[a], y[4*i+1])
		g.VUNPCKLPD(y[b+1], y[a+1], y[4*i+2])
		g.VUNPCKHPD(y[b+1], y[a+1], y[4*i+3])
	}
	for i := range 4 {
		g.VPERM2F128(operand.U8(0x20), y[4+i], y[i], y[8+i])
		g.VPERM2F128(operand.U8(0x31), y[4+i], y[i], y[12+i])
	}
	for i := range 8 {
		g.VMOVUPS(y[8+i], mem(out, 64*i+disp))
	}
}
