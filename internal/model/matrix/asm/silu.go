package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// An exponential computes exp(x) as 2^n × p(r) with n = round(x/ln 2) and r = x − n
// ln 2, p the Taylor polynomial of degree 7, whose error for |r| ≤ ln 2/2 is below
// the rounding of f32. ln 2 is subtracted in two parts, the first of them with few
// bits.
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

// of returns exp(x) and destroys x.
func (e *exponential) of(x VecVirtual) VecVirtual {
	q, p := ZMM(), ZMM()
	VMULPS(e.log2e, x, q)
	VRNDSCALEPS(Imm(0), q, q)
	VFNMADD231PS(e.high, q, x)
	VFNMADD231PS(e.low, q, x)
	VMOVAPS(e.coefficients[7], p)
	for i := 6; i >= 0; i-- {
		VFMADD213PS(e.coefficients[i], x, p)
	}
	VSCALEFPS(q, p, p)
	return p
}

// exp512 computes exp((x − top) × scale), sixteen at a time. What is below −1,000
// counts as that, which is 0, so that −∞ gives no NaN.
func exp512() {
	TEXT("expAVX512", NOSPLIT, "func(x *float32, n uintptr, top float32, scale float32)")
	Doc("expAVX512 replaces x by exp((x − top) × scale); n is a multiple of 16.")
	Pragma("noescape")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	top, scale := ZMM(), ZMM()
	VBROADCASTSS(address("top"), top)
	VBROADCASTSS(address("scale"), scale)
	least, e := constant(-1000), newExponential()
	loop("step", n, 16, func() {
		v := ZMM()
		VMOVUPS(Mem{Base: x}, v)
		VSUBPS(top, v, v)
		VMULPS(scale, v, v)
		VMAXPS(least, v, v)
		VMOVUPS(e.of(v), Mem{Base: x})
		ADDQ(U32(64), x)
	})
	VZEROUPPER()
	RET()
}

// address is where an argument lies.
func address(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// siluMul512 computes gate/(1+exp(-gate)) × up, sixteen at a time.
func siluMul512() {
	TEXT("siluMulAVX512", NOSPLIT, "func(dst *float32, gate *float32, up *float32, n uintptr)")
	Doc("siluMulAVX512 sets dst to silu(gate) × up; n is a multiple of 16.")
	Pragma("noescape")
	dst, gate, up := Load(Param("dst"), GP64()), Load(Param("gate"), GP64()), Load(Param("up"), GP64())
	n := Load(Param("n"), GP64())
	one, e := constant(1), newExponential()
	loop("step", n, 16, func() {
		g, x := ZMM(), ZMM()
		VMOVUPS(Mem{Base: gate}, g)
		VPXORD(x, x, x)
		VSUBPS(g, x, x) // −gate
		p := e.of(x)
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
