package attention

import (
	"math"
	"unsafe"
)

// unpack reads the tokens w.from to w.to-1 of a partition into w as float32.
// Keys of other tokens of the same tiles become 0.
func (r *Runner) unpack(w *scratch, seq, kvHead, part int) {
	c := r.cache
	size := c.HeadSize
	w.keys = grow(w.keys, PartitionSize*size)
	w.values = grow(w.values, PartitionSize*padded(size))
	w.finite = true
	if c.DType == Int8 {
		w.keyScales, w.valueScales = grow(w.keyScales, PartitionSize), grow(w.valueScales, PartitionSize)
	}
	tile0, tile1 := w.from/16, (w.to-1)/16+1
	for t := tile0 * 16; t < tile1*16; t++ {
		if t < w.from || t >= w.to {
			w.blankKey(t, size)
			continue
		}
		token := part*PartitionSize + t
		block, place := r.batch.blockOf(c, seq, token), token%c.BlockSize
		r.unpackToken(w, block, kvHead, place, t)
	}
}

func (r *Runner) unpackToken(w *scratch, block, kvHead, place, t int) {
	c := r.cache
	size := c.HeadSize
	for i := range size {
		w.keys[(t/16*size+i)*16+t%16] = c.DType.Load(unsafe.Pointer(&c.Key[c.KeyOffset(block, kvHead, place, i)]))
	}
	for i := range padded(size) {
		v := float32(0)
		if i < size {
			v = c.DType.Load(unsafe.Pointer(&c.Value[c.ValueOffset(block, kvHead, place, i)]))
		}
		if !isFinite(v) {
			w.finite = false
		}
		w.values[i/chunk*panelValues+t*chunk+i%chunk] = v
	}
	if c.DType == Int8 {
		w.keyScales[t] = c.Scales(c.KeyScales, block, kvHead)[place]
		w.valueScales[t] = c.Scales(c.ValueScales, block, kvHead)[place]
		w.finite = w.finite && isFinite(w.valueScales[t])
	}
}

func (w *scratch) blankKey(t, size int) {
	for i := range size {
		w.keys[(t/16*size+i)*16+t%16] = 0
	}
	if len(w.keyScales) > t {
		w.keyScales[t], w.valueScales[t] = 0, 0
	}
}

func isFinite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }
