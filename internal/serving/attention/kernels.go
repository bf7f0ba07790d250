package attention

import "unsafe"

// kernels is the interface of the inner loops. Portable Go and each instruction set implement it. Parameter k of most
// methods is memory through which they pass arguments to the assembly. Each worker has its own.
type kernels interface {
	String() string

	// scores multiplies queries by the 16·n keys of n tiles. rows is the number of queries, and size the number of
	// elements of a query or a key. The products of query i begin at out[i·scoreStride], in the order of the keys.
	//
	// The product of a query and a key has one term for each element. The terms are added in the order of the elements.
	// Assembly functions sum sumSize terms at a time, a multiple of 4, and then add this sum to the product. They also
	// prefetch the addresses in k.prefetchList. The portable function sums all terms in float64.
	scores(k *args, q []float32, rows, size, sumSize int, keys []float32, n int, out []float32)

	// integerScores multiplies queries by int8 keys, as the method scores does for float32 keys. q comes from quantize
	// and keys comes from pack. Their elements are pairs of 16-bit integers; each float32 has the bits of one pair. All
	// products of a query and a key are summed as integers, so the sum is exact until it is converted to float32.
	integerScores(k *args, q []float32, rows, pairs int, keys []float32, n int, out []float32)

	// largest returns the bits of the largest magnitude in x. If x has a NaN, the result is greater than the bits of
	// infinity. len(x) is a multiple of 8.
	largest(k *args, x []float32) (bits uint32)

	// quantize multiplies the numbers of x by factor and rounds them to 16-bit integers. It stores two integers in the 32
	// bits of each float32 of out. len(x) is a multiple of 8.
	quantize(k *args, x []float32, factor float32, out []float32)

	// pack combines the integers in a tile of keys to pairs, as quantize does for a query. keys has one integer in each
	// float32. Elements 2·i and 2·i+1 of key t of the tile become the pair in out[16·i+t]. out may begin where keys
	// begins, or before it.
	pack(k *args, keys, out []float32)

	// scale sets each x[i] to factor·x[i] + slope·(offset + i). len(x) is a multiple of 16.
	scale(k *args, x []float32, factor, slope, offset float32)

	// softmax replaces the numbers of x by the weights of the logits factor·x[i]. factor is positive, and len(x) is a
	// multiple of 16. m is the largest logit and l the sum of the weights. If all logits are -inf, the weights are 0.
	softmax(k *args, x []float32, factor float32) (m, l float32)

	// softmaxPairs is like softmax, for the logits factor·(x[i] + low[i]). m is the largest factor·x[i], without
	// low. The rounding error of the difference of a logit and m is kept.
	softmaxPairs(k *args, x, low []float32, factor float32) (m, l float32)

	// refine computes large products of query q again in float64. A product in x is large if it is finite and its
	// magnitude is above limit. tiles points to the addresses of the tiles of keys, which are float32. Each large product
	// becomes the sum of two float32: the rounded product in x and its rounding error in low. For other products, the
	// number in low becomes 0. refine returns false if it has not written low, because no product is large.
	refine(k *args, q []float32, tiles *unsafe.Pointer, x, low []float32, limit float32) bool

	// scalePair is like scale, for the numbers x[i] + low[i]. Each result is again the sum of two float32: the
	// rounded result in x and its rounding error in low.
	scalePair(k *args, x, low []float32, factor, slope, offset float32)

	// multiply sets each x[i] to x[i]·y[i]. len(x) is a multiple of 16.
	multiply(k *args, x, y []float32)

	// values multiplies the values of n tokens by their weights, and adds the products to sums. rows is the number of
	// rows of weights and of sums. The weights of row i begin at p[i·scoreStride], and its sums at out[i·stride].
	//
	// A token's value consists of chunks. values[0:] has the first chunk of each token, one token after the other.
	// values[panelValues:] has the second chunk of each token, and so on.
	//
	// If firstSum is 0, each token is added to the sums in out directly. Otherwise firstSum tokens are summed first,
	// then 16 tokens at a time, and each of these sums is added to out.
	values(k *args, p []float32, rows, n int, values []float32, chunks int, out []float32, stride, firstSum int)

	// combine sets each x[i] to x[i]·a + y[i]·b. len(x) is a multiple of 16.
	combine(k *args, x, y []float32, a, b float32)

	// convert converts n rows of numbers to float32. Each row has as many numbers as a chunk. The first row is at input,
	// and the rows begin stride bytes apart. convert writes them to out without gaps. It reports whether all numbers are
	// finite. For E4M3 and E5M2, the rows at input must have the float16 that halve has written. Portable Go only returns
	// false.
	convert(k *args, d DType, input unsafe.Pointer, stride, n int, out []float32) (finite bool)

	// halve converts n numbers of type E4M3 or E5M2 to float16. n is a multiple of 16. For E4M3, halve writes 1/256 of
	// each number, and returns false if a number is NaN. Portable Go only returns false.
	halve(k *args, d DType, input unsafe.Pointer, n int, out unsafe.Pointer) (ok bool)

	// narrow rounds the first numbers of x to the nearest of type d, writes them to out, and returns how many it has
	// written. These can be fewer than len(x), because a kernel converts several numbers at a time. There are kernels only
	// for F16 and BF16; for other types, and in portable Go, the number is 0.
	narrow(d DType, out unsafe.Pointer, x []float32) int

	// widen converts numbers of type d to float32, writes them to x, and returns how many it has written. There are len(x)
	// numbers at input, and widen begins with the first one. It can convert fewer than len(x) numbers, for the same
	// reasons as narrow.
	widen(d DType, x []float32, input unsafe.Pointer) int

	// transpose reads 16 rows of size numbers at input, and writes size rows of 16 numbers to out. A number has 2 or 4
	// bytes. The rows at input begin stride bytes apart, and size is a multiple of 8. If bypass is true, the writes may
	// bypass the processor's caches, and out must be aligned to 32 bytes.
	transpose(out, input unsafe.Pointer, stride, size, bytes int, bypass bool)

	// copyRows copies n rows of size bytes to out without gaps. The rows at input begin stride bytes apart. bypass means
	// the same as for transpose.
	copyRows(out, input unsafe.Pointer, stride, n, size int, bypass bool)

	// prefetch prefetches the cache lines at these addresses.
	prefetch(k *args, lines []unsafe.Pointer)

	// tileRows returns the largest number of rows that tileScores and tileValues accept, or 0 if the instruction set has
	// no such functions.
	tileRows() int

	// tileScores multiplies queries by keys, as the method scores does or, for Int8, the method integerScores. It reads
	// n tiles of keys of type d directly from the blocks. tiles points to a list of addresses:
	//
	//   - the addresses of the n tiles;
	//   - if n is odd, the address of the last tile again;
	//   - the addresses of at least tilesAhead tiles to prefetch.
	//
	// For E4M3, the results are 1/256 of the products, because tileScores converts each E4M3 number to a float16 of
	// 1/256 of its value. It returns false if an E4M3 number is NaN.
	tileScores(k *args, d DType, q []float32, rows, size int, tiles *unsafe.Pointer, n int, out []float32) (ok bool)

	// tileValues multiplies values by weights and adds the products to sums, as the method values does. It reads the
	// values of n tokens, which have type d and size elements, directly from the blocks. tiles points to a list of
	// addresses: of the tiles with these tokens, then of tilesAhead tiles to prefetch. offset is the index of the first
	// token in its tile.
	//
	// For F32, tileValues sums the tokens of each tile before it adds them to out. For other types, it adds each token
	// to out directly. For E4M3, it adds 1/256 of p·v, because it converts each E4M3 number to a float16 of 1/256 of
	// its value. It returns false if an E4M3 number is NaN.
	tileValues(k *args, d DType, p []float32, rows, n, offset int, tiles *unsafe.Pointer, size int, out []float32,
		stride int) (ok bool)
}

// args has the arguments and results of an assembly function. The comment of the function in gen says what each field
// means. The assembly addresses the fields by their offsets.
type args struct {
	input        unsafe.Pointer
	inputStride  int
	data         unsafe.Pointer
	out          unsafe.Pointer
	outStride    int
	n            int
	size         int
	groups       int
	param        int // gen calls it sumSize, firstSum, offset or bypass, depending on the function
	flag         uint64
	x, y, z      float32
	_            float32
	count        int
	buffer       unsafe.Pointer // memory, aligned to 64 bytes, for halfTiles tiles of float16 or a query in float64
	prefetchList unsafe.Pointer // addresses to prefetch
	low          unsafe.Pointer // rounding errors of logits in float32
	remaining    int

	halves [3 * halfTiles]unsafe.Pointer
}

// halfTiles is the number of 8-bit tiles that are converted to float16 at a time.
const halfTiles = 2

// halved returns a list of addresses for a kernel that reads float16 tiles. The first halfTiles addresses are those of
// the tiles in k.buffer, which were converted from 8 bits. The kernel only prefetches the other addresses. They are
// addresses of later 8-bit tiles, from list.
func (k *args) halved(size int, list []unsafe.Pointer) *[3 * halfTiles]unsafe.Pointer {
	near, far := list[tilesAhead/2:], list[tilesAhead-1:]
	k.halves = [...]unsafe.Pointer{k.buffer, unsafe.Add(k.buffer, 2*TileTokens*size), near[0], near[1], far[0], far[0]}
	return &k.halves
}

var fastest = choose()
