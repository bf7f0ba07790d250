package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// largest512 compares sixty-four values at a time. VMAXPS returns its second source, in Go's
// order the first, if one of the two is NaN.
func largest512() {
	TEXT("largestAVX512", NOSPLIT, "func(x *float32, n uintptr) float32")
	Doc("largestAVX512 is the largest of n values, a multiple of 64, of which NaN are none: −∞ if there are no others.")
	Pragma("noescape")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	var most [4]VecVirtual
	for i := range most {
		most[i] = constant(math.Inf(-1))
	}
	loop("step", n, 64, func() {
		for i, m := range most {
			v := ZMM()
			VMOVUPS(Mem{Base: x, Disp: 64 * i}, v)
			VMAXPS(m, v, m)
		}
		ADDQ(U32(256), x)
	})
	VMAXPS(most[1], most[0], most[0])
	VMAXPS(most[3], most[2], most[2])
	VMAXPS(most[2], most[0], most[0])
	half := YMM()
	VEXTRACTF64X4(Imm(1), most[0], half)
	all, one := most[0].AsY(), most[0].AsX()
	VMAXPS(half, all, all)
	VEXTRACTF128(Imm(1), all, half.AsX())
	VMAXPS(half.AsX(), one, one)
	for _, lanes := range []uint64{0b01001110, 0b10110001} {
		VPERMILPS(Imm(lanes), one, half.AsX())
		VMAXPS(half.AsX(), one, one)
	}
	Store(one, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
