package matrix

import (
	"encoding/binary"
)

// rounds reports whether a product with weights of the type rounds activations to 8 bits.
func (t Type) rounds() bool { return t == W8A8 || t == W4A8 || t == W4A8Min }

// dotInputs is the number of k that are multiplied at a time: 256 × 64 bytes stay in the first cache for all rows.
const dotInputs = 256

// offset is what is added to the weights, so that they are kept unsigned.
func (t Type) offset() int32 {
	switch t {
	case W8A8:
		return 128
	case W4A8:
		return 8
	}
	return 0
}

// dot adds the product of the rounded rows of x and the inputs from up to to of a panel to sums, 64 values
// a row.
func (m *Matrix) dot(sums []float32, x *Input, p, from, to int, s *Scratch) {
	for k := from; k < to; k += dotInputs {
		m.dotSlab(sums, x, p, k, min(dotInputs, to-k), s)
	}
}

// place is where a block of a panel has the byte of an output's weight k, and by how many bits it is
// shifted there. After the scales in F16, and minima, the bytes of 4 k of an output lie side by side, as an
// instruction takes them, then those of the next output. With 4 bits a byte has the weights of k and k + 4.
func (m *Matrix) place(c, k int) (at, shift int) {
	if m.Type == W8A8 {
		return m.Type.scaleBytes() + k/4*4*Panel + c*4 + k%4, 0
	}
	return m.Type.scaleBytes() + k/8*4*Panel + c*4 + k%4, k % 8 / 4 * 4
}

// mask is the bits of a weight.
func (t Type) mask() byte {
	if t == W8A8 {
		return 255
	}
	return 15
}

// setQuads packs weights of an output. Those of Pack's sources are unsigned if they have 4 bits.
func (m *Matrix) setQuads(p, c int, q []int8, scales []Scale) {
	size, mask := m.bytesOf(m.Block), m.Type.mask()
	for b := range scales {
		block := m.data[p*m.panelBytes+b*size:][:size]
		scale, least := scales[b].values()
		binary.LittleEndian.PutUint16(block[c*2:], ToF16(scale))
		if m.Type == W4A8Min {
			binary.LittleEndian.PutUint16(block[Panel*2+c*2:], ToF16(least))
		}
		for k, v := range q[b*m.Block:][:m.Block] {
			unsigned := byte(v)
			if m.Type == W8A8 {
				unsigned ^= 0x80
			}
			at, shift := m.place(c, k)
			block[at] = block[at]&^(mask<<shift) | unsigned&mask<<shift
		}
	}
}

// weight is an output's integer of k in a block.
func (m *Matrix) weight(block []byte, c, k int) int32 {
	at, shift := m.place(c, k)
	return int32(block[at]>>shift&m.Type.mask()) - m.Type.offset()
}

// scaleOf is an output's scale and minimum in a block.
func (m *Matrix) scaleOf(block []byte, c int) (scale, least float32) {
	scale = FromF16(binary.LittleEndian.Uint16(block[c*2:]))
	if m.Type == W4A8Min {
		least = FromF16(binary.LittleEndian.Uint16(block[Panel*2+c*2:]))
	}
	return scale, least
}

// quadsRow writes the weights of an output as numbers.
func (m *Matrix) quadsRow(p, c int, dst []float32) {
	size := m.bytesOf(m.Block)
	for b := range m.In / m.Block {
		block := m.data[p*m.panelBytes+b*size:][:size]
		scale, least := m.scaleOf(block, c)
		for k := range m.Block {
			dst[b*m.Block+k] = fma(float32(m.weight(block, c, k)), scale, least)
		}
	}
}

// portableDot does what the kernels do with n inputs from k on. Sums may differ from theirs in the last
// bit: fma rounds twice where they round once.
func (m *Matrix) portableDot(sums []float32, x *Input, p, k, n int) {
	size, steps := m.bytesOf(m.Block), x.rounded.of(m.Block)
	var weights [inputBlock]int32
	for b := k / m.Block; b < (k+n)/m.Block; b++ {
		block := m.data[p*m.panelBytes+b*size:][:size]
		for c := range Panel {
			for i := range m.Block {
				weights[i] = m.weight(block, c, i)
			}
			scale, least := m.scaleOf(block, c)
			for r := range x.rows {
				sum, step := int32(0), steps[r*m.In/m.Block+b]
				for i, q := range x.rounded.q[r*m.In+b*m.Block:][:m.Block] {
					sum += weights[i] * int32(q)
				}
				to := &sums[r*Panel+c]
				*to = fma(float32(sum)*scale, step.scale, *to)
				if m.Type == W4A8Min {
					*to = fma(-(float32(step.minus) * step.scale), least, *to)
				}
			}
		}
	}
}
