package attention

import "unsafe"

// kernels is the interface of the inner loops. Each instruction set implements it. A call is the memory in which a
// worker passes arguments to the assembly.
type kernels interface {
	String() string

	// scores multiplies rows queries by the 16·n keys of n tiles. A query has size floats, and row i of the result
	// starts at i·scoreStride. Products are added in order, sum elements at a time (a multiple of 4); then these
	// sums are added in order. Meanwhile scores and integerScores prefetch the addresses in the list k.ahead.
	scores(k *call, q []float32, rows, size, sum int, keys []float32, n int, out []float32)

	// integerScores does what scores does, with quantized queries and packed keys, which are pairs of integers. The
	// sums are exact until they are rounded to float32.
	integerScores(k *call, q []float32, rows, pairs int, keys []float32, n int, out []float32)

	// largest returns the bits of the largest magnitude in x. If x has a NaN, it returns more than the bits of
	// infinity. quantize rounds x·factor to 16-bit integers and stores two of them in each number of out. The length
	// of x is a multiple of 8.
	largest(k *call, x []float32) (bits uint32)
	quantize(k *call, x []float32, factor float32, out []float32)

	// pack pairs the integers in a tile of keys in the way quantize pairs those of a query: 16 numbers of out are two
	// rows of 16 keys. out may begin where keys begins or before.
	pack(k *call, keys, out []float32)

	// scale sets each number of x to factor·x + slope·(offset + index). len(x) is a multiple of 16.
	scale(k *call, x []float32, factor, slope, offset float32)

	// softmax replaces x by the weights of the logits factor·x, where factor is positive and len(x) is a multiple
	// of 16. m is the largest logit and l the sum of the weights. If all logits are -inf, the weights are 0.
	// softmaxPairs does the same with the logits factor·(x + low), and does not round their differences from m to
	// float32.
	softmax(k *call, x []float32, factor float32) (m, l float32)
	softmaxPairs(k *call, x, low []float32, factor float32) (m, l float32)

	// refine computes the large products of a query again. tiles has the addresses of the tiles with the float32 keys.
	// If a product in x is finite and its magnitude is above limit, refine sets x + low to the product in float64;
	// otherwise it sets low to 0. If no product is large, it returns false and does not write low.
	refine(k *call, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool

	// scalePair does to the sums x + low what scale does to x, and does not round the results to float32.
	scalePair(k *call, x, low []float32, factor, slope, offset float32)

	// multiply sets x to x·y, for whole tiles.
	multiply(k *call, x, y []float32)

	// values adds p·v of n tokens to the sums of rows. If apart is not 0, some tokens are summed before their sum is
	// added: the first apart tokens, and then 16 at a time. p has rows of scoreStride floats, values are chunks of
	// panelValues floats, and row i of the sums starts at i·stride.
	values(k *call, p []float32, rows, n int, values []float32, chunks int, out []float32, stride, apart int)

	// combine sets x to x·a + y·b, for whole tiles.
	combine(k *call, x, y []float32, a, b float32)

	// convert unpacks n rows of a chunk of numbers, which are stride bytes apart, to rows without gaps. It reports
	// whether all numbers are finite. For E4M3 and E5M2, its input is the float16 that halve has made. halve converts
	// n numbers of 8 bits, a multiple of 16. With E4M3, the float16 are too small by a factor of 256, and halve
	// returns false if there is a NaN.
	convert(k *call, d DType, in unsafe.Pointer, stride, n int, out []float32) (finite bool)
	halve(k *call, d DType, in unsafe.Pointer, n int, out unsafe.Pointer) (ok bool)

	// narrow rounds numbers of x to type d and writes them to out; widen reads numbers of type d. Both convert as
	// many numbers as they can from the beginning, and return how many.
	narrow(d DType, out unsafe.Pointer, x []float32) int
	widen(d DType, x []float32, in unsafe.Pointer) int

	// transpose turns 16 rows of size numbers into size rows of 16. A number has 2 or 4 bytes, the rows are stride
	// bytes apart, and size is a multiple of 8. copyRows copies n rows of size bytes, stride bytes apart, to memory
	// without gaps. If past is true, both bypass the caches; out must then be aligned to 32 bytes.
	transpose(out, in unsafe.Pointer, stride, size, bytes int, past bool)
	copyRows(out, in unsafe.Pointer, stride, n, size int, past bool)

	// prefetch prefetches the cache lines at these addresses.
	prefetch(k *call, lines []unsafe.Pointer)

	// tileRows returns the largest number of rows that tileScores and tileValues take. It returns 0 if there are no
	// such functions.
	tileRows() int

	// tileScores does what scores does, or integerScores for Int8, on n tiles of keys where they lie in blocks. tiles
	// has the addresses of these tiles, rounded up to an even number, and then of the tilesAhead tiles that are read
	// next. tileValues does what values does on n tokens of values where they lie in blocks; place is the first
	// token's place in its tile. The products and sums of E4M3 are too small by a factor of 256. The values of F32 are
	// summed for each tile before they are added. Both return false if E4M3 has a NaN.
	tileScores(k *call, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int, out []float32) (ok bool)
	tileValues(k *call, d DType, p []float32, rows, n, place int, tiles *unsafe.Pointer, size int, out []float32,
		stride int) (ok bool)
}

// A call holds the arguments and results of an assembly function. The comment of the function in gen says what each
// field means. The assembly uses the fields' offsets.
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

// halved returns the addresses of the float16 tiles in k.buffer, and after them addresses to prefetch: later 8-bit
// tiles of list.
func (k *call) halved(size int, list []unsafe.Pointer) *[3 * halfTiles]unsafe.Pointer {
	near, far := list[tilesAhead/2:], list[tilesAhead-1:]
	k.halves = [...]unsafe.Pointer{k.buffer, unsafe.Add(k.buffer, 2*tileTokens*size), near[0], near[1], far[0], far[0]}
	return &k.halves
}

var fastest = choose()
