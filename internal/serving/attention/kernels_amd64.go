package attention

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

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
	return hasAVX2() && cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.BMI2)
}

func hasVNNI() bool { return hasAVX512() && cpuid.CPU.Supports(cpuid.AVX512VNNI) }

func hasAVX2() bool { return cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C) }

// An assembly implements kernels with the assembly functions of an instruction set. The fields have the functions that
// differ between instruction sets. For everything else, the methods call the functions for AVX2 or portable Go.
type assembly struct {
	name                                    string
	scoresPanel, integersPanel, valuesPanel []rowKernel // the most rows first
	refined, soften, softenPairs            func(*args)

	// For each type, the kernels for the most rows come first. A type whose tiles are converted to F16 has none.
	scoresTile, valuesTile [dtypes][]rowKernel
}

// A rowKernel is an assembly function that computes a fixed number of rows, or groups of that number of rows. If only
// some of these rows are needed, the function still reads and writes the memory of all of them.
type rowKernel struct {
	rows int
	run  func(*args)
}

var avx2 = assembly{
	name:          "avx2",
	scoresPanel:   []rowKernel{{4, scoresPanel4AVX2}},
	integersPanel: []rowKernel{{4, integersPanel4AVX2}},
	valuesPanel:   []rowKernel{{4, valuesPanel4AVX2}},
	refined:       refineAVX2,
	soften:        softmaxAVX2,
	softenPairs:   softmaxPairsAVX2,
	scoresTile: [dtypes][]rowKernel{
		F32:  {{4, scoresF32x4AVX2}, {2, scoresF32x2AVX2}, {1, scoresF32x1AVX2}},
		F16:  {{4, scoresF16x4AVX2}, {2, scoresF16x2AVX2}, {1, scoresF16x1AVX2}},
		BF16: {{4, scoresBF16x4AVX2}, {2, scoresBF16x2AVX2}, {1, scoresBF16x1AVX2}},
		Int8: {{4, scoresInt8x4AVX2}, {2, scoresInt8x2AVX2}, {1, scoresInt8x1AVX2}},
	},
	valuesTile: [dtypes][]rowKernel{
		F32:  {{4, valuesF32x4AVX2}, {2, valuesF32x2AVX2}, {1, valuesF32x1AVX2}},
		F16:  {{4, valuesF16x4AVX2}, {2, valuesF16x2AVX2}, {1, valuesF16x1AVX2}},
		BF16: {{4, valuesBF16x4AVX2}, {2, valuesBF16x2AVX2}, {1, valuesBF16x1AVX2}},
		Int8: {{4, valuesInt8x4AVX2}, {2, valuesInt8x2AVX2}, {1, valuesInt8x1AVX2}},
	},
}

var avx512 = assembly{
	name:          "avx512",
	scoresPanel:   []rowKernel{{12, scoresPanel12AVX512}, {4, scoresPanel4AVX2}},
	integersPanel: avx2.integersPanel,
	valuesPanel:   []rowKernel{{12, valuesPanel12AVX512}, {4, valuesPanel4AVX2}},
	refined:       refineAVX512,
	soften:        softmaxAVX512,
	softenPairs:   softmaxPairsAVX512,
	scoresTile: [dtypes][]rowKernel{
		F32:  {{8, scoresF32x8AVX512}, {4, scoresF32x4AVX512}, {2, scoresF32x2AVX512}, {1, scoresF32x1AVX512}},
		F16:  {{8, scoresF16x8AVX512}, {4, scoresF16x4AVX512}, {2, scoresF16x2AVX512}, {1, scoresF16x1AVX512}},
		BF16: {{8, scoresBF16x8AVX512}, {4, scoresBF16x4AVX512}, {2, scoresBF16x2AVX512}, {1, scoresBF16x1AVX512}},
		E4M3: {{8, scoresE4M3x8AVX512}, {4, scoresE4M3x4AVX512}, {2, scoresE4M3x2AVX512}, {1, scoresE4M3x1AVX512}},
		E5M2: {{8, scoresE5M2x8AVX512}, {4, scoresE5M2x4AVX512}, {2, scoresE5M2x2AVX512}, {1, scoresE5M2x1AVX512}},
		Int8: avx2.scoresTile[Int8],
	},
	valuesTile: [dtypes][]rowKernel{
		F32:  {{8, valuesF32x8AVX512}, {4, valuesF32x4AVX512}, {2, valuesF32x2AVX512}, {1, valuesF32x1AVX512}},
		F16:  {{8, valuesF16x8AVX512}, {4, valuesF16x4AVX512}, {2, valuesF16x2AVX512}, {1, valuesF16x1AVX512}},
		BF16: {{8, valuesBF16x8AVX512}, {4, valuesBF16x4AVX512}, {2, valuesBF16x2AVX512}, {1, valuesBF16x1AVX512}},
		E4M3: {{8, valuesE4M3x8AVX512}, {4, valuesE4M3x4AVX512}, {2, valuesE4M3x2AVX512}, {1, valuesE4M3x1AVX512}},
		E5M2: {{8, valuesE5M2x8AVX512}, {4, valuesE5M2x4AVX512}, {2, valuesE5M2x2AVX512}, {1, valuesE5M2x1AVX512}},
		Int8: {{8, valuesInt8x8AVX512}, {4, valuesInt8x4AVX512}, {2, valuesInt8x2AVX512}, {1, valuesInt8x1AVX512}},
	},
}

var avx512vnni = func() assembly {
	a := avx512
	a.name = "avx512vnni"
	a.integersPanel = []rowKernel{{12, integersPanel12AVX512VNNI}, {4, integersPanel4AVX2}}
	a.scoresTile[Int8] = []rowKernel{{8, scoresInt8x8AVX512VNNI}, {4, scoresInt8x4AVX512VNNI},
		{2, scoresInt8x2AVX512VNNI}, {1, scoresInt8x1AVX512VNNI}}
	return a
}()

func (a *assembly) String() string { return a.name }

func floats(x []float32) unsafe.Pointer { return unsafe.Pointer(&x[0]) }

func (a *assembly) scores(k *args, q []float32, rows, size, sumSize int, keys []float32, n int, out []float32) {
	k.multiply(a.scoresPanel, q, rows, size, sumSize, keys, n, out)
}

func (a *assembly) integerScores(k *args, q []float32, rows, pairs int, keys []float32, n int, out []float32) {
	k.multiply(a.integersPanel, q, rows, pairs, pairs, keys, n, out)
}

func (k *args) multiply(list []rowKernel, q []float32, rows, size, sumSize int, keys []float32, n int, out []float32) {
	eachGroup(list, rows, func(f *rowKernel, row, groups int) {
		k.input, k.inputStride, k.data = floats(q[row*size:]), size*4, floats(keys)
		k.out, k.outStride = floats(out[row*scoreStride:]), scoreStride*4
		k.n, k.size, k.groups, k.param = n, size, groups, sumSize
		f.run(k)
	})
}

func (a *assembly) values(k *args, p []float32, rows, n int, values []float32, chunks int, out []float32, stride,
	firstSum int) {
	eachGroup(a.valuesPanel, rows, func(f *rowKernel, row, groups int) {
		k.input, k.inputStride, k.data = floats(p[row*scoreStride:]), scoreStride*4, floats(values)
		k.out, k.outStride = floats(out[row*stride:]), stride*4
		k.n, k.size, k.groups, k.param = n, chunks, groups, firstSum
		f.run(k)
	})
}

// eachGroup divides rows into groups and calls visit for them. list has functions for different numbers of rows: the
// first function takes the most, the last takes the fewest.
//
// Each group has as many rows as the first function takes. eachGroup calls visit once, with the first function and all
// groups. Fewer rows can remain:
//
//   - If the last function can take all remaining rows, eachGroup calls visit again, with the last function and one
//     group.
//   - If it cannot, the remaining rows are the last group of the first call, and this group is incomplete.
//
// The arguments of visit are the function, the index of the first row, and the number of groups.
func eachGroup(list []rowKernel, rows int, visit func(f *rowKernel, row, groups int)) {
	first, last := &list[0], &list[len(list)-1]
	groups, rest := rows/first.rows, rows%first.rows
	if rest > last.rows {
		groups, rest = groups+1, 0
	}
	if groups > 0 {
		visit(first, 0, groups)
	}
	if rest > 0 {
		visit(last, groups*first.rows, 1)
	}
}

func (a *assembly) scale(k *args, x []float32, factor, slope, offset float32) {
	k.input, k.n, k.x, k.y, k.z = floats(x), len(x)/16, factor, slope, offset
	scaleAVX2(k)
}

func (a *assembly) softmax(k *args, x []float32, factor float32) (m, l float32) {
	k.input, k.n, k.x = floats(x), len(x)/16, factor
	a.soften(k)
	return k.x, k.y
}

func (a *assembly) softmaxPairs(k *args, x, low []float32, factor float32) (m, l float32) {
	k.input, k.low, k.n, k.x = floats(x), floats(low), len(x)/16, factor
	a.softenPairs(k)
	return k.x, k.y
}

func (a *assembly) refine(k *args, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool {
	k.input, k.data, k.out, k.low = floats(q), unsafe.Pointer(tiles), floats(x), floats(low)
	k.n, k.size, k.x, k.flag = len(x)/16, len(q), limit, 0
	a.refined(k)
	return k.flag != 0
}

func (a *assembly) scalePair(k *args, x, low []float32, factor, slope, offset float32) {
	k.input, k.low, k.n, k.x, k.y, k.z = floats(x), floats(low), len(x)/16, factor, slope, offset
	scalePairsAVX2(k)
}

func (a *assembly) multiply(k *args, x, y []float32) {
	k.input, k.data, k.n = floats(x), floats(y), len(x)/16
	multiplyAVX2(k)
}

func (a *assembly) combine(k *args, x, y []float32, f, g float32) {
	k.input, k.data, k.n, k.x, k.y = floats(x), floats(y), len(x)/16, f, g
	combineAVX2(k)
}

func (a *assembly) convert(k *args, d DType, input unsafe.Pointer, stride, n int, out []float32) (finite bool) {
	k.input, k.inputStride, k.out, k.n, k.flag, k.x = input, stride, floats(out), n, 0, 1
	switch d {
	case F32:
		convertF32AVX2(k)
	case E4M3:
		k.x = 256
		convertF16AVX2(k)
	case F16, E5M2:
		convertF16AVX2(k)
	case BF16:
		convertBF16AVX2(k)
	case Int8:
		convertInt8AVX2(k)
	}
	return k.flag == 0
}

func (a *assembly) halve(k *args, d DType, input unsafe.Pointer, n int, out unsafe.Pointer) (ok bool) {
	k.input, k.n, k.out, k.flag = input, n, out, 0
	if d == E4M3 {
		halveE4M3AVX2(k)
	} else {
		halveE5M2AVX2(k)
	}
	return k.flag == 0
}

func (a *assembly) largest(k *args, x []float32) uint32 {
	k.input, k.n = floats(x), len(x)/8
	magnitudeAVX2(k)
	return uint32(k.flag)
}

func (a *assembly) quantize(k *args, x []float32, factor float32, out []float32) {
	k.input, k.n, k.x, k.out = floats(x), len(x)/8, factor, floats(out)
	quantizeAVX2(k)
}

func (a *assembly) pack(k *args, keys, out []float32) {
	k.input, k.n, k.out = floats(keys), len(keys)/32, floats(out)
	packAVX2(k)
}

func (a *assembly) narrow(d DType, out unsafe.Pointer, x []float32) int {
	if len(x) < 16 {
		return 0
	}
	k := args{input: floats(x), out: out, n: len(x) / 16}
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

func (a *assembly) widen(d DType, x []float32, input unsafe.Pointer) int {
	if len(x) < chunk || d != F16 && d != BF16 {
		return 0
	}
	a.convert(&args{}, d, input, chunk*d.Size(), len(x)/chunk, x)
	return len(x) / chunk * chunk
}

func (a *assembly) transpose(out, input unsafe.Pointer, stride, size, bytes int, bypass bool) {
	k := args{input: input, inputStride: stride, out: out, size: size}
	if bypass {
		k.param = 1
	}
	if bytes == 2 {
		transpose16AVX2(&k)
	} else {
		transpose32AVX2(&k)
	}
}

func (a *assembly) copyRows(out, input unsafe.Pointer, stride, n, size int, bypass bool) {
	if !bypass || size%32 != 0 {
		portable{}.copyRows(out, input, stride, n, size, false)
		return
	}
	copyRowsAVX2(&args{input: input, inputStride: stride, out: out, n: n, size: size})
}

func (a *assembly) prefetch(k *args, lines []unsafe.Pointer) {
	k.data, k.n = unsafe.Pointer(&lines[0]), len(lines)
	askAVX2(k)
}

func (a *assembly) tileRows() int { return 2 * a.scoresTile[0][0].rows }

func (a *assembly) tileScores(k *args, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int,
	out []float32) bool {
	k.flag = 0
	if a.scoresTile[d] != nil {
		a.scoreTiles(k, d, q, rows, size, tiles, (n+1)&^1, out)
		return k.flag == 0
	}
	list := unsafe.Slice(tiles, n+tilesAhead)
	for i := 0; i < n; i += halfTiles {
		half := k.halved(size, list[i:])
		for j, tile := range list[i:min(i+halfTiles, n)] {
			if !a.halve(k, d, tile, TileTokens*size, half[j]) {
				return false
			}
		}
		a.scoreTiles(k, F16, q, rows, size, &half[0], halfTiles, out[i*TileTokens:])
	}
	return true
}

// scoreTiles multiplies queries by the keys of n tiles, with the functions in a.scoresTile[d]. n is even. The other
// parameters mean the same as for tileScores.
func (a *assembly) scoreTiles(k *args, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int,
	out []float32) {
	width := size
	if d == Int8 {
		width /= 2
	}
	for row := 0; row < rows; {
		f := fitting(a.scoresTile[d], rows-row)
		k.input, k.inputStride, k.data = floats(q[row*width:]), width*4, unsafe.Pointer(tiles)
		k.out, k.outStride = floats(out[row*scoreStride:]), scoreStride*4
		k.n, k.size = n, size
		f.run(k)
		row += f.rows
	}
}

func (a *assembly) tileValues(k *args, d DType, p []float32, rows, n, offset int, tiles *unsafe.Pointer, size int,
	out []float32, stride int) bool {
	k.flag = 0
	if a.valuesTile[d] != nil {
		a.valueTiles(k, d, p, rows, n, offset, tiles, size, out, stride)
		return k.flag == 0
	}
	list := unsafe.Slice(tiles, (offset+n+TileTokens-1)/TileTokens+tilesAhead)
	for done := 0; done < n; list = list[halfTiles:] {
		end := min(offset+n-done, halfTiles*TileTokens)
		half := k.halved(size, list)
		for start := offset; start < end; start = start&^15 + TileTokens {
			tileEnd := min(start&^15+TileTokens, end)
			input := unsafe.Add(list[start/TileTokens], start%TileTokens*size)
			if !a.halve(k, d, input, (tileEnd-start)*size, unsafe.Add(half[0], 2*start*size)) {
				return false
			}
		}
		a.valueTiles(k, F16, p[done:], rows, end-offset, offset, &half[0], size, out, stride)
		done, offset = done+end-offset, 0
	}
	return true
}

// valueTiles multiplies the values of n tokens by their weights and adds them to out, with the functions in
// a.valuesTile[d]. The parameters mean the same as for tileValues.
func (a *assembly) valueTiles(k *args, d DType, p []float32, rows, n, offset int, tiles *unsafe.Pointer, size int,
	out []float32, stride int) {
	for row := 0; row < rows; {
		f := fitting(a.valuesTile[d], rows-row)
		k.input, k.inputStride, k.data = floats(p[row*scoreStride:]), scoreStride*4, unsafe.Pointer(tiles)
		k.out, k.outStride = floats(out[row*stride:]), stride*4
		k.n, k.param, k.size = n, offset, size
		f.run(k)
		row += f.rows
	}
}

// fitting returns the smallest function of list that takes at least the given number of rows. If there is none, it
// returns the first function, which takes the most rows.
func fitting(list []rowKernel, rows int) rowKernel {
	best := list[0]
	for _, f := range list {
		if f.rows >= rows {
			best = f
		}
	}
	return best
}
