package matrix

import "math"

// FromF16 converts an IEEE 754 half.
func FromF16(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch {
	case exponent == 31:
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	case exponent != 0:
		return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
	}
	v := float32(fraction) * (1.0 / (1 << 24)) // a denormal, or 0
	return math.Float32frombits(sign | math.Float32bits(v))
}

// ToF16 rounds to the nearest half, ties to even. What is too large becomes
// infinite.
func ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, magnitude := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case magnitude > 0x7f800000:
		return sign | 0x7e00 // not a number
	case magnitude >= 0x477ff000: // 65520, which rounds beyond 65504
		return sign | 0x7c00
	case magnitude < 0x38800000: // 2^-14: denormal
		// Adding 0.5 leaves the fraction, rounded, in the last bits.
		v := math.Float32frombits(magnitude) + 0.5
		return sign | uint16(math.Float32bits(v)-0x3f000000)
	}
	magnitude += 0xfff + magnitude>>13&1
	return sign | uint16(magnitude>>13-112<<10)
}

// FromBF16 converts a bfloat16.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds to the nearest bfloat16, ties to even.
func ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
