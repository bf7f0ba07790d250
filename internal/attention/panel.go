package attention

// attendPanel is the way that any layout, type and number of rows can take: the
// partition is unpacked to float32 once, and then read by blocks of rows.
func (r *Runner) attendPanel(w *scratch, seq, kvHead, part int) {
	r.unpack(w, seq, kvHead, part)
	for at := 0; at < len(w.rows); at += rowBlock {
		r.attendRows(w, at, min(len(w.rows), at+rowBlock), part)
	}
}

// attendRows computes the results of rows r0 to r1-1.
func (r *Runner) attendRows(w *scratch, r0, r1, part int) {
	size, record := r.cache.HeadSize, recordSize(r.cache)
	from, to := PartitionSize, 0
	for i := r0; i < r1; i++ {
		f, t := w.rows[i].within(part)
		if f < t {
			from, to = min(from, f), max(to, t)
		}
	}
	results := w.part[r0*record : r1*record]
	if from >= to {
		clear(results)
		return
	}
	tile0, tile1 := from/16, (to-1)/16+1
	r.kernels.scores(w.q[r0*size:], r1-r0, size, w.keys[tile0*size*16:], tile1-tile0, w.scores[tile0*16:])
	for i := r0; i < r1; i++ {
		result := w.part[i*record:][:record]
		scores := w.scores[(i-r0)*scoreStride:][:scoreStride]
		result[0], result[1] = r.weigh(w, &w.rows[i], scores, part, tile0*16, tile1*16)
	}
	if w.finite {
		r.kernels.values(w.scores[from:], r1-r0, to-from, w.values[from*chunk:], padded(size)/chunk, results[2:], record)
		return
	}
	for i := r0; i < r1; i++ {
		r.addReached(w, &w.rows[i], w.scores[(i-r0)*scoreStride:], part, w.part[i*record:][:record])
	}
}

// weigh turns products q·k into weights p, and returns m and l. Weights of tokens
// between lo and hi that the row does not reach become 0; lo and hi are
// multiples of 16.
func (r *Runner) weigh(w *scratch, row *row, scores []float32, part, lo, hi int) (m, l float32) {
	from, to := row.within(part)
	if from >= to {
		clear(scores[lo:hi])
		return 0, 0
	}
	b := r.batch
	first, last := from&^15, (to+15)&^15
	clear(scores[lo:first])
	clear(scores[last:hi])
	if r.cache.DType == Int8 {
		multiply(scores[first:last], w.keyScales[first:last])
	}
	keyFactor, _ := r.cache.factors()
	x := softmax{from: from - first, to: to - first, scale: b.Scale * keyFactor}
	if b.SoftCap != 0 {
		capScores(scores[from:to], x.scale, b.SoftCap)
		x.scale = 1
	}
	if b.AlibiSlopes != nil {
		x.slope, x.offset = b.AlibiSlopes[row.head], float32(part*PartitionSize+first-row.position)
	}
	if b.Sparse != nil {
		r.hide(row, scores, part, from, to)
	}
	m, l = r.kernels.softmax(scores[first:last], &x)
	if r.cache.DType == Int8 {
		multiply(scores[first:last], w.valueScales[first:last])
	}
	return m, l
}

// multiply is x *= y.
func multiply(x, y []float32) {
	for i := range x {
		x[i] *= y[i]
	}
}

// addReached sums p·v of a row whose partition has values that are no numbers:
// only over tokens that it reaches.
func (r *Runner) addReached(w *scratch, row *row, p []float32, part int, result []float32) {
	clear(result[2:])
	from, to := row.within(part)
	for from < to {
		end := from + 1
		seen := r.sees(row, part*PartitionSize+from)
		for end < to && r.sees(row, part*PartitionSize+end) == seen {
			end++
		}
		if seen {
			r.kernels.addValues(p[from:end], w.values[from*chunk:], len(result[2:])/chunk, result[2:])
		}
		from = end
	}
}
