package attention

// Kernels are the inner loops, for one instruction set.
type kernels struct {
	name string

	// scores computes rows × (16·n) products q·k. q has rows of size floats; keys
	// are n tiles; row i of the result starts at i·scoreStride.
	scores func(q []float32, rows, size int, keys []float32, n int, out []float32)

	// softmax turns products, whole tiles of them, into weights in place.
	softmax func(scores []float32, x *softmax) (m, l float32)

	// values computes o for rows: sums of p·v over n tokens. p has rows of
	// scoreStride floats, values are chunks of panelValues floats, row i of the
	// result starts at i·stride.
	values func(p []float32, rows, n int, values []float32, chunks int, out []float32, stride int)

	// addValues adds the sums over len(p) tokens to one row.
	addValues func(p []float32, values []float32, chunks int, out []float32)

	// combine is x = x·a + y·b.
	combine func(x, y []float32, a, b float32)
}

// Softmax is what a row does to the products of a partition, from the first token
// of a tile on: tokens from to to-1 count.
type softmax struct {
	from, to int
	scale    float32
	slope    float32 // ALiBi
	offset   float32 // of the first token to the query's
}

// fastest is the best that the processor can do.
var fastest = &portable
