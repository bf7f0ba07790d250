//go:build amd64 && !purego

package matrix

import (
	"testing"

	"llmmemory/internal/serving/amx"
)

func levels() []instructions {
	var all []instructions
	for l := portable; l <= best(); l++ {
		all = append(all, l)
	}
	return all
}

func setLevel(t testing.TB, l instructions) {
	previous := isa
	isa = l
	t.Cleanup(func() { isa = previous })
}

// withoutTiles forbids tiles until the test ends. eachTiles is for tests with tiles.
func withoutTiles(t testing.TB) {
	had := usableTiles
	usableTiles = func() amx.Features { return amx.Features{} }
	t.Cleanup(func() { usableTiles = had })
}

// eachLevel calls f with the portable code and with each instruction set of the processor, without tiles. It calls f
// with AVX-512 up to three times: without VNNI and BF16, with VNNI only, and with BF16 only. VNNI has instructions that
// multiply bytes; BF16 has instructions that multiply BF16.
func eachLevel(t testing.TB, f func(name string)) {
	withoutTiles(t)
	hadVNNI, hadBF16, hadFast := hasVNNI, hasBF16, pairsAreFast
	t.Cleanup(func() { hasVNNI, hasBF16, pairsAreFast = hadVNNI, hadBF16, hadFast })
	pairsAreFast = func() bool { return true }
	for _, l := range levels() {
		setLevel(t, l)
		hasVNNI, hasBF16 = false, false
		f(Kernels())
		if l == avx512 && hadVNNI {
			hasVNNI = true
			f(Kernels() + " with VNNI")
		}
		if l == avx512 && hadBF16 {
			hasVNNI, hasBF16 = false, true
			f(Kernels() + " with BF16")
		}
	}
	hasVNNI, hasBF16, pairsAreFast = hadVNNI, hadBF16, hadFast
}

// fuses reports whether sums have the bits of the kernels.
func fuses() bool { return isa != portable }
