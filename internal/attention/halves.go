package attention

import "unsafe"

// piece is how many elements of a value are read at a time in float16.
const piece = 64

// pieces is the length of a value as float16 in scratch memory, whole pieces.
func pieces(headSize int) int { return (headSize + piece - 1) &^ (piece - 1) }

// unpackHalf reads the tokens w.from to w.to-1 of a partition into w as float16, keys
// of Int8 as pairs of integers. Keys of other tokens of the same tiles may be
// anything, their values become 0.
func (r *Runner) unpackHalf(w *scratch, seq, kvHead, part int) {
	c := r.cache
	size, wide := c.HeadSize, pieces(c.HeadSize)
	w.words = grow(w.words, partitionSize*(size+wide))
	keyWords, valueWords := w.words[:partitionSize*size], w.words[partitionSize*size:]
	if c.DType == Int8 {
		w.keys = grow(w.keys, partitionSize*size)
	}
	w.finite = true
	for t := w.from &^ 15; t < w.to; t += tileTokens {
		from, to := max(t, w.from), min(t+tileTokens, w.to)
		key, value := r.tileBytes(w, seq, kvHead, part*partitionSize+t, t, from, to)
		if c.DType == Int8 {
			keys := w.keys[t*size:][:tileTokens*size]
			r.kernels.convert(&w.call, Int8, key, chunk, len(keys)/chunk, keys)
			r.kernels.pack(&w.call, keys, w.keys[t*size/2:])
			for _, s := range w.valueScales[from:to] {
				w.finite = w.finite && isFinite(s)
			}
		} else {
			r.makeWords(w, key, tileTokens*size/piece, keyWords[t*size:])
		}
		clear(valueWords[t*wide : from*wide])
		clear(valueWords[to*wide : (t+tileTokens)*wide])
		if !r.makeWords(w, value, (to-from)*wide/piece, valueWords[from*wide:]) {
			w.finite = false
		}
	}
}

// makeWords makes float16 of n pieces and says whether they are finite.
func (r *Runner) makeWords(w *scratch, in unsafe.Pointer, n int, out []uint16) bool {
	d := r.cache.DType
	finite := r.kernels.words(&w.call, d, in, n, out)
	if !finite && d == E4M3 { // its NaNs were read as numbers
		for i, b := range unsafe.Slice((*uint8)(in), n*piece) {
			if b&0x7f == 0x7f {
				out[wordIndex(i)] = 0x7e00
			}
		}
	}
	return finite
}

// wordIndex is where the float16 of a byte is: of each 64, first the halves of 8 from
// each 16.
func wordIndex(i int) int {
	return i&^(piece-1) | i>>3&1<<5 | i>>4&3<<3 | i&7
}

// tileBytes is where the keys of the tile of a token lie as in LayoutTile, and the
// values of the tokens from to to-1 of the partition, in whole pieces. The scales of Int8
// become those of the partition.
func (r *Runner) tileBytes(w *scratch, seq, kvHead, token, t, from, to int) (key, value unsafe.Pointer) {
	c := r.cache
	size, wide := c.HeadSize, pieces(c.HeadSize)
	keys, values := w.bytes[:tileTokens*MaxHeadSize], w.bytes[tileTokens*MaxHeadSize:]
	if tiled(c) {
		key, value = r.tile(w, 0, seq, kvHead, token)
		if c.DType == Int8 {
			w.copyScales(t/tileTokens, 1)
		}
		value = unsafe.Add(value, (from-t)*size)
		if size == wide {
			return key, value
		}
		for i := range to - from {
			row := values[i*wide:][:wide]
			clear(row[copy(row, unsafe.Slice((*uint8)(unsafe.Add(value, i*size)), size)):])
		}
		return key, unsafe.Pointer(&values[0])
	}
	clear(keys)
	for i := from; i < to; i++ {
		block, place := r.batch.blockOf(c, seq, token-t+i), (token-t+i)%c.BlockSize
		r.gather(keys[i-t:], values[(i-from)*wide:][:wide], block, kvHead, place)
		if c.DType == Int8 {
			w.keyScales[i] = c.Scales(c.KeyScales, block, kvHead)[place]
			w.valueScales[i] = c.Scales(c.ValueScales, block, kvHead)[place]
		}
	}
	return unsafe.Pointer(&keys[0]), unsafe.Pointer(&values[0])
}

// gather copies the key of a token to every 16th byte, and its value.
func (r *Runner) gather(key, value []uint8, block, kvHead, place int) {
	c := r.cache
	size := c.HeadSize
	clear(value[size:])
	if c.Layout == LayoutFlash {
		for i, b := range c.Key[c.KeyOffset(block, kvHead, place, 0):][:size] {
			key[i*tileTokens] = b
		}
	} else {
		for i := range size {
			key[i*tileTokens] = c.Key[c.KeyOffset(block, kvHead, place, i)]
		}
	}
	if c.Layout != LayoutVLLM {
		copy(value, c.Value[c.ValueOffset(block, kvHead, place, 0):][:size])
		return
	}
	for i := range size {
		value[i] = c.Value[c.ValueOffset(block, kvHead, place, i)]
	}
}

// halfScores are the products of rows with tiles of keys that unpackHalf has made.
func (r *Runner) halfScores(w *scratch, q []float32, rows, tile0, tile1 int) {
	size := r.cache.HeadSize
	n := tile1 - tile0
	for i := range n {
		w.tiles[i] = unsafe.Pointer(&w.words[(tile0+i)*tileTokens*size])
	}
	w.tiles[n] = w.tiles[n-1] // for an odd number
	r.kernels.tileScores(&w.call, words, q, rows, size, &w.tiles[0], n, w.scores[tile0*tileTokens:])
}

// halfValues are the sums of p·v of rows over tiles that unpackHalf has made.
func (r *Runner) halfValues(w *scratch, r0, r1, part, tile0, tile1 int) {
	size, wide, record := r.cache.HeadSize, pieces(r.cache.HeadSize), recordSize(r.cache)
	values := w.words[partitionSize*size:]
	for i := tile0; i < tile1; i++ {
		w.tiles[i-tile0] = unsafe.Pointer(&values[i*tileTokens*wide])
	}
	n := (tile1 - tile0) * tileTokens
	if w.finite {
		r.kernels.halfValues(&w.call, words, w.scores[tile0*tileTokens:], w.rows[r0:r1], n, 0, &w.tiles[0], size, w.part[r0*record+recordHead:], record)
		return
	}
	w.reached = grow(w.reached, partitionSize*wide)
	for i := r0; i < r1; i++ {
		p := w.scores[(i-r0)*scoreStride:]
		r.keepReached(w, &w.rows[i], values, part, tile0, tile1)
		r.kernels.halfValues(&w.call, words, p[tile0*tileTokens:], w.rows[i:i+1], n, 0, &w.tiles[0], size, w.part[i*record+recordHead:], record)
	}
}

// keepReached copies the values of a row whose partition has some that are no
// numbers; those of the tokens that it does not see become 0.
func (r *Runner) keepReached(w *scratch, row *row, values []uint16, part, tile0, tile1 int) {
	wide := pieces(r.cache.HeadSize)
	from, to := row.within(part)
	for t := tile0 * tileTokens; t < tile1*tileTokens; t++ {
		v := w.reached[t*wide:][:wide]
		if t < from || t >= to || !r.sees(row, part*partitionSize+t) {
			clear(v)
			continue
		}
		copy(v, values[t*wide:])
	}
	for i := tile0; i < tile1; i++ {
		w.tiles[i-tile0] = unsafe.Pointer(&w.reached[i*tileTokens*wide])
	}
}
