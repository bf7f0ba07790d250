package ptx

import (
	"math"
	"strings"
)

// conversion returns the function of cvt, or nil. The parameter name is what follows cvt.
func conversion(name string) function {
	switch name {
	case "f32.f16":
		return func(x, _, _ uint64) uint64 { return bitsOf(fromHalf(uint16(x))) }
	case "rn.f16.f32":
		return func(x, _, _ uint64) uint64 { return uint64(toHalf(single(x))) }
	case "rn.bf16.f32":
		return func(x, _, _ uint64) uint64 { return uint64(toBfloat(single(x))) }
	case "rn.f16x2.f32": // the second operand is the lower half
		return func(x, y, _ uint64) uint64 { return uint64(toHalf(single(x)))<<16 | uint64(toHalf(single(y))) }
	case "rn.bf16x2.f32":
		return func(x, y, _ uint64) uint64 { return uint64(toBfloat(single(x)))<<16 | uint64(toBfloat(single(y))) }
	case "rn.f32.s32":
		return func(x, _, _ uint64) uint64 { return bitsOf(float32(int32(x))) }
	case "rn.f32.u32":
		return func(x, _, _ uint64) uint64 { return bitsOf(float32(uint32(x))) }
	case "rzi.s32.f32":
		return func(x, _, _ uint64) uint64 { return uint64(uint32(truncated(single(x), math.MinInt32, math.MaxInt32))) }
	case "rzi.u32.f32":
		return func(x, _, _ uint64) uint64 { return uint64(truncated(single(x), 0, math.MaxUint32)) }
	case "rzi.u64.f32": // the kernels convert only numbers of at most 2^63 - 2^39, the largest float32 below 2^63
		return func(x, _, _ uint64) uint64 { return uint64(truncated(single(x), 0, 1<<63-1<<39)) }
	}
	targetName, sourceName, _ := strings.Cut(name, ".")
	target, errTarget := scalarOf(targetName)
	source, errSource := scalarOf(sourceName)
	if errTarget != nil || errSource != nil || target.kind == 'f' || source.kind == 'f' {
		return nil
	}
	return func(x, _, _ uint64) uint64 { return source.value(x) & target.mask() }
}

// truncated rounds to zero. NaN becomes 0, and a number outside of the limits the nearest one.
func truncated(x float32, lowest, highest float64) int64 {
	if x != x {
		return 0
	}
	return int64(max(lowest, min(math.Trunc(float64(x)), highest)))
}

func fromHalf(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&1023)
	switch exponent {
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case 0:
		x := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(x) | sign)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// toHalf rounds to nearest, ties to even. NaN becomes 0x7fff.
func toHalf(x float32) uint16 {
	magnitude := math.Abs(float64(x))
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	switch {
	case x != x:
		return 0x7fff
	case magnitude >= 65520:
		return sign | 0x7c00
	case magnitude < 0x1p-14:
		return sign | uint16(math.RoundToEven(magnitude*0x1p24))
	}
	fraction, exponent := math.Frexp(magnitude) // 0.5 <= fraction < 1
	return sign + uint16((exponent+13)<<10) + uint16(math.RoundToEven(fraction*2048))
}

// toBfloat rounds to nearest, ties to even. NaN becomes 0x7fff.
func toBfloat(x float32) uint16 {
	if x != x {
		return 0x7fff
	}
	bits := math.Float32bits(x)
	upper, lower := uint16(bits>>16), uint16(bits)
	if lower > 0x8000 || lower == 0x8000 && upper&1 == 1 {
		upper++
	}
	return upper
}
