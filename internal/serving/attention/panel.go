package attention

import "unsafe"

// attendPanel computes the results of rows [r0, r1) in one partition. It works for any layout, type and number of rows.
// It converts the keys and values of the partition once: to float32 or, for keys in Int8, to pairs of integers. Then it
// multiplies them by up to 48 rows at a time.
func (r *Runner) attendPanel(w *scratch, seq, kvHead, r0, r1, part int) {
	r.unpack(w, seq, kvHead, part)
	for row := r0; row < r1; row += rowBlock {
		r.attendRows(w, row, min(r1, row+rowBlock), part)
	}
}

// listPrefetches sets w.prefetchList to addresses in the blocks of the item's next partition. The list is empty if
// there is no next partition, if the blocks do not consist of whole tiles, or if the head size is not a multiple of 16.
// Each time the kernels multiply some rows of queries by one or two tiles, they take one address from the list and
// prefetch 16·queryWidth bytes there. Prefetching everything at once would delay other reads.
func (r *Runner) listPrefetches(w *scratch, it *item, head, part int) {
	c, n := r.cache, 0
	piece, bytes := TileTokens*r.queryWidth(), TileTokens*c.HeadSize*c.DType.Size()
	end := min((part+2)*partitionSize, w.rows[len(w.rows)-1].end)
	if part+1 == it.part1 || !tiled(c) {
		end = 0
	}
	for token := (part + 1) * partitionSize; token < end; token += TileTokens {
		key, value := r.tileAt(max(0, it.seq), it.kvHead+head, token)
		for offset := 0; offset < bytes; offset += piece {
			w.prefetchList[n], w.prefetchList[n+bytes/piece] = unsafe.Add(key, offset), unsafe.Add(value, offset)
			n++
		}
		n += bytes / piece
	}
	w.prefetchList[n] = nil
	w.args.prefetchList = unsafe.Pointer(&w.prefetchList[0])
}

func (r *Runner) attendRows(w *scratch, r0, r1, part int) {
	record := recordSize(r.cache)
	start, end := attendedByAny(w.rows[r0:r1], part)
	clear(w.part[r0*record : r1*record])
	if start >= end {
		return
	}
	tile0, tile1 := start/16, (end-1)/16+1
	if r.cache.DType == F32 {
		for i := range tile1 - tile0 {
			w.tiles[i] = unsafe.Pointer(&w.keys[(tile0+i)*TileTokens*r.cache.HeadSize])
		}
	}
	r.panelScores(w, r0, r1, tile0, tile1)
	for i := r0; i < r1; i++ {
		result := w.part[i*record:][:record]
		scores := w.scores[(i-r0)*scoreStride:][:scoreStride]
		result[0], result[1] = r.weigh(w, &w.rows[i], scores, part, tile0*16, tile1*16, 1)
	}
	r.panelValues(w, r0, r1, part, start, end)
}

func (r *Runner) panelScores(w *scratch, r0, r1, tile0, tile1 int) {
	size, width := r.cache.HeadSize, r.queryWidth()
	q, scores := w.q[r0*width:], w.scores[tile0*16:]
	if r.cache.DType == Int8 {
		r.kernels.integerScores(&w.args, q, r1-r0, width, w.keys[tile0*16*width:], tile1-tile0, scores)
	} else {
		r.kernels.scores(&w.args, q, r1-r0, size, sumElements(r.cache), w.keys[tile0*16*width:], tile1-tile0, scores)
	}
}

func (r *Runner) panelValues(w *scratch, r0, r1, part, start, end int) {
	size, record := r.cache.ValueSize(), recordSize(r.cache)
	if !w.finite {
		for i := r0; i < r1; i++ {
			r.addAttended(w, &w.rows[i], w.scores[(i-r0)*scoreStride:], part, w.part[i*record+recordHead:][:padded(size)])
		}
		return
	}
	firstSum := 0
	if r.cache.DType == F32 {
		firstSum = TileTokens - start%TileTokens
	}
	r.kernels.values(&w.args, w.scores[start:], r1-r0, end-start, w.values[start*chunk:], padded(size)/chunk,
		w.part[r0*record+recordHead:r1*record], record, firstSum)
}

// addAttended computes p·v for each token to which a row attends, and adds it to the parameter sums. It is used for
// partitions with NaN or infinite values. In other partitions, the kernels also multiply the values of the tokens to
// which the row does not attend, by the weight 0. Here such a product would be NaN.
func (r *Runner) addAttended(w *scratch, row *row, p []float32, part int, sums []float32) {
	start, end := row.attendedIn(part)
	tileSums := w.row[:len(sums)]
	for start < end {
		last := end
		if r.cache.DType == F32 { // if all values are equal, the error of a single sum can be 1e-5
			last = min(end, start/TileTokens*TileTokens+TileTokens)
		}
		clear(tileSums)
		r.kernels.values(&w.args, p[start:], 1, last-start, w.values[start*chunk:], len(sums)/chunk, tileSums, len(sums), 0)
		start = last
		r.kernels.combine(&w.args, sums, tileSums, 1, 1)
	}
}
