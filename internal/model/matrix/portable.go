package matrix

import (
	"math"
	"unsafe"
)

// portableTile adds rows of x times a slab of f32 weights to dst. Sums are
// rounded after each product, so their last bits are not those of the kernels
// that fuse.
func portableTile(dst *float32, dstStride int, x *float32, xStride int, w *byte, k, rows int) {
	weights := unsafe.Slice((*float32)(unsafe.Pointer(w)), k*Panel)
	for r := range rows {
		sums := unsafe.Slice(add(dst, r*dstStride), Panel)
		xs := unsafe.Slice(add(x, r*xStride), k)
		for i, v := range xs {
			ws := weights[i*Panel:][:Panel]
			for c := range sums {
				sums[c] += v * ws[c]
			}
		}
	}
}

// portableDecode turns k inputs of a panel into f32.
func (m *Matrix) portableDecode(dst *float32, w *byte, k int) {
	to := unsafe.Slice(dst, k*Panel)
	switch m.Type {
	case F16:
		for i, h := range unsafe.Slice((*uint16)(unsafe.Pointer(w)), k*Panel) {
			to[i] = FromF16(h)
		}
	case BF16:
		for i, h := range unsafe.Slice((*uint16)(unsafe.Pointer(w)), k*Panel) {
			to[i] = FromBF16(h)
		}
	case Int8, Int4:
		data := unsafe.Slice(w, m.bytesOf(k))
		size := m.bytesOf(m.Block)
		for b := range k / m.Block {
			m.decodeBlock(to[b*m.Block*Panel:], data[b*size:(b+1)*size])
		}
	}
}

func (m *Matrix) decodeBlock(dst []float32, block []byte) {
	halves := unsafe.Slice((*uint16)(unsafe.Pointer(&block[0])), 2*Panel)
	for c := range Panel {
		scale := FromF16(halves[c])
		if m.Type == Int8 {
			for k := range m.Block {
				dst[k*Panel+c] = float32(int8(block[Panel*2+k*Panel+c])) * scale
			}
			continue
		}
		least := FromF16(halves[Panel+c])
		for k := range m.Block {
			q := block[Panel*4+k/2*Panel+c] >> (k % 2 * 4) & 15
			dst[k*Panel+c] = fma(float32(q), scale, least)
		}
	}
}

func silu(g float32) float32 {
	return float32(float64(g) / (1 + math.Exp(-float64(g))))
}
