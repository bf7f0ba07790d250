package matrix

import "llmmemory/internal/half"

// FromF16 converts an IEEE 754 half.
func FromF16(h uint16) float32 { return half.FromF16(h) }

// ToF16 rounds to the nearest half, ties to even. What is too large becomes infinite.
func ToF16(f float32) uint16 { return half.ToF16(f) }

// FromBF16 converts a bfloat16.
func FromBF16(h uint16) float32 { return half.FromBF16(h) }

// ToBF16 rounds to the nearest bfloat16, ties to even.
func ToBF16(f float32) uint16 { return half.ToBF16(f) }
