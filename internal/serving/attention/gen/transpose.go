package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"llmmemory/internal/serving/assembly"
)

// transposes generates the kernels that transpose or copy rows. The kernels that transpose take 16 rows of size
// numbers, and write size rows of 16 numbers to out. The rows in the array input are inputStride bytes apart, and size
// is a multiple of 8. If argument bypass is not 0, their stores bypass the caches, and out must be aligned to 32 bytes.
func transposes(g *gen) {
	g.onStack = true
	transpose32(g)
	transpose16(g)
	copyRows(g)
}

// store emits the code that writes registers to memory: register i to address out + i·step + disp. If register stream
// is not 0, the stores bypass the caches.
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

func (g *gen) fourRows(input reg.Register) (rows *assembly.Rows, stride reg.Register) {
	stride = g.arg(atInputStride)
	return assembly.NewRows(g.asm, input, func() reg.Register { return stride }, 4), stride
}

func transpose32(g *gen) {
	g.begin("transpose32")
	input, out, n, stream := g.arg(atInput), g.arg(atOut), g.arg(atSize), g.arg(atBypass)
	rows, stride := g.fourRows(input)
	g.asm.SHRQ(operand.U8(3), n)
	second := g.asm.GP64()
	g.asm.LEAQ(operand.Mem{Base: input, Index: stride, Scale: 8}, second)
	g.loop(n, func() {
		for half, base := range []reg.Register{input, second} {
			g.transpose8(rows.From(base), stride, out, 32*half, stream)
		}
		g.asm.ADDQ(operand.I32(32), input)
		g.asm.ADDQ(operand.I32(32), second)
		g.asm.ADDQ(operand.I32(8*64), out)
	})
	g.endStream(stream)
}

// transpose8 emits the code that transposes 8 by 8 float32 in registers of 8 numbers.
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
	for i := range 2 { // groups of four rows
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
	input, out, n, stream := g.arg(atInput), g.arg(atOut), g.arg(atSize), g.arg(atBypass)
	rows, stride := g.fourRows(input)
	g.asm.SHRQ(operand.U8(3), n)
	bases := [4]reg.GPVirtual{input, g.asm.GP64(), g.asm.GP64(), g.asm.GP64()} // of rows 0, 4, 8 and 12
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
		for i := range 2 { // groups of four rows
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

// copyRows generates the kernel that copies n rows of size bytes to out without gaps. The rows in the array input are
// inputStride bytes apart. size is a multiple of 32, and out is aligned to 32 bytes. The stores bypass the caches.
func copyRows(g *gen) {
	g.begin("copyRows")
	input, out, n, stride := g.arg(atInput), g.arg(atOut), g.arg(atN), g.arg(atInputStride)
	g.loop(n, func() {
		src, rest := g.copyOf(input), g.arg(atSize)
		part := g.label("part")
		g.asm.Label(part)
		g.asm.VMOVUPS(mem(src, 0), halves[0])
		g.asm.VMOVNTDQ(halves[0], mem(out, 0))
		g.asm.ADDQ(operand.I32(32), src)
		g.asm.ADDQ(operand.I32(32), out)
		g.asm.SUBQ(operand.I32(32), rest)
		g.asm.JNZ(operand.LabelRef(part))
		g.asm.ADDQ(stride, input)
	})
	g.asm.SFENCE()
	g.end()
}

// endStream emits the end of a function. If register stream is not 0, the function's stores have bypassed the caches,
// and a fence orders them before later stores.
func (g *gen) endStream(stream reg.Register) {
	plain := g.label("plain")
	g.asm.TESTQ(stream, stream)
	g.asm.JZ(operand.LabelRef(plain))
	g.asm.SFENCE()
	g.asm.Label(plain)
	g.end()
}
