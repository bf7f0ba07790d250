package attention

import "unsafe"

// readsInPlace reports whether the kernels can read blocks directly for an item that has the given number of rows per KV
// head. They can if the rows belong to one query token and are at most tileRows, the blocks consist of whole tiles, and
// the head size is a multiple of 16, at most 256.
func (r *Runner) readsInPlace(it *item, rows int) bool {
	return it.token1-it.token0 == 1 && rows <= r.kernels.tileRows() && tiled(r.cache) && r.cache.HeadSize <= maxTileSize
}

// maxTileSize is the largest head size for which the kernels read blocks in place.
const maxTileSize = 256

func tiled(c *Cache) bool {
	return c.Tiled() && c.HeadSize%16 == 0
}

// attendTiles computes the results of an item's rows in one partition and one KV head. head is the index of the KV head
// in the item. attendTiles reads each key and value once. It returns false if a number of E4M3 is NaN, which the
// kernels would read as a finite number.
func (r *Runner) attendTiles(w *scratch, it *item, head, part int) bool {
	c, record := r.cache, recordSize(r.cache)
	rowsPerHead := len(w.rows) / it.heads
	rows, q := w.rows[head*rowsPerHead:][:rowsPerHead], w.q[head*rowsPerHead*r.queryWidth():]
	results := w.part[head*rowsPerHead*record:][:rowsPerHead*record]
	tile0, n := w.start/16, (w.end-1)/16+1-w.start/16
	r.findTiles(w, it, head, part, tile0, n)
	if !r.kernels.tileScores(&w.args, c.DType, q, rowsPerHead, c.HeadSize, &w.tiles[0], n, w.scores[tile0*16:]) {
		return false
	}
	if c.DType == Int8 {
		w.copyScales(tile0, n)
	}
	factor := float32(1)
	if c.DType == E4M3 {
		factor = 256
	}
	clear(results)
	for i := range rows {
		scores := w.scores[i*scoreStride:][:scoreStride]
		m, l := r.weigh(w, &rows[i], scores, part, tile0*16, (tile0+n)*16, factor)
		results[i*record], results[i*record+1] = m, l
	}
	if !r.kernels.tileValues(&w.args, c.DType, w.scores[w.start:], rowsPerHead, w.end-w.start, w.start%16,
		&w.tiles[w.firstValue], c.HeadSize, results[recordHead:], record) {
		return false
	}
	if factor != 1 {
		for i := range rows {
			o := results[i*record:][recordHead:record]
			for j := range o {
				o[j] *= factor
			}
		}
	}
	return true
}

// findTiles sets w.tiles to the addresses of n tiles of a partition, beginning with tile tile0. It also appends the
// next tiles of keys, which the kernels prefetch. These belong to the item's next head or, after the last head, to the
// next partition. If there are too few, findTiles repeats the address of the last tile of values.
func (r *Runner) findTiles(w *scratch, it *item, head, part, tile0, n int) {
	seq, kvHead := max(0, it.seq), it.kvHead+head
	w.firstValue = (n + 1) &^ 1
	for i := range n {
		w.tiles[i], w.tiles[w.firstValue+i] = r.tile(w, i, seq, kvHead, part*partitionSize+(tile0+i)*16)
	}
	if n%2 == 1 {
		w.tiles[n] = w.tiles[n-1]
	}
	if r.cache.DType == Int8 {
		r.kernels.prefetch(&w.args, w.scales[:2*n]) // fetched while the keys are read
	}
	kvHead, next := kvHead+1, part*partitionSize+tile0*TileTokens
	if head == it.heads-1 {
		kvHead, next = it.kvHead, (part+1)*partitionSize
	}
	last, end := w.firstValue+n, min(w.rows[0].end, it.part1*partitionSize)
	for i := range tilesAhead {
		w.tiles[last+i] = w.tiles[last-1]
		if token := next + i*TileTokens; token < end {
			w.tiles[last+i], _ = r.tileAt(seq, kvHead, token)
		}
	}
}

func (r *Runner) tileAt(seq, kvHead, token int) (key, value unsafe.Pointer) {
	c := r.cache
	offset := c.start(r.batch.blockOf(c, seq, token), kvHead) + token%c.BlockSize*c.HeadSize*c.DType.Size()
	return unsafe.Pointer(&c.Key[offset]), unsafe.Pointer(&c.Value[offset])
}

func (r *Runner) tile(w *scratch, i, seq, kvHead, token int) (key, value unsafe.Pointer) {
	c := r.cache
	if c.DType == Int8 {
		block, offset := r.batch.blockOf(c, seq, token), token%c.BlockSize
		w.scales[2*i] = unsafe.Pointer(&c.Scales(c.KeyScales, block, kvHead)[offset])
		w.scales[2*i+1] = unsafe.Pointer(&c.Scales(c.ValueScales, block, kvHead)[offset])
	}
	return r.tileAt(seq, kvHead, token)
}

func (w *scratch) copyScales(tile0, n int) {
	for i := range n {
		token := (tile0 + i) * TileTokens
		*(*[TileTokens]float32)(w.keyScales[token:]) = *(*[TileTokens]float32)(w.scales[2*i])
		*(*[TileTokens]float32)(w.valueScales[token:]) = *(*[TileTokens]float32)(w.scales[2*i+1])
	}
}
