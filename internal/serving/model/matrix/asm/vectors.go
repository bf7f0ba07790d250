package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// An exponential emits the code that computes exp(x) as 2^n × p(r), with n = round(x/ln 2) and r = x − n ln 2. p is
// the Taylor polynomial of degree 7; for |r| ≤ ln 2/2, its error is smaller than the rounding of f32. ln 2 is the sum
// of two numbers. The first has so few bits that its product with n is exact.
type exponential struct {
	log2e, high, low VecVirtual
	coefficients     [8]VecVirtual
}

func newExponential() *exponential {
	e := &exponential{log2e: constant(math.Log2E), high: constant(0.693359375), low: constant(-2.12194440e-4)}
	factorial := 1.0
	for i := range e.coefficients {
		if i > 1 {
			factorial *= float64(i)
		}
		e.coefficients[i] = constant(1 / factorial)
	}
	return e
}

// exp returns exp(x) and changes x.
func (e *exponential) exp(x VecVirtual) VecVirtual {
	q, p := asm.ZMM(), asm.ZMM()
	asm.VMULPS(e.log2e, x, q)
	asm.VRNDSCALEPS(Imm(0), q, q)
	asm.VFNMADD231PS(e.high, q, x)
	asm.VFNMADD231PS(e.low, q, x)
	asm.VMOVAPS(e.coefficients[7], p)
	for i := 6; i >= 0; i-- {
		asm.VFMADD213PS(e.coefficients[i], x, p)
	}
	asm.VSCALEFPS(q, p, p)
	return p
}

// expRounded is exp without fused operations: it rounds each product and each sum, as exponential of package matrix does.
func (e *exponential) expRounded(x VecVirtual) VecVirtual {
	q, p, t := asm.ZMM(), asm.ZMM(), asm.ZMM()
	asm.VMULPS(e.log2e, x, q)
	asm.VRNDSCALEPS(Imm(0), q, q)
	for _, part := range []VecVirtual{e.high, e.low} {
		asm.VMULPS(part, q, t)
		asm.VSUBPS(t, x, x)
	}
	asm.VMOVAPS(e.coefficients[7], p)
	for i := 6; i >= 0; i-- {
		asm.VMULPS(x, p, p)
		asm.VADDPS(e.coefficients[i], p, p)
	}
	asm.VSCALEFPS(q, p, p)
	return p
}

// exp512 generates the kernel that replaces each of n values by exp((x − top) × scale). n is a multiple of 16.
// Exponents below −1,000 are replaced by −1,000. Their result is 0; without the replacement, −∞ would become
// NaN.
func exp512() {
	begin("expAVX512", "func(x *float32, n uintptr, top float32, scale float32)")
	asm.Pragma("noescape") // callers may have x on the stack
	x, n := arg("x"), arg("n")
	top, scale := asm.ZMM(), asm.ZMM()
	asm.VBROADCASTSS(address("top"), top)
	asm.VBROADCASTSS(address("scale"), scale)
	lowest, e := constant(-1000), newExponential()
	loop("step", n, 16, func() {
		v := asm.ZMM()
		asm.VMOVUPS(Mem{Base: x}, v)
		asm.VSUBPS(top, v, v)
		asm.VMULPS(scale, v, v)
		asm.VMAXPS(lowest, v, v)
		asm.VMOVUPS(e.expRounded(v), Mem{Base: x})
		asm.ADDQ(U32(64), x)
	})
	end()
}

// siluMul512 generates the kernel that computes gate/(1+exp(-gate)) × factor for n values, a multiple of 16.
func siluMul512() {
	begin("siluMulAVX512", "func(dst *float32, gate *float32, factor *float32, n uintptr)")
	asm.Pragma("noescape") // the last values are in arrays on the stack
	dst, gate, factor := arg("dst"), arg("gate"), arg("factor")
	n := arg("n")
	one, e := constant(1), newExponential()
	loop("step", n, 16, func() {
		g, x := asm.ZMM(), asm.ZMM()
		asm.VMOVUPS(Mem{Base: gate}, g)
		asm.VPXORD(x, x, x)
		asm.VSUBPS(g, x, x) // −gate
		p := e.exp(x)
		asm.VADDPS(one, p, p)
		asm.VDIVPS(p, g, g)
		asm.VMULPS(Mem{Base: factor}, g, g)
		asm.VMOVUPS(g, Mem{Base: dst})
		asm.ADDQ(U32(64), dst)
		asm.ADDQ(U32(64), gate)
		asm.ADDQ(U32(64), factor)
	})
	end()
}

func constant(v float64) VecVirtual {
	bits, z := asm.GP32(), asm.ZMM()
	asm.MOVL(U32(math.Float32bits(float32(v))), bits)
	asm.VPBROADCASTD(bits, z)
	return z
}

// largest512 generates the kernel that finds the largest of n values, a multiple of 64, or returns NaN if a value is
// NaN. VMAXPS alone can lose a NaN: if only one operand is NaN, the result is the operand that Go writes first, which
// may be the number. Therefore VCMPPS also sets bits of a mask where a value is NaN.
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
