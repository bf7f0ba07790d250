//go:build amd64 && !purego

package matrix

import "testing"

func levels() []instructions {
	var all []instructions
	for l := portable; l <= best(); l++ {
		all = append(all, l)
	}
	return all
}

func setLevel(t testing.TB, l instructions) {
	was := isa
	isa = l
	t.Cleanup(func() { isa = was })
}

// eachLevel calls f with each instruction set. It also calls f with AVX-512 without its instructions for products
// of bytes and of BF16.
func eachLevel(t testing.TB, f func(name string)) {
	hadVNNI, hadPairs := vnni, pairs
	t.Cleanup(func() { vnni, pairs = hadVNNI, hadPairs })
	for _, l := range levels() {
		setLevel(t, l)
		vnni, pairs = false, false
		f(Kernels())
		if l == avx512 && hadVNNI {
			vnni = true
			f(Kernels() + " with VNNI")
		}
		if l == avx512 && hadPairs {
			vnni, pairs = false, true
			f(Kernels() + " with BF16")
		}
	}
	vnni, pairs = hadVNNI, hadPairs
}

// fuses reports whether sums have the bits of the kernels.
func fuses() bool { return isa != portable }
