package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// transposes generates the kernels that transpose 16 rows, each of size numbers, to rows of 16 numbers. The rows of the
// input are inStride bytes apart, and size is a multiple of 8. If first is not 0, the kernels bypass the caches; out
// must then be aligned to 32 bytes.
func transposes(g *gen) {
	g.onStack = true
	transpose32(g)
	transpose16(g)
	copyRows(g)
}

// store emits the code that writes register i to memory at out + i·step + disp. If register stream is not 0, the
// stores bypass the caches.
func (g *gen) store(registers []reg.VecPhysical, out reg.Register, disp, step int, stream reg.Register) {
	plain, stored := g.label("plain"), g.label("stored")
	g.asm.TESTQ(stream, stream)
	g.asm.JZ(operand.LabelRef(plain))
	for i, r := range registers {
		g.asm.VMOVNTDQ(r, mem(out, i*step+disp))
	}
	g.asm.JMP(operand.LabelRef(stored))
	g.asm.Label(plain)
	for i, r := range registers {
		g.asm.VMOVUPS(r, mem(out, i*step+disp))
	}
	g.asm.Label(stored)
}

func (g *gen) fourRows(in reg.Register) (rows *assembly.Rows, stride reg.Register) {
	stride = g.arg(atInStride)
	return assembly.NewRows(g.asm, in, func() reg.Register { return stride }, 4), stride
}

func transpose32(g *gen) {
	g.begin("transpose32")
	in, out, n, stream := g.arg(atIn), g.arg(atOut), g.arg(atSize), g.arg(atFirst)
	rows, stride := g.fourRows(in)
	g.asm.SHRQ(operand.U8(3), n)
	second := g.asm.GP64()
	g.asm.LEAQ(operand.Mem{Base: in, Index: stride, Scale: 8}, second)
	g.loop(n, func() {
		for half, base := range []reg.Register{in, second} {
			g.transpose8(rows.From(base), stride, out, 32*half, stream)
		}
		g.asm.ADDQ(operand.I32(32), in)
		g.asm.ADDQ(operand.I32(32), second)
		g.asm.ADDQ(operand.I32(8*64), out)
	})
	g.endStream(stream)
}

// transpose8 transposes 8 by 8 numbers, in registers of 8.
func (g *gen) transpose8(rows *assembly.Rows, stride, out reg.Register, disp int, stream reg.Register) {
	y := halves
	four := g.asm.GP64()
	g.asm.LEAQ(operand.Mem{Base: rows.Base, Index: stride, Scale: 4}, four)
	for i := range 4 {
		g.asm.VMOVUPS(rows.At(i, 0), y[i])
	}
	for i := range 4 {
		g.asm.VMOVUPS(rows.From(four).At(i, 0), y[4+i])
	}
	for i := range 4 { // pairs of rows
		g.asm.VUNPCKLPS(y[2*i+1], y[2*i], y[8+2*i])
		g.asm.VUNPCKHPS(y[2*i+1], y[2*i], y[9+2*i])
	}
	for i := range 2 { // fours
		a, b := 8+4*i, 10+4*i
		g.asm.VUNPCKLPD(y[b], y[a], y[4*i])
		g.asm.VUNPCKHPD(y[b], y[a], y[4*i+1])
		g.asm.VUNPCKLPD(y[b+1], y[a+1], y[4*i+2])
		g.asm.VUNPCKHPD(y[b+1], y[a+1], y[4*i+3])
	}
	for i := range 4 {
		g.asm.VPERM2F128(operand.U8(0x20), y[4+i], y[i], y[8+i])
		g.asm.VPERM2F128(operand.U8(0x31), y[4+i], y[i], y[12+i])
	}
	g.store(y[8:16], out, disp, 64, stream)
}

// transpose16 generates the kernel for numbers of 16 bits. It takes 8 numbers of each row at a time. Rows 0 to 7 are
// in the lower halves of registers and rows 8 to 15 in the upper halves.
func transpose16(g *gen) {
	g.begin("transpose16")
	in, out, n, stream := g.arg(atIn), g.arg(atOut), g.arg(atSize), g.arg(atFirst)
	rows, stride := g.fourRows(in)
	g.asm.SHRQ(operand.U8(3), n)
	bases := [4]reg.GPVirtual{in, g.asm.GP64(), g.asm.GP64(), g.asm.GP64()} // of rows 0, 4, 8 and 12
	for i := range 3 {
		g.asm.LEAQ(operand.Mem{Base: bases[i], Index: stride, Scale: 4}, bases[i+1])
	}
	y := halves
	g.loop(n, func() {
		for i := range 8 {
			g.asm.VMOVDQU(rows.From(bases[i/4]).At(i%4, 0), quarters[i])
			g.asm.VINSERTI128(operand.U8(1), rows.From(bases[i/4+2]).At(i%4, 0), y[i], y[i])
		}
		for i := range 4 { // pairs of rows
			g.asm.VPUNPCKLWD(y[2*i+1], y[2*i], y[8+2*i])
			g.asm.VPUNPCKHWD(y[2*i+1], y[2*i], y[9+2*i])
		}
		for i := range 2 { // fours
			for half := range 2 {
				a := 8 + 4*i + half
				g.asm.VPUNPCKLDQ(y[a+2], y[a], y[4*i+2*half])
				g.asm.VPUNPCKHDQ(y[a+2], y[a], y[4*i+2*half+1])
			}
		}
		for i := range 4 {
			g.asm.VPUNPCKLQDQ(y[4+i], y[i], y[8+2*i])
			g.asm.VPUNPCKHQDQ(y[4+i], y[i], y[9+2*i])
		}
		g.store(y[8:16], out, 0, 32, stream)
		for _, b := range bases {
			g.asm.ADDQ(operand.I32(16), b)
		}
		g.asm.ADDQ(operand.I32(8*32), out)
	})
	g.endStream(stream)
}

// copyRows generates the kernel that copies n rows of size bytes to memory without gaps. The source rows are inStride
// bytes apart. size is a multiple of 32, and out is aligned to 32 bytes. The kernel bypasses the caches.
func copyRows(g *gen) {
	g.begin("copyRows")
	in, out, n, stride := g.arg(atIn), g.arg(atOut), g.arg(atN), g.arg(atInStride)
	g.loop(n, func() {
		at, rest := g.copyOf(in), g.arg(atSize)
		again := g.label("part")
		g.asm.Label(again)
		g.asm.VMOVUPS(mem(at, 0), halves[0])
		g.asm.VMOVNTDQ(halves[0], mem(out, 0))
		g.asm.ADDQ(operand.I32(32), at)
		g.asm.ADDQ(operand.I32(32), out)
		g.asm.SUBQ(operand.I32(32), rest)
		g.asm.JNZ(operand.LabelRef(again))
		g.asm.ADDQ(stride, in)
	})
	g.asm.SFENCE()
	g.end()
}

// endStream emits the end of a function. If register stream is not 0, the function has bypassed the caches, and a
// fence orders its stores before later ones.
func (g *gen) endStream(stream reg.Register) {
	plain := g.label("plain")
	g.asm.TESTQ(stream, stream)
	g.asm.JZ(operand.LabelRef(plain))
	g.asm.SFENCE()
	g.asm.Label(plain)
	g.end()
}
