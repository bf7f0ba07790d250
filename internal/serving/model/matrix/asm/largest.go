package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// largest512 generates the kernel that finds the largest of a multiple of 64 values, or NaN if one of them is. VMAXPS
// returns its second source (the first in Go's order) if one of the two is NaN. VCMPPS therefore sets bits of a mask
// where one of two values is NaN.
func largest512() {
	begin("largestAVX512", "func(x *float32, n uintptr) float32")
	x, n := arg("x"), arg("n")
	var tops [4]VecVirtual
	for i := range tops {
		tops[i] = constant(math.Inf(-1))
	}
	nan := asm.K()
	asm.KXORW(nan, nan, nan)
	loop("step", n, 64, func() {
		var v [4]VecVirtual
		for i, m := range tops {
			v[i] = asm.ZMM()
			asm.VMOVUPS(Mem{Base: x, Disp: 64 * i}, v[i])
			asm.VMAXPS(m, v[i], m)
		}
		for i := 0; i < len(v); i += 2 {
			const unordered = 3
			either := asm.K()
			asm.VCMPPS(Imm(unordered), v[i], v[i+1], either)
			asm.KORW(either, nan, nan)
		}
		asm.ADDQ(U32(256), x)
	})
	asm.VMAXPS(tops[1], tops[0], tops[0])
	asm.VMAXPS(tops[3], tops[2], tops[2])
	asm.VMAXPS(tops[2], tops[0], tops[0])
	half := asm.YMM()
	asm.VEXTRACTF64X4(Imm(1), tops[0], half)
	all, one := tops[0].AsY(), tops[0].AsX()
	asm.VMAXPS(half, all, all)
	asm.VEXTRACTF128(Imm(1), all, half.AsX())
	asm.VMAXPS(half.AsX(), one, one)
	for _, lanes := range []uint64{0b01001110, 0b10110001} {
		asm.VPERMILPS(Imm(lanes), one, half.AsX())
		asm.VMAXPS(half.AsX(), one, one)
	}
	asm.KORTESTW(nan, nan)
	asm.JZ(LabelRef("numbers"))
	asm.VPCMPEQD(one, one, one)
	asm.Label("numbers")
	asm.Store(one, asm.ReturnIndex(0))
	end()
}
