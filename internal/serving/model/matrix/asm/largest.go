package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// largest512 compares sixty-four values at a time. VMAXPS returns its second source, in Go's
// order the first, if one of the two is NaN, so a mask tells whether there was one: VCMPPS sets a bit
// if one of two values is NaN.
func largest512() {
	begin("largestAVX512", "func(x *float32, n uintptr) float32",
		"is the largest of n values, a multiple of 64, and NaN if one of them is.")
	x, n := arg("x"), arg("n")
	var most [4]VecVirtual
	for i := range most {
		most[i] = constant(math.Inf(-1))
	}
	nan := asm.K()
	asm.KXORW(nan, nan, nan)
	loop("step", n, 64, func() {
		var v [4]VecVirtual
		for i, m := range most {
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
	asm.VMAXPS(most[1], most[0], most[0])
	asm.VMAXPS(most[3], most[2], most[2])
	asm.VMAXPS(most[2], most[0], most[0])
	half := asm.YMM()
	asm.VEXTRACTF64X4(Imm(1), most[0], half)
	all, one := most[0].AsY(), most[0].AsX()
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
