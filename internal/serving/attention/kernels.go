package attention

import "unsafe"

// kernels is the interface of the inner loops. Each instruction set implements it. Parameter k is a worker's own
// call, through which the methods pass arguments to the assembly.
type kernels interface {
	String() string

	// scores multiplies queries by the 16·n keys of n tiles; rows is the number of queries. A query has size floats, and
	// row i of the result starts at i·scoreStride. Products are added in the order of the elements: sumSize products are
	// summed at a time, then these sums. sumSize is a multiple of 4. Meanwhile scores and integerScores prefetch the
	// addresses in the list k.ahead.
	scores(k *call, q []float32, rows, size, sumSize int, keys []float32, n int, out []float32)

	// integerScores does what scores does, for queries from quantize and keys from pack. Each float32 of these has the
	// bits of a pair of integers. The sums are exact until they are rounded to float32.
	integerScores(k *call, q []float32, rows, pairs int, keys []float32, n int, out []float32)

	// largest returns the bits of the largest magnitude in x. If x has a NaN, the result is larger than the bits of
	// infinity. quantize rounds x·factor to 16-bit integers and stores them in out, two in the 32 bits of each float32.
	// The length of x is a multiple of 8.
	largest(k *call, x []float32) (bits uint32)
	quantize(k *call, x []float32, factor float32, out []float32)

	// pack combines the integers in a tile of keys to pairs, as quantize does for a query. A float32 of out has, in its 32
	// bits, two consecutive elements of one key. For each two elements there are 16 such float32, one for each key of the
	// tile. out may begin where keys begins, or before it.
	pack(k *call, keys, out []float32)

	// scale sets each number of x to factor·x + slope·(offset + index). len(x) is a multiple of 16.
	scale(k *call, x []float32, factor, slope, offset float32)

	// softmax replaces x by the weights of the logits factor·x, where factor is positive and len(x) is a multiple of
	// 16. m is the largest logit and l the sum of the weights. If all logits are -inf, the weights are 0.
	// softmaxPairs does the same with the logits factor·(x + low). It subtracts m from each logit without rounding
	// the difference to float32.
	softmax(k *call, x []float32, factor float32) (m, l float32)
	softmaxPairs(k *call, x, low []float32, factor float32) (m, l float32)

	// refine computes the large products of a query again. tiles has the addresses of the tiles with the float32 keys.
	// If a product in x is finite and its magnitude is above limit, refine computes it in float64. It then stores the
	// product in x and low, as the sum of two float32. For other products it sets low to 0. If no magnitude in x is
	// above limit, refine returns false and does not write low.
	refine(k *call, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool

	// scalePair does to the sums x + low what scale does to x, and does not round the results to float32.
	scalePair(k *call, x, low []float32, factor, slope, offset float32)

	// multiply sets x to x·y, for whole tiles.
	multiply(k *call, x, y []float32)

	// values adds p·v of n tokens, their weights p times their values v, to sums in out. rows is the number of rows
	// with their own weights. If firstSum is 0, it adds each token to the sums in out directly. Otherwise it first sums
	// firstSum tokens, then 16 tokens at a time, and adds each of these sums to out. p has rows of scoreStride floats,
	// values are chunks of panelValues floats, and the sums of row i start at out[i·stride].
	values(k *call, p []float32, rows, n int, values []float32, chunks int, out []float32, stride, firstSum int)

	// combine sets x to x·a + y·b, for whole tiles.
	combine(k *call, x, y []float32, a, b float32)

	// convert converts n rows to float32 rows without gaps. A row has chunk numbers, and the rows at in are stride bytes
	// apart. It reports whether all numbers are finite. For E4M3 and E5M2 it reads the float16 that halve has written.
	// halve converts n numbers of 8 bits, a multiple of 16, to float16. For E4M3 it writes 1/256 of each number, and
	// returns false if a number is NaN.
	convert(k *call, d DType, in unsafe.Pointer, stride, n int, out []float32) (finite bool)
	halve(k *call, d DType, in unsafe.Pointer, n int, out unsafe.Pointer) (ok bool)

	// narrow rounds the first n numbers of x to type d, to nearest, and writes them to out. It returns n. widen sets the
	// first n numbers of x to the numbers of type d at in, and returns n. A kernel converts several numbers at once, so
	// n can be less than len(x).
	narrow(d DType, out unsafe.Pointer, x []float32) int
	widen(d DType, x []float32, in unsafe.Pointer) int

	// transpose turns 16 rows, each of size numbers, into rows of 16 numbers. A number has 2 or 4 bytes. The rows of
	// the input are stride bytes apart, and size is a multiple of 8. copyRows copies n rows of size bytes, stride bytes
	// apart, to memory without gaps. If bypass is true, both bypass the processor's caches; out must then be aligned to
	// 32 bytes.
	transpose(out, in unsafe.Pointer, stride, size, bytes int, bypass bool)
	copyRows(out, in unsafe.Pointer, stride, n, size int, bypass bool)

	// prefetch prefetches the cache lines at these addresses.
	prefetch(k *call, lines []unsafe.Pointer)

	// tileRows returns the largest number of rows that tileScores and tileValues accept, or 0 if the instruction set
	// has no such functions.
	tileRows() int

	// tileScores and tileValues read keys and values directly from the blocks. tileScores does what scores does or, for
	// Int8, what integerScores does, for n tiles of keys. tiles has the addresses of these tiles, then those of the
	// next tilesAhead tiles. If n is odd, the last of the n tiles is there twice. tileValues does what values does, for
	// n tokens; offset is the index of the first token in its tile. With F32, tileValues sums the tokens of each tile
	// before it adds them to out. With E4M3 the products and sums are 1/256 of the exact ones, and both functions
	// return false if a number is NaN.
	tileScores(k *call, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int, out []float32) (ok bool)
	tileValues(k *call, d DType, p []float32, rows, n, offset int, tiles *unsafe.Pointer, size int, out []float32,
		stride int) (ok bool)
}

// A call has the arguments and results of an assembly function. The comment of the function in gen says what each
// field means. The assembly addresses the fields by their offsets.
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
	buffer    unsafe.Pointer // memory, aligned to 64 bytes, for halfTiles tiles of float16 or a query in float64
	ahead     unsafe.Pointer // addresses to prefetch
	low       unsafe.Pointer // the rounding errors of logits in float32
	remaining int

	halves [3 * halfTiles]unsafe.Pointer
}

// halfTiles is the number of 8-bit tiles that are converted to float16 at a time.
const halfTiles = 2

// halved returns the list of addresses for a kernel that reads float16 tiles. Its first halfTiles addresses are those
// of the tiles in k.buffer, which were converted from 8 bits. The others are addresses of later 8-bit tiles, from
// list, which the kernel prefetches.
func (k *call) halved(size int, list []unsafe.Pointer) *[3 * halfTiles]unsafe.Pointer {
	near, far := list[tilesAhead/2:], list[tilesAhead-1:]
	k.halves = [...]unsafe.Pointer{k.buffer, unsafe.Add(k.buffer, 2*TileTokens*size), near[0], near[1], far[0], far[0]}
	return &k.halves
}

var fastest = choose()
