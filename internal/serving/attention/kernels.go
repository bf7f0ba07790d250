package attention

import "unsafe"

// kernels is the interface of the inner loops for one instruction set. A call is the memory in which a
// worker passes arguments to the assembly.
type kernels interface {
	String() string

	// scores computes rows × (16·n) products q·k. q has rows of size floats; keys are n tiles; row i of the result
	// starts at i·scoreStride. The products of sum elements at a time, a multiple of 4, are added in order, and then
	// these sums. Meanwhile scores and integerScores prefetch the addresses in the list k.ahead.
	scores(k *call, q []float32, rows, size, sum int, keys []float32, n int, out []float32)

	// integerScores does the same with quantized queries and packed keys, whose rows are pairs of integers. The sums
	// are exact and then rounded.
	integerScores(k *call, q []float32, rows, pairs int, keys []float32, n int, out []float32)

	// largest returns the bits of the largest magnitude in x, or, if there is a NaN, more than the bits of infinity.
	// quantize rounds x·factor to 16-bit integers and stores two in each number of out. The length of x is a multiple
	// of 8.
	largest(k *call, x []float32) (bits uint32)
	quantize(k *call, x []float32, factor float32, out []float32)

	// pack pairs the integers of a tile of keys as quantize pairs those of a query: 16 numbers of out are two rows of
	// 16 keys. out may begin at or before keys.
	pack(k *call, keys, out []float32)

	// scale sets x to factor·x + slope·(offset + index), for whole tiles.
	scale(k *call, x []float32, factor, slope, offset float32)

	// softmax replaces whole tiles of x by the weights of the logits factor·x; factor is
	// positive. m is the largest logit and l the sum of the weights. If all logits are
	// -inf, the weights are 0. softmaxPairs does the same with logits
	// factor·(x + low), and does not round their differences from m to float32.
	softmax(k *call, x []float32, factor float32) (m, l float32)
	softmaxPairs(k *call, x, low []float32, factor float32) (m, l float32)

	// refine computes large products x of a query again, with the float32 keys of the tiles at these addresses. Where x
	// is finite and its magnitude is above limit, it sets x + low to the product in float64; elsewhere it sets low to
	// 0. If there are no such products, it returns false and does not write low.
	refine(k *call, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool

	// scalePair does what scale does to x + low, without rounding the result to float32.
	scalePair(k *call, x, low []float32, factor, slope, offset float32)

	// multiply sets x to x·y, for whole tiles.
	multiply(k *call, x, y []float32)

	// values adds p·v of n tokens to the sums of rows. If apart is not 0, groups of tokens are summed first and then
	// added: the first apart tokens, and then 16 at a time. p has rows of scoreStride floats, values are chunks of
	// panelValues floats, and row i of the sums starts at i·stride.
	values(k *call, p []float32, rows, n int, values []float32, chunks int, out []float32, stride, apart int)

	// combine sets x to x·a + y·b, for whole tiles.
	combine(k *call, x, y []float32, a, b float32)

	// convert unpacks n rows of a chunk of numbers, stride bytes apart, to rows without gaps, and reports whether all
	// numbers are finite. For E4M3 and E5M2, it reads the float16 that halve has made. halve converts n numbers of 8
	// bits, a multiple of 16. Its float16 of E4M3 lack a factor of 256, and it returns false if one is NaN.
	convert(k *call, d DType, in unsafe.Pointer, stride, n int, out []float32) (finite bool)
	halve(k *call, d DType, in unsafe.Pointer, n int, out unsafe.Pointer) (ok bool)

	// narrow rounds the first numbers of x to a type at out; widen reads the first numbers of a type. Both return how
	// many numbers they have converted.
	narrow(d DType, out unsafe.Pointer, x []float32) int
	widen(d DType, x []float32, in unsafe.Pointer) int

	// transpose turns 16 rows of size numbers of 2 or 4 bytes, stride bytes apart, into size rows of 16; size is a
	// multiple of 8. copyRows copies n rows of size bytes, stride apart, to memory without gaps. If past, they bypass
	// the caches; out is then aligned to 32 bytes.
	transpose(out, in unsafe.Pointer, stride, size, bytes int, past bool)
	copyRows(out, in unsafe.Pointer, stride, n, size int, past bool)

	// prefetch prefetches the cache lines at these addresses.
	prefetch(k *call, lines []unsafe.Pointer)

	// tileRows returns the largest number of rows that tileScores and tileValues take, or 0 if there are no such
	// functions.
	tileRows() int

	// tileScores does what scores does, or integerScores for Int8, on n tiles of keys in their blocks. tiles has the
	// addresses of n tiles, rounded up to an even number, and then of the tilesAhead tiles that are read next.
	// tileValues does what values does on n tokens of values in their blocks; place is the first token's place in its
	// tile. Products and sums of E4M3 lack a factor of 256. Those of F32 are summed for each tile and then added. Both
	// return false if E4M3 has a NaN.
	tileScores(k *call, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int, out []float32) (ok bool)
	tileValues(k *call, d DType, p []float32, rows, n, place int, tiles *unsafe.Pointer, size int, out []float32,
		stride int) (ok bool)
}

// A call holds the arguments and results of an assembly function, whose comment in gen gives the meaning of each field.
// The assembly uses the fields' offsets.
type call struct {
	in        unsafe.Pointer
	inStride  int
	data      unsafe.Pointer
	out       unsafe.Pointer
	outStride int
	n         int
	size      int
	groups    int
	first     int
	flag      uint64
	x, y, z   float32
	_         float32
	count     int
	buffer    unsafe.Pointer // memory for halfTiles tiles of float16 or a query in float64, aligned to 64 bytes
	ahead     unsafe.Pointer // addresses to prefetch
	low       unsafe.Pointer // the rounding errors of logits in float32
	remaining int

	halves [3 * halfTiles]unsafe.Pointer
}

// halfTiles is the number of 8-bit tiles that are converted to float16 at a time.
const halfTiles = 2

// halved returns the addresses of the float16 tiles in k.buffer, followed by addresses to prefetch: 8-bit tiles of list
// at some distance from its first.
func (k *call) halved(size int, list []unsafe.Pointer) *[3 * halfTiles]unsafe.Pointer {
	near, far := list[tilesAhead/2:], list[tilesAhead-1:]
	k.halves = [...]unsafe.Pointer{k.buffer, unsafe.Add(k.buffer, 2*tileTokens*size), near[0], near[1], far[0], far[0]}
	return &k.halves
}

var fastest = choose()
