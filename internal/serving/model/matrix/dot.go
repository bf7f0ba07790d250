package matrix

// dotInputs is the largest number of inputs that dot multiplies at a time: first the values of all rows for these
// inputs, then those for the next inputs. rowGroup.slice does the same with the rows of a group. The weights of so many
// inputs, 256 × 64 bytes, stay in the first-level cache.
const dotInputs = 256

// dot adds to sums the products of all rows with the inputs [start, end) of panel p. sums has 64 values a row.
func (m *Matrix) dot(sums []float32, x *Input, p, start, end int, s *Scratch) {
	for k := start; k < end; k += dotInputs {
		m.dotSlab(sums, x, p, k, min(dotInputs, end-k), s)
	}
}

// group returns the number of inputs in a group. The high bits of the weights of a group are stored together. Kernels
// for one row read 8-bit weights, which have no separate high bits, in such groups as well.
func (t Type) group() int {
	if t.bits() == 5 {
		return 32
	}
	return 16
}

// locate finds the weight of output c for input k in a panel's block. It returns the offset of the byte with the
// weight's low bits and their shift in that byte, and the same for the high bits.
//
// A block begins with the scales in F16, then the minima if there are any. The weights follow in quads of 4 inputs. The
// 4 bytes of an output are adjacent, because one instruction reads them. Then follow those of the next output. For
// weights of less than 8 bits, a byte has the low 4 bits of the weights for inputs k and k + 4. In a group, the bytes
// with the high bits precede the bytes with the low bits.
func (m *Matrix) locate(c, k int) (low, lowShift, high, highShift int) {
	offset, bits, group := m.Type.scaleBytes()+c*4+k%4, m.Type.bits(), m.Type.group()
	if bits == 8 {
		return offset + k/4*4*Panel, 0, 0, 0
	}
	offset += k / group * group * Panel * bits / 8
	k %= group
	return offset + (k/8+min(bits-4, 1))*4*Panel, k % 8 / 4 * 4, offset, k / 4 * (bits - 4)
}

func (m *Matrix) setQuads(p, c int, q []int8, scales []Scale) {
	size, bits := m.bytesOf(m.Block), m.Type.bits()
	for b := range scales {
		block := m.data[p*m.panelBytes+b*size:][:size]
		scale, minimum := scales[b].values()
		m.setHeadValue(block, c, scale)
		bias := byte(kinds[m.Type].offset)
		switch {
		case m.Type.hasMinimum():
			m.setHeadValue(block, Panel+c, minimum)
		case m.Type.Table() != nil:
			bias = 0
		case scale != 0:
			bias += byte(int8(minimum / scale))
		}
		for k, v := range q[b*m.Block:][:m.Block] {
			unsigned := byte(v) + bias
			low, shift, high, highShift := m.locate(c, k)
			if bits == 8 {
				block[low] = unsigned
				continue
			}
			block[low] = block[low]&^(15<<shift) | unsigned&15<<shift
			if bits > 4 {
				mask := byte(1<<(bits-4) - 1)
				block[high] = block[high]&^(mask<<highShift) | unsigned>>4&mask<<highShift
			}
		}
	}
}

func (m *Matrix) weight(block []byte, c, k int) int32 {
	low, shift, high, highShift := m.locate(c, k)
	bits, integer := m.Type.bits(), int32(block[low])
	if bits < 8 {
		integer = integer >> shift & 15
	}
	if table := m.Type.Table(); table != nil {
		return int32(table[integer])
	}
	if bits == 5 || bits == 6 {
		integer |= int32(block[high]>>highShift) & (1<<(bits-4) - 1) << 4
	}
	return integer - kinds[m.Type].offset
}

func (m *Matrix) scaleOf(block []byte, c int) (scale, minimum float32) {
	if m.Type.hasMinimum() {
		minimum = m.headValue(block, Panel+c)
	}
	return m.headValue(block, c), minimum
}

func (m *Matrix) quadsRow(p, c int, dst []float32) {
	size := m.bytesOf(m.Block)
	for b := range m.In / m.Block {
		block := m.data[p*m.panelBytes+b*size:][:size]
		scale, minimum := m.scaleOf(block, c)
		for k := range m.Block {
			dst[b*m.Block+k] = fma(float32(m.weight(block, c, k)), scale, minimum)
		}
	}
}

// portableDot adds to sums the products of all rows and the inputs [k, k+n) of panel p, without kernels. This package's
// function fma rounds a sum twice, to float64 and then to float32, but kernels round it once. The last bit of a result
// may therefore differ.
func (m *Matrix) portableDot(sums []float32, x *Input, p, k, n int) {
	size, steps := m.bytesOf(m.Block), x.rounded.steps(m.Block)
	var weights [inputBlock]int32
	for b := k / m.Block; b < (k+n)/m.Block; b++ {
		block := m.data[p*m.panelBytes+b*size:][:size]
		for c := range Panel {
			for i := range m.Block {
				weights[i] = m.weight(block, c, i)
			}
			scale, minimum := m.scaleOf(block, c)
			for r := range x.rows {
				sum, step := int32(0), steps[r*m.In/m.Block+b]
				for i, q := range x.rounded.q[r*x.rounded.stride+b*m.Block:][:m.Block] {
					sum += weights[i] * int32(q)
				}
				total := &sums[r*Panel+c]
				*total = fma(float32(sum)*scale, step.scale, *total)
				if m.Type.hasMinimum() {
					*total = fma(-step.scaledNegSum, minimum, *total)
				}
			}
		}
	}
}
