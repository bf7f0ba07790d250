package ptx

import "math"

// notANumber is the NaN that arithmetic gives.
const notANumber = 0x7fffffff

func single(x uint64) float32 { return math.Float32frombits(uint32(x)) }

func bitsOf(x float32) uint64 {
	if x != x {
		return notANumber
	}
	return uint64(math.Float32bits(x))
}

// floats are the instructions on numbers of 32 bits. There is no mul.f32 and no add.f32: without .rn, NVIDIA's assembler
// may make an fma of them.
var floats = map[string]function{
	"add.rn.f32":         func(x, y, _ uint64) uint64 { return bitsOf(single(x) + single(y)) },
	"sub.rn.f32":         func(x, y, _ uint64) uint64 { return bitsOf(single(x) - single(y)) },
	"mul.rn.f32":         func(x, y, _ uint64) uint64 { return bitsOf(single(x) * single(y)) },
	"fma.rn.f32":         func(x, y, z uint64) uint64 { return bitsOf(fused(single(x), single(y), single(z))) },
	"div.rn.f32":         func(x, y, _ uint64) uint64 { return bitsOf(single(x) / single(y)) },
	"sqrt.rn.f32":        func(x, _, _ uint64) uint64 { return bitsOf(float32(math.Sqrt(float64(single(x))))) },
	"ex2.approx.ftz.f32": func(x, _, _ uint64) uint64 { return bitsOf(power(single(x))) },
	"max.f32":            func(x, y, _ uint64) uint64 { return larger(x, y, false) },
	"min.f32":            func(x, y, _ uint64) uint64 { return larger(x, y, true) },
	"neg.f32":            func(x, _, _ uint64) uint64 { return x&0xffffffff ^ 0x80000000 },
	"abs.f32":            func(x, _, _ uint64) uint64 { return x & 0x7fffffff },
}

// fused returns x y + z, rounded once. The product is exact in float64. The sum is rounded to odd, so that rounding it
// again to float32 is as if it was exact.
func fused(x, y, z float32) float32 {
	product, c := float64(x)*float64(y), float64(z)
	sum := product + c
	back := sum - product
	rest := (product - (sum - back)) + (c - back)
	if bits := math.Float64bits(sum); rest != 0 && rest == rest && bits&1 == 0 {
		if (rest > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}

// larger returns the larger number, or the smaller one. If one is NaN, it returns the other. 0 is larger than -0.
func larger(x, y uint64, smaller bool) uint64 {
	a, b := single(x), single(y)
	switch {
	case a != a:
		return bitsOf(b)
	case b != b:
		return bitsOf(a)
	case a == b && math.Signbit(float64(a)) == smaller, (a < b) == smaller && a != b:
		return bitsOf(a)
	}
	return bitsOf(b)
}

// taylor are the coefficients of 2^f: ln(2)^k / k!.
var taylor = [...]float64{1, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58fp-3, 0x1.c6b08d704a0cp-5, 0x1.3b2ab6fba4e77p-7,
	0x1.5d87fe78a6731p-10, 0x1.430912f86c787p-13, 0x1.ffcbfc588b0c7p-17, 0x1.62c0223a5c824p-20, 0x1.b5253d395e7c4p-24}

// power returns 2^x as the emulator's exp2_approx does. Results below 2^-126 are 0.
func power(x float32) float32 {
	switch {
	case x != x:
		return x
	case x >= 128:
		return float32(math.Inf(1))
	case x < -126:
		return 0
	}
	n := math.Floor(float64(x) + 0.5)
	f, sum := float64(x)-n, 0.0
	for k := len(taylor) - 1; k >= 0; k-- {
		sum = float64(sum*f) + taylor[k]
	}
	if r := float32(math.Ldexp(sum, int(n))); r >= 0x1p-126 {
		return r
	}
	return 0
}

// floatComparison returns the function of setp for numbers of 32 bits, or nil. A name that ends with u also holds if a
// number is NaN.
func floatComparison(name string, t scalar) function {
	if t.bits != 32 {
		return nil
	}
	switch name {
	case "num":
		return func(x, y, _ uint64) uint64 { return truth(single(x) == single(x) && single(y) == single(y)) }
	case "nan":
		return func(x, y, _ uint64) uint64 { return truth(single(x) != single(x) || single(y) != single(y)) }
	}
	ordered := map[string]func(a, b float32) bool{
		"eq": func(a, b float32) bool { return a == b }, "ne": func(a, b float32) bool { return a < b || a > b },
		"lt": func(a, b float32) bool { return a < b }, "le": func(a, b float32) bool { return a <= b },
		"gt": func(a, b float32) bool { return a > b }, "ge": func(a, b float32) bool { return a >= b },
	}
	if holds, ok := ordered[name]; ok {
		return func(x, y, _ uint64) uint64 { return truth(holds(single(x), single(y))) }
	}
	if len(name) != 3 || name[2] != 'u' || ordered[name[:2]] == nil {
		return nil
	}
	holds := ordered[name[:2]]
	return func(x, y, _ uint64) uint64 {
		a, b := single(x), single(y)
		return truth(a != a || b != b || holds(a, b))
	}
}
