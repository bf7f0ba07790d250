package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Instructions of AVX512-FP16, which Go's assembler does not have, on whole
// registers. They are written as bytes (Intel's manual, volume 2, 2.7, and the AVX512-FP16
// specification); a test compares them with GNU as.

// An fp16 is an instruction: a map of opcodes, a prefix (0: none, 1: 66, 2: F3) and
// an opcode.
type fp16 struct {
	name                string
	space, prefix, code uint8
}

var (
	vfmadd231ph = fp16{"VFMADD231PH", 6, 1, 0xb8}
	vaddph      = fp16{"VADDPH", 5, 0, 0x58}
	vcvtw2ph    = fp16{"VCVTW2PH", 5, 2, 0x7d}
)

// encode is the bytes of an instruction on registers of 512 bits by number. One
// without second operand has 0 there.
func (i fp16) encode(dst, second, third int) [6]byte {
	not := func(r, bit int) byte { return byte(^r >> bit & 1) }
	return [6]byte{
		0x62,
		not(dst, 3)<<7 | not(third, 4)<<6 | not(third, 3)<<5 | not(dst, 4)<<4 | i.space,
		byte(^second&15)<<3 | 4 | i.prefix,
		2<<5 | not(second, 4)<<3,
		i.code,
		0xc0 | byte(dst&7)<<3 | byte(third&7),
	}
}

// fp16 writes an instruction as numbers of 4 and 2 bytes.
func (g *gen) fp16(i fp16, dst, second, third int) {
	b := i.encode(dst, second, third)
	g.asm.Comment(fmt.Sprintf("%s Z%d, Z%d, Z%d", i.name, third, second, dst))
	low := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	g.asm.Instruction(&ir.Instruction{Opcode: "LONG", Operands: []operand.Op{operand.U32(low)}})
	g.asm.Instruction(&ir.Instruction{Opcode: "WORD", Operands: []operand.Op{operand.U16(uint16(b[4]) | uint16(b[5])<<8)}})
}

// fma adds the products of registers a and b to register sum.
func (g *gen) fma(sum, a, b int) { g.fp16(vfmadd231ph, sum, a, b) }

// Registers of the kernels in float16 that keep constants.
const (
	halfZero      = 31
	halfHigh      = 30 // of E4M3: what makes the upper byte of a float16, and the lower one
	halfLow       = 29
	halfNaN       = 28
	halfMagnitude = 27
	halfSpare     = 24 // 24 to 26
)

// Float16 of these types lack a factor: those of E4M3 2^8, those of Int8 2^-8. Words
// are float16 that were made before, in the order of unpacked bytes.
const words = "Words"

// halfConstants loads what halfLoad needs.
func (g *gen) halfConstants(d string) {
	if d == words {
		return
	}
	g.zero(halfZero)
	if d != "E4M3" {
		return
	}
	if _, ok := g.known["high"]; !ok {
		g.known["high"] = g.asm.ConstData("e4m3High"+g.suffix, operand.U64(0x0204081020400080))
		g.known["low"] = g.asm.ConstData("e4m3Low"+g.suffix, operand.U64(0x01))
	}
	g.asm.VPBROADCASTQ(g.known["high"], g.regs[halfHigh])
	g.asm.VPBROADCASTQ(g.known["low"], g.regs[halfLow])
	g.zero(halfNaN)
	g.asm.VPBROADCASTD(g.constant("magnitude", 0x7f7f7f7f), g.regs[halfMagnitude])
}

// halfLoad makes float16 of 64 bytes: of each 16 bytes, the first 8 in register lo
// and the others in hi. With a mask, it reads only the bytes in K1.
func (g *gen) halfLoad(d string, m operand.Mem, lo, hi int, masked bool) {
	if d == words {
		g.asm.VMOVDQU64(m, g.regs[lo])
		m.Disp += 64
		g.asm.VMOVDQU64(m, g.regs[hi])
		return
	}
	x, high, low := g.regs[halfSpare], g.regs[halfSpare+1], g.regs[halfSpare+2]
	var bytes operand.Op = m
	switch {
	case masked:
		g.asm.VMOVDQU8_Z(m, reg.K1, x)
		bytes = x
	case d == "E4M3":
		g.asm.VMOVDQU64(m, x)
	}
	if d == "E4M3" {
		g.asm.VGF2P8AFFINEQB(operand.U8(0), g.regs[halfHigh], x, high)
		g.asm.VGF2P8AFFINEQB(operand.U8(0), g.regs[halfLow], x, low)
		g.asm.VPANDD(x, g.regs[halfMagnitude], x)
		g.asm.VPMAXUB(x, g.regs[halfNaN], g.regs[halfNaN])
		g.asm.VPUNPCKLBW(high, low, g.regs[lo])
		g.asm.VPUNPCKHBW(high, low, g.regs[hi])
		return
	}
	g.asm.VPUNPCKLBW(bytes, g.regs[halfZero], g.regs[lo])
	g.asm.VPUNPCKHBW(bytes, g.regs[halfZero], g.regs[hi])
	if d == "Int8" {
		g.fp16(vcvtw2ph, lo, 0, lo)
		g.fp16(vcvtw2ph, hi, 0, hi)
	}
}
