package main

import (
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A packing is the layout of weights of less than 8 bits. A quad is 4 consecutive inputs. Two quads are a pair, and 2
// or 4 pairs are a group. The low 4 bits of a weight and its high bits, if it has any, are stored apart:
//
//   - If weights have more than 4 bits, a group begins with 256 bytes with the high bits of all its weights.
//   - Then follow 256 bytes for each pair. The low half of each byte has the low bits of a weight of the first quad.
//     The high half has the low bits of a weight of the second quad.
type packing struct {
	name  string
	high  int  // number of bits above the low 4
	table bool // the integers are indices of a table
}

var packings = []packing{{name: "Int4"}, {name: "Int5", high: 1}, {name: "Int6", high: 2}, {name: "Table4", table: true}}

func (p packing) pairs() int {
	if p.high == 1 {
		return 4
	}
	return 2
}

func (p packing) lowOffset() int { return min(p.high, 1) * quadBytes }

// unpack generates the kernel that expands weights to bytes.
func unpack(width width, p packing) {
	begin("unpack"+p.name+width.name, "func(dst, w *byte, wStride, blocks, groups uintptr, table *byte)")
	dst, w, blocks, stride := arg("dst"), arg("w"), arg("blocks"), arg("wStride")
	groups, n, lowOffset := asm.GP64(), asm.GP64(), p.lowOffset()
	u := newUnpacking(p, width)
	loop("block", blocks, 1, func() {
		asm.Load(asm.Param("groups"), groups)
		loop("group", groups, 1, func() {
			asm.MOVQ(U32(uint32(quadBytes/width.bytes)), n)
			loop("column", n, 1, func() {
				high := width.reg()
				if p.high > 0 {
					asm.VMOVUPS(Mem{Base: w}, high)
				}
				for pair := range p.pairs() {
					packed := Mem{Base: w, Disp: lowOffset + pair*quadBytes}
					if width.bytes == 64 {
						asm.PREFETCHT0(packed.Offset(prefetch))
					}
					low, next := width.reg(), width.reg()
					asm.VMOVUPS(packed, low)
					asm.VPSRLD(Imm(4), low, next)
					for i, z := range []VecVirtual{low, next} {
						u.expand(z, high, 2*pair+i)
						asm.VMOVUPS(z, Mem{Base: dst, Disp: (2*pair + i) * quadBytes})
					}
				}
				asm.ADDQ(U32(uint32(width.bytes)), w)
				asm.ADDQ(U32(uint32(width.bytes)), dst)
			})
			asm.ADDQ(U32(uint32(lowOffset+(p.pairs()-1)*quadBytes)), w)
			asm.ADDQ(U32(uint32((2*p.pairs()-1)*quadBytes)), dst)
		})
		asm.ADDQ(stride, w)
	})
	end()
}

// An unpacking holds constants in registers.
type unpacking struct {
	packing
	width
	low, highMask, values VecVirtual
}

func newUnpacking(p packing, width width) *unpacking {
	u := &unpacking{packing: p, width: width, low: width.constant(0x0f0f0f0f)}
	if p.table {
		u.values = width.reg()
		if width.bytes == 64 {
			asm.VBROADCASTI32X4(Mem{Base: arg("table")}, u.values)
		} else {
			asm.VBROADCASTI128(Mem{Base: arg("table")}, u.values)
		}
	}
	if p.high > 0 {
		u.highMask = width.constant(0x10101010 * uint32(1<<p.high-1))
	}
	return u
}

// expand emits the code that completes the weights of a quad in register z. Before, the low half of each byte of z has
// the low 4 bits of a weight; the high half is ignored. Afterwards, each byte has a whole weight, or the number of the
// table if the packing has one. Register high has the high bits of all weights of the group for the same outputs as z.
// quad is the index of the quad in the group.
func (u *unpacking) expand(z, high VecVirtual, quad int) {
	u.bitAnd(u.low, z, z)
	if u.table {
		asm.VPSHUFB(z, u.values, z)
	}
	if u.high == 0 {
		return
	}
	bits := u.reg()
	switch shift := 4 - u.packing.high*quad; {
	case shift > 0:
		asm.VPSLLD(Imm(uint64(shift)), high, bits)
	case shift < 0:
		asm.VPSRLD(Imm(uint64(-shift)), high, bits)
	default:
		bits = high
	}
	if u.bytes == 64 {
		asm.VPTERNLOGD(Imm(0xf8), bits, u.highMask, z) // z | bits & upper
		return
	}
	masked := u.reg()
	u.bitAnd(u.highMask, bits, masked)
	asm.VPOR(masked, z, z)
}
