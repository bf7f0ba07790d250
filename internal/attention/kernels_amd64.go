package attention

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// choose selects kernels by the processor's instructions.
func choose() kernels {
	switch {
	case hasVNNI():
		return &avx512vnni
	case hasAVX512():
		return &avx512
	case hasAVX2():
		return &avx2
	}
	return portable{}
}

func hasAVX512() bool {
	return hasAVX2() && cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)
}

func hasVNNI() bool { return hasAVX512() && cpuid.CPU.Supports(cpuid.AVX512VNNI, cpuid.GFNI) }

func hasAVX2() bool { return cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C) }

// An assembly is the functions of an instruction set.
type assembly struct {
	name                                    string
	scoresPanel, valuesPanel, integersPanel []sized
	scaleTo, soften, product, blend         func(*call)
	refined, scalePairs, softenPairs        func(*call)
	unpack                                  [dtypes]func(*call)
	scoresTile, valuesTile                  [dtypes][]sized
}

// A sized is a function for a fixed number of rows.
type sized struct {
	rows int
	run  func(*call)
}

func (a *assembly) String() string { return a.name }

func floats(x []float32) unsafe.Pointer { return unsafe.Pointer(&x[0]) }

func (a *assembly) scores(k *call, q []float32, rows, size, sum int, keys []float32, n int, out []float32) {
	multiply(k, a.scoresPanel, q, rows, size, sum, keys, n, out)
}

func (a *assembly) integerScores(k *call, q []float32, rows, pairs int, keys []float32, n int, out []float32) {
	multiply(k, a.integersPanel, q, rows, pairs, pairs, keys, n, out)
}

// multiply computes products of rows with n tiles. Each function takes as many rows as it can.
func multiply(k *call, list []sized, q []float32, rows, size, sum int, keys []float32, n int, out []float32) {
	at := 0
	for _, f := range list {
		groups := (rows - at) / f.rows
		if groups == 0 {
			continue
		}
		k.in, k.inStride, k.data = floats(q[at*size:]), size*4, floats(keys)
		k.out, k.outStride = floats(out[at*scoreStride:]), scoreStride*4
		k.n, k.size, k.groups, k.first = n, size, groups, sum
		f.run(k)
		at += groups * f.rows
	}
}

func (a *assembly) scale(k *call, x []float32, factor, slope, offset float32) {
	k.in, k.n, k.x, k.y, k.z = floats(x), len(x)/16, factor, slope, offset
	a.scaleTo(k)
}

func (a *assembly) softmax(k *call, x []float32, factor float32) (m, l float32) {
	k.in, k.n, k.x = floats(x), len(x)/16, factor
	a.soften(k)
	return k.x, k.y
}

func (a *assembly) softmaxPairs(k *call, x, low []float32, factor float32) (m, l float32) {
	k.in, k.low, k.n, k.x = floats(x), floats(low), len(x)/16, factor
	a.softenPairs(k)
	return k.x, k.y
}

func (a *assembly) refine(k *call, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool {
	k.in, k.data, k.out, k.low = floats(q), unsafe.Pointer(tiles), floats(x), floats(low)
	k.n, k.size, k.x, k.flag = len(x)/16, len(q), limit, 0
	a.refined(k)
	return k.flag != 0
}

func (a *assembly) scalePair(k *call, x, low []float32, factor, slope, offset float32) {
	k.in, k.low, k.n, k.x, k.y, k.z = floats(x), floats(low), len(x)/16, factor, slope, offset
	a.scalePairs(k)
}

func (a *assembly) multiply(k *call, x, y []float32) {
	k.in, k.data, k.n = floats(x), floats(y), len(x)/16
	a.product(k)
}

func (a *assembly) combine(k *call, x, y []float32, f, g float32) {
	k.in, k.data, k.n, k.x, k.y = floats(x), floats(y), len(x)/16, f, g
	a.blend(k)
}

func (a *assembly) values(k *call, p []float32, rows, n int, values []float32, chunks int, out []float32, stride,
	apart int) {
	at := 0
	for _, f := range a.valuesPanel {
		groups := (rows - at) / f.rows
		if groups == 0 {
			continue
		}
		k.in, k.inStride, k.data = floats(p[at*scoreStride:]), scoreStride*4, floats(values)
		k.out, k.outStride = floats(out[at*stride:]), stride*4
		k.n, k.size, k.groups, k.first = n, chunks, groups, apart
		f.run(k)
		at += groups * f.rows
	}
}

func (a *assembly) convert(k *call, d DType, in unsafe.Pointer, stride, n int, out []float32) (finite, ok bool) {
	k.in, k.inStride, k.out, k.n, k.flag = in, stride, floats(out), n, 0
	a.unpack[d](k)
	if d == E4M3 {
		return true, k.flag == 0
	}
	return k.flag == 0, true
}

func (a *assembly) largest(k *call, x []float32) uint32 {
	k.in, k.n = floats(x), len(x)/8
	magnitudeAVX2(k)
	return uint32(k.flag)
}

func (a *assembly) quantize(k *call, x []float32, factor float32, out []float32) {
	k.in, k.n, k.x, k.out = floats(x), len(x)/8, factor, floats(out)
	quantizeAVX2(k)
}

func (a *assembly) pack(k *call, keys, out []float32) {
	k.in, k.n, k.out = floats(keys), len(keys)/32, floats(out)
	packAVX2(k)
}

func (a *assembly) tileRows() int { return 2 * a.scoresTile[0][0].rows }

func (a *assembly) tileScores(k *call, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int,
	out []float32) bool {
	at, width := 0, size
	if d == Int8 {
		width /= 2
	}
	k.flag = 0
	for at < rows {
		f := widest(a.scoresTile[d], rows-at)
		k.in, k.inStride, k.data = floats(q[at*width:]), width*4, unsafe.Pointer(tiles)
		k.out, k.outStride = floats(out[at*scoreStride:]), scoreStride*4
		k.n, k.size = (n+1)&^1, size
		f.run(k)
		at += f.rows
	}
	return k.flag == 0
}

func (a *assembly) tileValues(k *call, d DType, p []float32, rows, n, place int, tiles *unsafe.Pointer, size int,
	out []float32, stride int) bool {
	at := 0
	k.flag = 0
	for at < rows {
		f := widest(a.valuesTile[d], rows-at)
		k.in, k.inStride, k.data = floats(p[at*scoreStride:]), scoreStride*4, unsafe.Pointer(tiles)
		k.out, k.outStride = floats(out[at*stride:]), stride*4
		k.n, k.first, k.size = n, place, size
		f.run(k)
		at += f.rows
	}
	return k.flag == 0
}

func (a *assembly) ask(k *call, lines []unsafe.Pointer) {
	k.data, k.n = unsafe.Pointer(&lines[0]), len(lines)
	askAVX2(k)
}

// widest is the function for the largest number of rows that is not above rows.
func widest(list []sized, rows int) sized {
	for _, f := range list {
		if f.rows <= rows {
			return f
		}
	}
	return list[len(list)-1]
}
