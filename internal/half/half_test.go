package half

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A NaN becomes quiet, and keeps its sign and the upper bits of its payload.
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
		{0x7f800001, 0x7e00, 0x7fc0}, {0xff802000, 0xfe01, 0xffc0}, {0x7fd55555, 0x7eaa, 0x7fd5}, {0xffc00000, 0xfe00, 0xffc0},
	} {
		require.Equal(t, c.f16, ToF16(math.Float32frombits(c.f32)), "%#x", c.f32)
		require.Equal(t, c.bf16, ToBF16(math.Float32frombits(c.f32)), "%#x", c.f32)
	}
	require.Equal(t, uint32(0x7f810000), math.Float32bits(FromBF16(0x7f81)), "all bits are kept")
}
