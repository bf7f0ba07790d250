package half

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHalvesRoundToTheNearest(t *testing.T) {
	for h := range 1 << 16 {
		if f := FromF16(uint16(h)); f == f {
			require.Equal(t, uint16(h), ToF16(f), "f16 %#x", h)
		}
		if f := FromBF16(uint16(h)); f == f {
			require.Equal(t, uint16(h), ToBF16(f), "bf16 %#x", h)
		}
	}
	tests := []struct {
		name  string
		value float32
		want  uint16
	}{
		{"tie to even, down", 1 + 1.0/2048, 0x3c00},
		{"tie to even, up", 1 + 3.0/2048, 0x3c02},
		{"above a tie", 1 + 1.0/2048 + 1.0/(1<<20), 0x3c01},
		{"largest", 65519, 0x7bff},
		{"too large", 65520, 0x7c00},
		{"denormal tie", 1.5 / (1 << 24), 2},
		{"below half the smallest", 0.49 / (1 << 24), 0},
		{"negative", -2, 0xc000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, ToF16(test.value)) })
	}
	require.True(t, math.IsNaN(float64(FromF16(ToF16(float32(math.NaN()))))))
	require.True(t, math.IsNaN(float64(FromBF16(ToBF16(float32(math.NaN()))))))
}

// Ensure that a NaN becomes a quiet NaN with the same sign and the same upper bits of its payload.
func TestNaNsBecomeQuiet(t *testing.T) {
	for _, c := range []struct {
		half uint16
		f32  uint32
	}{{0x7c01, 0x7fc02000}, {0xfd55, 0xffeaa000}, {0x7e00, 0x7fc00000}} {
		require.Equal(t, c.f32, math.Float32bits(FromF16(c.half)))
	}
	for _, c := range []struct {
		f32       uint32
		f16, bf16 uint16
	}{
		{0x7f800001, 0x7e00, 0x7fc0}, {0xff802000, 0xfe01, 0xffc0}, {0x7fd55555, 0x7eaa, 0x7fd5},
		{0xffc00000, 0xfe00, 0xffc0},
	} {
		require.Equal(t, c.f16, ToF16(math.Float32frombits(c.f32)), "%#x", c.f32)
		require.Equal(t, c.bf16, ToBF16(math.Float32frombits(c.f32)), "%#x", c.f32)
	}
	require.Equal(t, uint32(0x7f810000), math.Float32bits(FromBF16(0x7f81)), "all bits are kept")
}
