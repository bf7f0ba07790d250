package attention

import "unsafe"

// unpackLatent is unpack for keys whose first elements are the values. It reads each key once: it converts the keys of
// a tile to rows of float32, transposes the rows to a tile of w.keys, and copies the first elements of each row to
// w.values.
func (r *Runner) unpackLatent(w *scratch, seq, part int) {
	c := r.cache
	size := c.HeadSize
	if len(w.latent) != TileTokens*size {
		w.latent = make([]float32, TileTokens*size) // zeros, where a partition begins or ends within a tile
	}
	for t := w.start &^ 15; t < w.end; t += TileTokens {
		start, end := max(t, w.start), min(t+TileTokens, w.end)
		for i := start; i < end; i++ {
			token := part*partitionSize + i
			block := r.batch.blockOf(c, seq, token)
			c.DType.loadAll(w.latent[(i-t)*size:][:size], unsafe.Pointer(&c.Key[c.KeyOffset(block, 0, token%c.BlockSize, 0)]))
		}
		r.kernels.transpose(unsafe.Pointer(&w.keys[t*size]), unsafe.Pointer(&w.latent[0]), 4*size, size, 4, false)
		r.latentValues(w, w.latent[(start-t)*size:], start, end)
	}
}

// latentValues copies the values of tokens [start, end) of the partition from rows of keys.
func (r *Runner) latentValues(w *scratch, rows []float32, start, end int) {
	size, latent := r.cache.HeadSize, r.cache.Latent
	whole := 0 // elements that a kernel copies
	if r.kernels.tileRows() > 0 {
		whole = latent / chunk * chunk
	}
	for i := 0; i < whole; i += chunk {
		values := w.values[i/chunk*panelValues:][start*chunk : end*chunk]
		finite := r.kernels.convert(&w.args, F32, unsafe.Pointer(&rows[i]), 4*size, end-start, values)
		w.finite = w.finite && finite
	}
	for i := whole; i < latent; i += chunk {
		for t := start; t < end; t++ {
			value := w.values[i/chunk*panelValues+t*chunk:][:chunk]
			n := copy(value, rows[(t-start)*size:][i:min(i+chunk, latent)])
			clear(value[n:])
			for _, v := range value[:n] {
				w.finite = w.finite && isFinite(v)
			}
		}
	}
}
