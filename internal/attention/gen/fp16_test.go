package main

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// What GNU as 2.40 makes of the same instructions.
func TestInstructionsAreEncodedAsByGNUAs(t *testing.T) {
	for _, c := range []struct {
		name               string
		instruction        fp16
		dst, second, third int
		want               string
	}{
		{"vfmadd231ph zmm1, zmm2, zmm3", vfmadd231ph, 1, 2, 3, "62f66d48b8cb"},
		{"vfmadd231ph zmm9, zmm20, zmm31", vfmadd231ph, 9, 20, 31, "62165d40b8cf"},
		{"vfmadd231ph zmm30, zmm17, zmm8", vfmadd231ph, 30, 17, 8, "62467540b8f0"},
		{"vaddph zmm16, zmm20, zmm21", vaddph, 16, 20, 21, "62a55c4058c5"},
		{"vaddph zmm0, zmm15, zmm7", vaddph, 0, 15, 7, "62f5044858c7"},
		{"vcvtw2ph zmm5, zmm5", vcvtw2ph, 5, 0, 5, "62f57e487ded"},
		{"vcvtw2ph zmm19, zmm24", vcvtw2ph, 19, 0, 24, "62857e487dd8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.instruction.encode(c.dst, c.second, c.third)
			require.Equal(t, c.want, hex.EncodeToString(got[:]))
		})
	}
}
