package attention

import (
	"math"
	"unsafe"
)

// unpack converts the keys and values of tokens w.from to w.to-1 of a partition to float32. w.keys has whole tiles;
// the keys of their other tokens are undefined.
func (r *Runner) unpack(w *scratch, seq, kvHead, part int) {
	c := r.cache
	w.keys = grow(w.keys, partitionSize*c.HeadSize)
	w.values = grow(w.values, partitionSize*padded(c.HeadSize))
	w.finite = true
	whole := tiled(c) && r.kernels.tileRows() > 0
	for t := w.from &^ 15; t < w.to; t += 16 {
		from, to := max(t, w.from), min(t+16, w.to)
		if !whole || !r.unpackTile(w, seq, kvHead, part*partitionSize+t, t, from, to) {
			for t := from; t < to; {
				t += r.unpackTokens(w, seq, kvHead, part*partitionSize+t, t, to-t)
			}
		}
		if c.DType == Int8 {
			r.kernels.pack(&w.call, w.keys[t*c.HeadSize:][:16*c.HeadSize], w.keys[t*c.HeadSize/2:])
		}
	}
}

// unpackTile converts the keys of a tile, and the values of tokens from to to-1 of the partition. token is the first
// token of the tile, and t its index in the partition. It returns false if a number of E4M3 is NaN, which the
// kernels would read as a finite number.
func (r *Runner) unpackTile(w *scratch, seq, kvHead, token, t, from, to int) bool {
	c := r.cache
	size, d, bytes := c.HeadSize, c.DType, c.DType.Size()
	key, value := r.tile(w, 0, seq, kvHead, token)
	value = unsafe.Add(value, (from-t)*size*bytes)
	if d == Int8 {
		w.copyScales(t/TileTokens, 1)
		for _, s := range w.valueScales[from:to] {
			w.finite = w.finite && isFinite(s)
		}
	}
	narrow := d == E4M3 || d == E5M2
	if narrow {
		bytes = F16.Size()
		if !r.kernels.halve(&w.call, d, key, size*TileTokens, w.call.buffer) {
			return false
		}
		key = w.call.buffer
	}
	keys := w.keys[t*size:][:size*TileTokens]
	r.kernels.convert(&w.call, d, key, chunk*bytes, len(keys)/chunk, keys)
	readable := value // by convert
	if narrow {
		if !r.kernels.halve(&w.call, d, value, size*(to-from), w.call.buffer) {
			return false
		}
		readable = w.call.buffer
	}
	for i := 0; i+chunk <= size; i += chunk {
		values := w.values[i/chunk*panelValues:][from*chunk : to*chunk]
		finite := r.kernels.convert(&w.call, d, unsafe.Add(readable, i*bytes), size*bytes, to-from, values)
		w.finite = w.finite && finite
	}
	if size%chunk != 0 {
		r.unpackTails(w, value, readable, bytes, from, to)
	}
	return true
}

// unpackTails converts the end of each value, for tokens from to to-1. The head size is not a multiple of a chunk, so
// the last chunk of a value is only half used. unpackTails leaves the other half in w.values unchanged, because its
// sums are not part of the output. The kernels convert whole chunks, so unpackTails converts the values of two tokens
// at a time. readable has the values in a type that the kernels read. bytes is the size of a number of this type.
func (r *Runner) unpackTails(w *scratch, value, readable unsafe.Pointer, bytes, from, to int) {
	c := r.cache
	size, n := c.HeadSize, to-from
	even := n &^ 1
	row := w.row[:n*size]
	if even > 0 {
		finite := r.kernels.convert(&w.call, c.DType, readable, chunk*bytes, even*size/chunk, row)
		w.finite = w.finite && finite
	}
	if last := row[even*size:]; n > even {
		c.DType.loadAll(last, unsafe.Add(value, even*size*c.DType.Size()))
		for _, v := range last {
			w.finite = w.finite && isFinite(v)
		}
	}
	tail := size / chunk * chunk
	for t := range n {
		copy(w.values[tail/chunk*panelValues+(from+t)*chunk:], row[t*size+tail:(t+1)*size])
	}
}

// unpackTokens converts the key and the value of the given token, whose index in the partition is t. If the token
// begins a tile of LayoutTile that ends within the next n tokens, it converts the whole tile. It returns the number
// of tokens that it converted.
func (r *Runner) unpackTokens(w *scratch, seq, kvHead, token, t, n int) int {
	c := r.cache
	block, offset := r.batch.blockOf(c, seq, token), token%c.BlockSize
	width := 1
	if wide := c.Shape.tile(); c.Layout == LayoutTile && offset%wide == 0 && wide <= n {
		width = wide
	}
	r.unpackKeys(w, block, kvHead, offset, t, width)
	for i := range width {
		r.unpackValue(w, block, kvHead, offset+i, t+i)
		if c.DType == Int8 {
			w.keyScales[t+i] = c.Scales(c.KeyScales, block, kvHead)[offset+i]
			w.valueScales[t+i] = c.Scales(c.ValueScales, block, kvHead)[offset+i]
			w.finite = w.finite && isFinite(w.valueScales[t+i])
		}
	}
	return width
}

func (r *Runner) unpackKeys(w *scratch, block, kvHead, offset, t, width int) {
	c := r.cache
	size, to := c.HeadSize, w.keys[t/16*c.HeadSize*16+t%16:]
	switch {
	case c.Layout == LayoutTile && width > 1, c.Layout == LayoutFlash:
		row := w.row[:size*width]
		c.DType.loadAll(row, unsafe.Pointer(&c.Key[c.KeyOffset(block, kvHead, offset, 0)]))
		for i := range size {
			copy(to[i*16:], row[i*width:][:width])
		}
	default:
		for i := range size {
			to[i*16] = c.DType.Load(unsafe.Pointer(&c.Key[c.KeyOffset(block, kvHead, offset, i)]))
		}
	}
}

func (r *Runner) unpackValue(w *scratch, block, kvHead, offset, t int) {
	c := r.cache
	row := w.row[:padded(c.HeadSize)]
	clear(row[c.HeadSize:])
	if c.Layout == LayoutVLLM {
		for i := range c.HeadSize {
			row[i] = c.DType.Load(unsafe.Pointer(&c.Value[c.ValueOffset(block, kvHead, offset, i)]))
		}
	} else {
		c.DType.loadAll(row[:c.HeadSize], unsafe.Pointer(&c.Value[c.ValueOffset(block, kvHead, offset, 0)]))
	}
	finite := true
	for _, v := range row[:c.HeadSize] {
		finite = finite && isFinite(v)
	}
	w.finite = w.finite && finite
	for i := 0; i < len(row); i += chunk {
		*(*[chunk]float32)(w.values[i/chunk*panelValues+t*chunk:]) = [chunk]float32(row[i:])
	}
}

func isFinite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }
