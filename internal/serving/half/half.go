// Package half converts between float32 and the 16-bit formats binary16 and bfloat16. A NaN becomes a quiet NaN that
// keeps the upper bits of its payload, as in the processors' conversion instructions; FromBF16 keeps all its bits.
package half

import "math"

// FromF16 converts an IEEE 754 binary16. It is exact.
func FromF16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch exponent {
	case 0: // a multiple of 2^-24
		return math.Float32frombits(math.Float32bits(float32(fraction)*0x1p-24) | sign)
	case 31:
		if fraction != 0 {
			fraction |= 0x200 // quiet
		}
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// ToF16 rounds to the nearest binary16, ties to even. Values that round to 65536 or more become infinite.
func ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13&0x3ff)
	case abs >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*0x1p24))
	}
	abs += 0xfff + abs>>13&1
	return sign | uint16((abs-0x38000000)>>13)
}

// FromBF16 converts a bfloat16, the upper half of a float32. It keeps all bits, also those of a NaN.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds to the nearest bfloat16, ties to even.
func ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
