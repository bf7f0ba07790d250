package attention

import (
	"math"
	"unsafe"
)

const (
	chunk       = 32                    // floats of a value that are accumulated together
	tiles       = partitionSize / 16    // tiles of a partition
	scoreStride = partitionSize + 16    // floats from one row's logits to the next; 16 extra avoid cache conflicts
	rowBlock    = 48                    // rows whose logits are kept at a time
	spareRows   = 11                    // padding: a kernel writes its full number of rows, even if fewer remain
	tilesAhead  = 8                     // maximum distance of prefetching, in tiles
	panelValues = partitionSize * chunk // floats of one chunk of all values of a partition
)

// A scratch is the memory of a worker. It has the rows to compute, the current partition, and the results.
type scratch struct {
	rows  []row
	q     []float32 // [rows][head size]; with Int8 [rows][head size / 2], and each number is a pair of integers
	state []float32 // [rows] records: results over all partitions so far
	part  []float32 // [rows] records: results over this partition

	scores []float32              // [rowBlock][scoreStride]
	low    [partitionSize]float32 // the rounding errors of the logits of a row

	// The partition as float32.
	keys        []float32 // [tiles][head size][16]; with Int8 [tiles][head size / 2][16] of pairs
	values      []float32 // [chunks][partitionSize][chunk]
	keyScales   []float32 // [partitionSize], Int8 only
	valueScales []float32

	finite     bool                              // no value is NaN or infinite
	start, end int                               // tokens of the partition to which some row attends
	row        [TileTokens * MaxHeadSize]float32 // a temporary copy
	latent     []float32                         // [TileTokens][head size] of latent keys

	// tiles has the addresses of the partition's tiles: first the tiles of keys, then, from index firstValue on, the
	// tiles of values, then the next tiles of keys, which the kernels prefetch. tileScores needs an even number of
	// tiles of keys. If the number is odd, the address of the last of these tiles is in the list twice. For keys in
	// float32, attendRows lists the tiles of the field keys here instead.
	tiles      [2*tiles + tilesAhead]unsafe.Pointer
	firstValue int

	// prefetchList has addresses in the next partition, and ends with nil. The kernels prefetch them while they multiply
	// queries by the keys of the current partition.
	prefetchList [2*tiles*4 + 1]unsafe.Pointer
	scales       [2 * tiles]unsafe.Pointer // Int8 only: for each tile, the scales of its keys and those of its values
	args         args
	buffer       [halfTiles*TileTokens*MaxHeadSize*2 + 64]byte // args.buffer is its aligned part
}

// A row is one query head of one query token.
type row struct {
	token, head int     // in the batch
	query       int     // offset of its query in scratch.q
	position    int     // position of the token in its sequence
	start, end  int     // tokens that it attends to
	unit        float32 // Int8: its query is unit times the integers in scratch.q
}

func (r *Runner) setRows(w *scratch, it *item) {
	b, c := r.batch, r.cache
	w.rows = w.rows[:0]
	seq := max(0, it.seq)
	for token := it.token0; token < it.token1; token++ {
		for int(b.QueryStart[seq+1]) <= token {
			seq++
		}
		first, _, position := b.queries(seq)
		position += token - first
		start, end := b.attended(position)
		for g := range it.heads * r.group {
			query := len(w.rows) * r.queryWidth()
			w.rows = append(w.rows, row{token: token, head: it.kvHead*r.group + g, query: query, position: position,
				start: start, end: end})
		}
	}
	n, record := len(w.rows), recordSize(c)
	w.q = grow(w.q, (n+spareRows)*r.queryWidth())
	w.state = grow(w.state, n*record)
	w.part = grow(w.part, (n+spareRows)*record)
	w.scores = grow(w.scores, (rowBlock+spareRows)*scoreStride)
	if c.DType == Int8 {
		w.keyScales, w.valueScales = grow(w.keyScales, partitionSize), grow(w.valueScales, partitionSize)
	}
	for i := range w.rows {
		r.loadQuery(w, i)
		r.initState(w.state[i*record:][:record], &w.rows[i], it)
	}
}

func (r *Runner) queryWidth() int {
	if r.cache.DType == Int8 {
		return r.cache.HeadSize / 2
	}
	return r.cache.HeadSize
}

func (r *Runner) loadQuery(w *scratch, i int) {
	row, size, width := &w.rows[i], r.cache.HeadSize, r.queryWidth()
	q := w.q[i*width:][:width]
	if r.cache.DType != Int8 {
		r.batch.Query.Load(q, row.token, row.head*size)
		return
	}
	x := w.row[:size]
	r.batch.Query.Load(x, row.token, row.head*size)
	row.unit = r.quantize(w, x, q)
}

// largestInteger is the largest integer in a query for int8 keys. With this limit, the sum of maxInt8Size products fits
// into 32 bits.
const largestInteger = 32512

// quantize converts a query x to pairs of integers in q. It returns the factor that turns the integers back into
// numbers. The factor is NaN if a number of x is NaN or infinite.
func (r *Runner) quantize(w *scratch, x, q []float32) (unit float32) {
	top := math.Float32frombits(r.kernels.largest(&w.args, x))
	if !isFinite(top) {
		clear(q)
		return float32(math.NaN())
	}
	factor := float32(0)
	if top > 0x1p-100 { // else its inverse would be infinite
		factor = largestInteger / top
	}
	r.kernels.quantize(&w.args, x, factor, q)
	return top / largestInteger
}

// attendedByAny returns the smallest range [start, end) that contains all tokens of the partition to which some row
// attends. If there are no such tokens, start is at least end.
func attendedByAny(rows []row, part int) (start, end int) {
	start, end = partitionSize, 0
	for i := range rows {
		if f, t := rows[i].attendedIn(part); f < t {
			start, end = min(start, f), max(end, t)
		}
	}
	return start, end
}

// attendedIn returns the range [start, end) of tokens of the partition to which the row attends. If there are none,
// start is at least end.
func (r *row) attendedIn(part int) (start, end int) {
	first := part * partitionSize
	return max(0, r.start-first), min(partitionSize, r.end-first)
}
