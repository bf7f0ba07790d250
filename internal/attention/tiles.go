package attention

import "unsafe"

// fused says whether the rows of an item can read the blocks where they lie: they
// are the heads of one query token, and the layout has whole tiles.
func (r *Runner) fused(w *scratch, it *item) bool {
	c := r.cache
	return it.token1-it.token0 == 1 && len(w.rows) <= r.kernels.tileRows() && r.batch.Sparse == nil && tiled(c)
}

// tiled says whether blocks are whole tiles of whole registers.
func tiled(c *Cache) bool {
	return c.Layout == LayoutTile && c.BlockSize%tileTokens == 0 && c.HeadSize%16 == 0
}

// attendTiles computes the results of a partition, reading each key and value
// once. It is false if there is a number that it cannot read.
func (r *Runner) attendTiles(w *scratch, it *item, part int) bool {
	c, record := r.cache, recordSize(r.cache)
	seq, rows := max(0, it.seq), len(w.rows)
	tile0, n := w.from/16, (w.to-1)/16+1-w.from/16
	r.findTiles(w, seq, it.kvHead, part, tile0, n)
	if !r.kernels.tileScores(&w.call, c.DType, w.q, rows, c.HeadSize, &w.keyTiles[0], n, w.scores[tile0*16:]) {
		return false
	}
	factor := float32(1)
	if c.DType == E4M3 {
		factor = 256
	}
	clear(w.part[:rows*record])
	for i := range w.rows {
		scores := w.scores[i*scoreStride:][:scoreStride]
		m, l := r.weigh(w, &w.rows[i], scores, part, tile0*16, (tile0+n)*16, factor)
		w.part[i*record], w.part[i*record+1] = m, l
	}
	if !r.kernels.tileValues(&w.call, c.DType, w.scores[w.from:], rows, w.to-w.from, w.from%16, &w.valueTiles[0], c.HeadSize, w.part[2:], record) {
		return false
	}
	if factor != 1 {
		for i := range w.rows {
			o := w.part[i*record:][2:record]
			for j := range o {
				o[j] *= factor
			}
		}
	}
	return true
}

// findTiles looks up the addresses of n tiles of a partition. Those that follow
// them are what is read next: the values after the keys, then the keys of the
// next partition.
func (r *Runner) findTiles(w *scratch, seq, kvHead, part, tile0, n int) {
	for i := range n {
		w.keyTiles[i], w.valueTiles[i] = r.tile(w, seq, kvHead, part*PartitionSize+(tile0+i)*16, (tile0+i)*16)
	}
	even := n
	if n%2 == 1 {
		w.keyTiles[n] = w.keyTiles[n-1]
		even++
	}
	w.keyTiles[even], w.keyTiles[even+1] = w.valueTiles[0], w.valueTiles[min(1, n-1)]
	w.valueTiles[n] = w.valueTiles[n-1]
	if next := (part + 1) * PartitionSize; next < w.rows[0].to {
		c := r.cache
		at := c.start(r.batch.blockOf(c, seq, next), kvHead)
		w.valueTiles[n] = unsafe.Pointer(&c.Key[at+next%c.BlockSize*c.HeadSize*c.DType.Size()])
	}
}

// tile is where the keys and values of 16 tokens are, from a multiple of 16 on;
// their scales are copied to the place t.
func (r *Runner) tile(w *scratch, seq, kvHead, token, t int) (key, value unsafe.Pointer) {
	c := r.cache
	block, place := r.batch.blockOf(c, seq, token), token%c.BlockSize
	at := c.start(block, kvHead) + place*c.HeadSize*c.DType.Size()
	if c.DType == Int8 {
		copy(w.keyScales[t:][:16], c.Scales(c.KeyScales, block, kvHead)[place:])
		copy(w.valueScales[t:][:16], c.Scales(c.ValueScales, block, kvHead)[place:])
	}
	return unsafe.Pointer(&c.Key[at]), unsafe.Pointer(&c.Value[at])
}
