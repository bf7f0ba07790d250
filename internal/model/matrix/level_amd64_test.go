//go:build amd64 && !purego

package matrix

import "testing"

// levels are the instruction sets that this processor has.
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

// eachLevel calls f with each instruction set, and with AVX-512 without its products of bytes, too.
func eachLevel(t testing.TB, f func(name string)) {
	had := vnni
	t.Cleanup(func() { vnni = had })
	for _, l := range levels() {
		setLevel(t, l)
		vnni = false
		f(Kernels())
		if l == avx512 && had {
			vnni = true
			f(Kernels() + " with VNNI")
		}
	}
}

// fuses reports whether sums have the bits of the kernels.
func fuses() bool { return isa != portable }
