package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// roomBytes is the size of room: two tiles of float16.
const roomBytes = 2 * tileTokens * 256 * 2

// Registers of the conversion of 64 bytes.
const (
	wordOrder = 28 // of 8 bytes at a time
	wordHigh  = 27 // what makes the upper byte of a word, and the lower one
	wordLow   = 26
)

// words reports whether numbers of a type become float16 in room, tile by tile, and
// are then read from there: those of E4M3, where GFNI makes 64 of them at a time.
func (g *gen) words(d dtype) bool { return g.vnni && d.name == "E4M3" }

// readAs is the type as which the numbers of a tile are read.
func (g *gen) readAs(d dtype) dtype {
	if g.words(d) {
		return float16
	}
	return d
}

// wordConstants loads what storeWords needs. A float16 of E4M3 is its sign, 0 and
// its upper six bits, and in the lower byte its lowest bit.
func (g *gen) wordConstants() {
	if _, ok := g.known["order"]; !ok {
		g.known["order"] = g.asm.StaticGlobal("order" + g.suffix)
		g.asm.DataAttributes(attr.RODATA | attr.NOPTR)
		for i, from := range []uint64{0, 4, 1, 5, 2, 6, 3, 7} {
			g.asm.AddDatum(8*i, operand.U64(from))
		}
		g.known["high"] = g.asm.ConstData("e4m3High"+g.suffix, operand.U64(0x0204081020400080))
		g.known["low"] = g.asm.ConstData("e4m3Low"+g.suffix, operand.U64(0x01))
	}
	g.asm.VMOVDQU64(g.known["order"], g.regs[wordOrder])
	g.asm.VPBROADCASTQ(g.known["high"], g.regs[wordHigh])
	g.asm.VPBROADCASTQ(g.known["low"], g.regs[wordLow])
}

// storeWords makes float16 of 64 numbers.
func (g *gen) storeWords(m, to operand.Mem) {
	x, high, low := g.regs[0], g.regs[1], g.regs[2]
	g.asm.VPERMQ(m, g.regs[wordOrder], x)
	g.asm.VGF2P8AFFINEQB(operand.U8(0), g.regs[wordHigh], x, high)
	g.asm.VGF2P8AFFINEQB(operand.U8(0), g.regs[wordLow], x, low)
	g.asm.VPUNPCKLBW(high, low, x)
	g.asm.VPUNPCKHBW(high, low, low)
	g.asm.VMOVDQU64(x, to)
	to.Disp += 64
	g.asm.VMOVDQU64(low, to)
}

// keyWords makes float16 of the keys of two tiles, from where they are multiplied.
func (g *gen) keyWords(k *scoreKernel) {
	at, end, room := g.asm.GP64(), g.arg(atSize), g.arg(atRoom)
	g.asm.XORQ(at, at)
	g.asm.SHLQ(operand.U8(4), end)
	next := g.label("words")
	g.asm.Label(next)
	for v := range 2 {
		m := operand.Mem{Base: k.key[v], Index: at, Scale: 1}
		g.storeWords(m, operand.Mem{Base: room, Index: at, Scale: 2, Disp: v * roomBytes / 2})
		g.checkNaN(m, 64, k.nan, k.magnitude, 3)
	}
	g.asm.ADDQ(operand.I32(64), at)
	g.asm.CMPQ(at, end)
	g.asm.JLT(operand.LabelRef(next))
	g.asm.MOVQ(room, k.key[0])
	g.asm.LEAQ(mem(room, roomBytes/2), k.key[1])
}

// valueWords makes float16 of the values of the next tokens of a tile, and of the other
// values in the same 64 bytes. The first token lies place bytes after the start of the tile.
func (g *gen) valueWords(k *valueKernel, place reg.GPVirtual) {
	at, end, room := g.copyOf(place), g.arg(atCount), g.arg(atRoom)
	g.asm.ANDQ(operand.I32(-64), at)
	g.asm.IMULQ(g.argMem(atSize), end)
	g.asm.ADDQ(place, end)
	next := g.label("words")
	g.asm.Label(next)
	m := operand.Mem{Base: k.values, Index: at, Scale: 1}
	g.storeWords(m, operand.Mem{Base: room, Index: at, Scale: 2})
	g.checkNaN(m, 64, k.nan, k.magnitude, 3)
	g.asm.ADDQ(operand.I32(64), at)
	g.asm.CMPQ(at, end)
	g.asm.JLT(operand.LabelRef(next))
	g.asm.LEAQ(operand.Mem{Base: room, Index: place, Scale: 2}, k.values)
}
