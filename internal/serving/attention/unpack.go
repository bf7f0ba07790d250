package attention

import (
	"math"
	"unsafe"
)

// unpack converts the keys and values of tokens [w.start, w.end) of a partition to float32, without the scales of Int8.
// It writes the keys to whole tiles of w.keys. For Int8, it then packs each tile into pairs of 16-bit integers (method
// pack). If the first or the last tile also has tokens outside this range, their keys are undefined.
func (r *Runner) unpack(w *scratch, seq, kvHead, part int) {
	c := r.cache
	w.keys = grow(w.keys, partitionSize*c.HeadSize)
	w.values = grow(w.values, partitionSize*padded(c.ValueSize()))
	w.finite = true
	if c.Latent > 0 {
		r.unpackLatent(w, seq, part)
		return
	}
	whole := tiled(c) && r.kernels.tileRows() > 0
	for t := w.start &^ 15; t < w.end; t += 16 {
		start, end := max(t, w.start), min(t+16, w.end)
		if !whole || !r.unpackTile(w, seq, kvHead, part*partitionSize+t, t, start, end) {
			for t := start; t < end; {
				t += r.unpackTokens(w, seq, kvHead, part*partitionSize+t, t, end-t)
			}
		}
		if c.DType == Int8 {
			r.kernels.pack(&w.args, w.keys[t*c.HeadSize:][:16*c.HeadSize], w.keys[t*c.HeadSize/2:])
		}
	}
}

// unpackTile converts all keys of a tile, and the values of tokens [start, end) of the partition, which are in this
// tile. token is the first token of the tile in the sequence, and t is its index in the partition. unpackTile returns
// false if a number of E4M3 is NaN, because the kernels would read it as a finite number.
func (r *Runner) unpackTile(w *scratch, seq, kvHead, token, t, start, end int) bool {
	c := r.cache
	size, d, bytes := c.HeadSize, c.DType, c.DType.Size()
	key, value := r.tile(w, 0, seq, kvHead, token)
	value = unsafe.Add(value, (start-t)*size*bytes)
	if d == Int8 {
		w.copyScales(t/TileTokens, 1)
		for _, s := range w.valueScales[start:end] {
			w.finite = w.finite && isFinite(s)
		}
	}
	narrow := d == E4M3 || d == E5M2
	if narrow {
		bytes = F16.Size()
		if !r.kernels.halve(&w.args, d, key, size*TileTokens, w.args.buffer) {
			return false
		}
		key = w.args.buffer
	}
	keys := w.keys[t*size:][:size*TileTokens]
	r.kernels.convert(&w.args, d, key, chunk*bytes, len(keys)/chunk, keys)
	readable := value // the values in a type that convert reads
	if narrow {
		if !r.kernels.halve(&w.args, d, value, size*(end-start), w.args.buffer) {
			return false
		}
		readable = w.args.buffer
	}
	for i := 0; i+chunk <= size; i += chunk {
		values := w.values[i/chunk*panelValues:][start*chunk : end*chunk]
		finite := r.kernels.convert(&w.args, d, unsafe.Add(readable, i*bytes), size*bytes, end-start, values)
		w.finite = w.finite && finite
	}
	if size%chunk != 0 {
		r.unpackTails(w, value, readable, bytes, start, end)
	}
	return true
}

// unpackTails converts the end of each value, for tokens [start, end) of the partition. It is used if the head size is
// not a multiple of a chunk. The last chunk of each value is then only half used. unpackTails leaves the unused half in
// w.values unchanged, because its sums are not part of the output.
//
// value points to the values in the block. readable points to the same values in a type that the kernels read, and
// bytes is the size of a number of this type.
//
// The kernels convert whole chunks. A single value ends with half a chunk, but the values of two tokens together are
// whole chunks. So unpackTails converts two values at a time. If the number of tokens is odd, the last value remains.
// unpackTails reads it from the block with loadAll.
func (r *Runner) unpackTails(w *scratch, value, readable unsafe.Pointer, bytes, start, end int) {
	c := r.cache
	size, n := c.HeadSize, end-start
	paired := n &^ 1
	row := w.row[:n*size]
	if paired > 0 {
		finite := r.kernels.convert(&w.args, c.DType, readable, chunk*bytes, paired*size/chunk, row)
		w.finite = w.finite && finite
	}
	if last := row[paired*size:]; n > paired {
		c.DType.loadAll(last, unsafe.Add(value, paired*size*c.DType.Size()))
		for _, v := range last {
			w.finite = w.finite && isFinite(v)
		}
	}
	tail := size / chunk * chunk
	for t := range n {
		copy(w.values[tail/chunk*panelValues+(start+t)*chunk:], row[t*size+tail:(t+1)*size])
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
	size, keys := c.HeadSize, w.keys[t/16*c.HeadSize*16+t%16:]
	switch {
	case c.Layout == LayoutTile && width > 1, c.Layout == LayoutFlash:
		row := w.row[:size*width]
		c.DType.loadAll(row, unsafe.Pointer(&c.Key[c.KeyOffset(block, kvHead, offset, 0)]))
		for i := range size {
			copy(keys[i*16:], row[i*width:][:width])
		}
	default:
		for i := range size {
			keys[i*16] = c.DType.Load(unsafe.Pointer(&c.Key[c.KeyOffset(block, kvHead, offset, i)]))
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
