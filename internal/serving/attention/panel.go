package attention

import "unsafe"

// attendPanel computes the results of rows r0 to r1-1 in one partition. It works for any layout, type and number of
// rows. It converts the keys and values of the partition to float32 once. Then it multiplies them with 48 rows at a
// time.
func (r *Runner) attendPanel(w *scratch, seq, kvHead, r0, r1, part int) {
	r.unpack(w, seq, kvHead, part)
	for at := r0; at < r1; at += rowBlock {
		r.attendRows(w, at, min(r1, at+rowBlock), part)
	}
}

// listPrefetches lists addresses in the blocks of an item's next partition in w.ahead. The kernels take one address of
// the list, and prefetch 16·size bytes there, each time they multiply some rows of queries by a tile or two.
// Prefetching everything at once would delay other reads.
func (r *Runner) listPrefetches(w *scratch, it *item, head, part int) {
	c, n := r.cache, 0
	piece, bytes := TileTokens*r.queryWidth(), TileTokens*c.HeadSize*c.DType.Size()
	to := min((part+2)*partitionSize, w.rows[len(w.rows)-1].to)
	if part+1 == it.part1 || !tiled(c) {
		to = 0
	}
	for token := (part + 1) * partitionSize; token < to; token += TileTokens {
		key, value := r.tileAt(max(0, it.seq), it.kvHead+head, token)
		for at := 0; at < bytes; at += piece {
			w.ahead[n], w.ahead[n+bytes/piece] = unsafe.Add(key, at), unsafe.Add(value, at)
			n++
		}
		n += bytes / piece
	}
	w.ahead[n] = nil
	w.call.ahead = unsafe.Pointer(&w.ahead[0])
}

func (r *Runner) attendRows(w *scratch, r0, r1, part int) {
	record := recordSize(r.cache)
	from, to := attendedByAny(w.rows[r0:r1], part)
	clear(w.part[r0*record : r1*record])
	if from >= to {
		return
	}
	tile0, tile1 := from/16, (to-1)/16+1
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
	r.panelValues(w, r0, r1, part, from, to)
}

func (r *Runner) panelScores(w *scratch, r0, r1, tile0, tile1 int) {
	size, width := r.cache.HeadSize, r.queryWidth()
	q, scores := w.q[r0*width:], w.scores[tile0*16:]
	if r.cache.DType == Int8 {
		r.kernels.integerScores(&w.call, q, r1-r0, width, w.keys[tile0*16*width:], tile1-tile0, scores)
	} else {
		r.kernels.scores(&w.call, q, r1-r0, size, sumElements(r.cache), w.keys[tile0*16*width:], tile1-tile0, scores)
	}
}

func (r *Runner) panelValues(w *scratch, r0, r1, part, from, to int) {
	size, record := r.cache.HeadSize, recordSize(r.cache)
	if !w.finite {
		for i := r0; i < r1; i++ {
			r.addAttended(w, &w.rows[i], w.scores[(i-r0)*scoreStride:], part, w.part[i*record+recordHead:][:padded(size)])
		}
		return
	}
	firstSum := 0
	if r.cache.DType == F32 {
		firstSum = TileTokens - from%TileTokens
	}
	r.kernels.values(&w.call, w.scores[from:], r1-r0, to-from, w.values[from*chunk:], padded(size)/chunk,
		w.part[r0*record+recordHead:r1*record], record, firstSum)
}

// addAttended adds to sums the p·v of the tokens to which a row attends. It is used for partitions with NaN or
// infinite values. The kernels multiply the values of other tokens by 0, and would get NaN.
func (r *Runner) addAttended(w *scratch, row *row, p []float32, part int, sums []float32) {
	from, to := row.attendedIn(part)
	together := w.row[:len(sums)]
	for from < to {
		last := to
		if r.cache.DType == F32 { // if all values are equal, the error of a single sum can be 1e-5
			last = min(to, from/TileTokens*TileTokens+TileTokens)
		}
		clear(together)
		r.kernels.values(&w.call, p[from:], 1, last-from, w.values[from*chunk:], len(sums)/chunk, together, len(sums), 0)
		from = last
		r.kernels.combine(&w.call, sums, together, 1, 1)
	}
}
