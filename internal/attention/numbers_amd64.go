package attention

import "unsafe"

// These name the functions of assembly, so that a call stays on the stack.

func (a *assembly) narrow(d DType, out unsafe.Pointer, x []float32) int {
	if len(x) < 16 {
		return 0
	}
	k := call{in: floats(x), out: out, n: len(x) / 16}
	switch d {
	case F16:
		narrowF16AVX2(&k)
	case BF16:
		narrowBF16AVX2(&k)
	default:
		return 0
	}
	return len(x) &^ 15
}

func (a *assembly) widen(d DType, x []float32, in unsafe.Pointer) int {
	if len(x) < chunk {
		return 0
	}
	k := call{in: in, inStride: chunk * d.Size(), out: floats(x), n: len(x) / chunk}
	wide := a != &avx2
	switch {
	case d == F16 && wide:
		convertF16AVX512(&k)
	case d == F16:
		convertF16AVX2(&k)
	case d == BF16 && wide:
		convertBF16AVX512(&k)
	case d == BF16:
		convertBF16AVX2(&k)
	default:
		return 0
	}
	return len(x) / chunk * chunk
}

func (a *assembly) transpose(out, in unsafe.Pointer, stride, size, bytes int, past bool) {
	k := call{in: in, inStride: stride, out: out, size: size}
	short := bytes == 2
	switch {
	case short && past:
		transpose16StreamAVX2(&k)
	case short:
		transpose16AVX2(&k)
	case past:
		transpose32StreamAVX2(&k)
	default:
		transpose32AVX2(&k)
	}
}

func (a *assembly) copyRows(out, in unsafe.Pointer, stride, n, size int, past bool) {
	if !past || size%32 != 0 {
		portable{}.copyRows(out, in, stride, n, size, false)
		return
	}
	k := call{in: in, inStride: stride, out: out, n: n, size: size}
	copyRowsAVX2(&k)
}
