package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// siluMul512 computes gate/(1+exp(-gate)) × up, sixteen at a time. exp(x) is
// 2^n × p(r) with n = round(x/ln 2) and r = x − n ln 2, p the Taylor polynomial
// of degree 7, whose error for |r| ≤ ln 2/2 is below the rounding of f32.
func siluMul512() {
	TEXT("siluMulAVX512", NOSPLIT, "func(dst *float32, gate *float32, up *float32, n uintptr)")
	Doc("siluMulAVX512 sets dst to silu(gate) × up; n is a multiple of 16.")
	Pragma("noescape")
	dst, gate, up := Load(Param("dst"), GP64()), Load(Param("gate"), GP64()), Load(Param("up"), GP64())
	n := Load(Param("n"), GP64())
	one, log2e, high, low := constant(1), constant(math.Log2E), constant(0.693359375), constant(-2.12194440e-4)
	coefficients := make([]VecVirtual, 8)
	factorial := 1.0
	for i := range coefficients {
		if i > 1 {
			factorial *= float64(i)
		}
		coefficients[i] = constant(1 / factorial)
	}
	loop("step", n, 16, func() {
		g, x, q, p := ZMM(), ZMM(), ZMM(), ZMM()
		VMOVUPS(Mem{Base: gate}, g)
		VPXORD(x, x, x)
		VSUBPS(g, x, x) // −gate
		VMULPS(log2e, x, q)
		VRNDSCALEPS(Imm(0), q, q)
		VFNMADD231PS(high, q, x)
		VFNMADD231PS(low, q, x)
		VMOVAPS(coefficients[7], p)
		for i := 6; i >= 0; i-- {
			VFMADD213PS(coefficients[i], x, p)
		}
		VSCALEFPS(q, p, p)
		VADDPS(one, p, p)
		VDIVPS(p, g, g)
		VMULPS(Mem{Base: up}, g, g)
		VMOVUPS(g, Mem{Base: dst})
		ADDQ(U32(64), dst)
		ADDQ(U32(64), gate)
		ADDQ(U32(64), up)
	})
	VZEROUPPER()
	RET()
}

func constant(v float64) VecVirtual {
	bits, z := GP32(), ZMM()
	MOVL(U32(math.Float32bits(float32(v))), bits)
	VPBROADCASTD(bits, z)
	return z
}
