package main

import (
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// dotRow generates the AVX-512 kernel that multiplies one row by all outputs of a panel. It unpacks weights into
// registers, where it also keeps the sums. Each block begins with its scales. If p is nil, weights are bytes.
func dotRow(p *packing) {
	r := newRowDot(p)
	r.sums.load()
	groups, scales := r.groups, r.scales
	loop("block", r.blocks, 1, func() {
		r.sums.begin()
		asm.MOVQ(r.w, scales)
		r.fetchScales(scales)
		asm.TESTQ(r.minima, r.minima)
		asm.JEQ(LabelRef("weights"))
		r.fetchScales(r.w)
		asm.Label("weights")
		asm.Load(asm.Param("groups"), groups)
		loop("group", groups, 1, r.group)
		r.sums.add(Mem{Base: scales}, func() { asm.TESTQ(r.minima, r.minima) })
		asm.ADDQ(Imm(stepBytes), r.sums.steps.Base)
	})
	r.sums.store()
	end()
}

type rowDot struct {
	packing              *packing
	unpacking            *unpacking // nil if weights are bytes
	sums                 *blockSums
	pairs                int            // pairs of a group
	fetch                func(line Mem) // prefetches a line
	x, w, blocks, minima Register
	groups, scales       Register
}

const rowVectors = panel / 16

func newRowDot(p *packing) *rowDot {
	name := "Int8"
	r := &rowDot{packing: p, pairs: 2, fetch: func(line Mem) { asm.PREFETCHT1(line) }} // 33 to 35 GB/s on a Zen 4, with PREFETCHT0 24 to 27
	if p != nil {
		name = p.name
		r.pairs, r.fetch = p.pairs(), func(line Mem) { asm.PREFETCHT0(line) }
	}
	begin("dotRow"+name+"AVX512",
		"func("+resultParameters+", x *int8, steps *uint64, w *byte, blocks, groups, shift, minima uintptr, table *byte)")
	r.x, r.w, r.blocks, r.minima = arg("x"), arg("w"), arg("blocks"), arg("minima")
	r.groups, r.scales = asm.GP64(), asm.GP64()
	r.sums = newBlockSums(rowsOf("steps", "", 1), 1, rowVectors)
	if p != nil {
		r.unpacking = newUnpacking(*p, avx512)
	}
	return r
}

// fetchScales emits the code that prefetches as many bytes as the scales or the minima of a block have. These bytes
// begin at the distance prefetch from the address in register scales. The code also advances register r.w to the end of
// the current scales or minima.
func (r *rowDot) fetchScales(scales Register) {
	for line := range panel * 2 / 64 {
		r.fetch(Mem{Base: scales, Disp: prefetch + line*64})
	}
	asm.ADDQ(U32(panel*2), r.w)
}

func (r *rowDot) load(offset int, z VecVirtual) {
	r.fetch(Mem{Base: r.w, Disp: prefetch + offset})
	asm.VMOVUPS(Mem{Base: r.w, Disp: offset}, z)
}

func (r *rowDot) group() {
	lowOffset, size, high := 0, 2*r.pairs*quadBytes, make([]VecVirtual, rowVectors)
	if r.packing != nil {
		lowOffset = r.packing.lowOffset()
		size = lowOffset + r.pairs*quadBytes
	}
	for v := 0; v < rowVectors && lowOffset > 0; v++ {
		high[v] = asm.ZMM()
		r.load(v*64, high[v])
	}
	for pair := range r.pairs {
		bs := zmms(2)
		for i, b := range bs {
			asm.VPBROADCASTD(Mem{Base: r.x, Disp: (2*pair + i) * 4}, b)
		}
		for v := range rowVectors {
			r.multiply(pair, v, lowOffset, high[v], bs)
		}
	}
	asm.ADDQ(U32(uint32(size)), r.w)
	asm.ADDQ(Imm(uint64(r.pairs*8)), r.x)
}

// multiply emits the code that multiplies the two quads of a pair for 16 outputs.
func (r *rowDot) multiply(pair, v, lowOffset int, high VecVirtual, bs []VecVirtual) {
	ws := zmms(2)
	if r.packing == nil {
		r.load(2*pair*quadBytes+v*64, ws[0])
		r.load((2*pair+1)*quadBytes+v*64, ws[1])
	} else {
		r.load(lowOffset+pair*quadBytes+v*64, ws[0])
		asm.VPSRLD(Imm(4), ws[0], ws[1])
	}
	for i, z := range ws {
		if r.packing != nil {
			r.unpacking.expand(z, high, 2*pair+i)
		}
		asm.VPDPBUSD(bs[i], z, r.sums.acc[0][v])
	}
}
