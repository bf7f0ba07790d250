package weights

import (
	"encoding/binary"

	"llmmemory/internal/model/matrix"
)

// Quantized writes the integers of row i, and a scale and a minimum for each
// Block of them. It makes a Tensor a matrix.Quantized. The integers of types of
// 4 bits are from 0 to 15.
func (t *Tensor) Quantized(i int, q []int8, scale, least []float32) {
	row, l := t.row(i), layouts[t.DType]
	each := l.elements / l.scaled
	for b := range t.Cols / l.elements {
		block := row[b*l.bytes : (b+1)*l.bytes]
		values := q[b*l.elements : (b+1)*l.elements]
		s, m := scale[b*each:(b+1)*each], least[b*each:(b+1)*each]
		clear(m)
		switch t.DType {
		case Q8_0:
			s[0] = half(block)
			for k, v := range block[2:] {
				values[k] = int8(v)
			}
		case Q4_0:
			s[0], m[0] = half(block), -8*half(block)
			for k, v := range block[2:] {
				values[k], values[k+16] = int8(v&15), int8(v>>4)
			}
		case Q4_K:
			readQ4K(block, values, s, m)
		case Q6_K:
			readQ6K(block, values, s)
		}
	}
}

func (t *Tensor) dequantize(row []byte, dst []float32) {
	l := layouts[t.DType]
	one := Tensor{DType: t.DType, Rows: 1, Cols: l.elements}
	q, scale, least := make([]int8, l.elements), make([]float32, l.elements/l.scaled), make([]float32, l.elements/l.scaled)
	for b := range t.Cols / l.elements {
		one.data = row[b*l.bytes : (b+1)*l.bytes]
		one.Quantized(0, q, scale, least)
		for k, v := range q {
			dst[b*l.elements+k] = float32(v)*scale[k/l.scaled] + least[k/l.scaled]
		}
	}
}

func half(b []byte) float32 { return matrix.FromF16(binary.LittleEndian.Uint16(b)) }

// readQ4K reads two halves that scale the scales and the minima, twelve bytes
// with eight of each in 6 bits, and nibbles: of each 32 bytes, the low ones come first.
func readQ4K(block []byte, q []int8, scale, least []float32) {
	d, dmin, packed, nibbles := half(block), half(block[2:]), block[4:16], block[16:]
	for j := range scale {
		s, m := packed[j%4+j/4*8]&15|packed[j%4]>>6<<4, packed[j%4+8]>>4|packed[j%4+4]>>6<<4
		if j < 4 {
			s, m = packed[j]&63, packed[j+4]&63
		}
		scale[j], least[j] = d*float32(s), -dmin*float32(m)
	}
	for k := range q {
		v := nibbles[k/64*32+k%32]
		q[k] = int8(v >> (k / 32 % 2 * 4) & 15)
	}
}

// readQ6K reads 128 bytes of low nibbles, 64 bytes of the two bits above them,
// 16 scales, and a half that scales them. Each half of the block is four
// quarters of 32 values.
func readQ6K(block []byte, q []int8, scale []float32) {
	low, high, scales, d := block[:128], block[128:192], block[192:208], half(block[208:])
	for j := range scale {
		scale[j] = d * float32(int8(scales[j]))
	}
	for k := range q {
		part, quarter, l := k/128, k%128/32, k%32
		nibble := low[part*64+quarter%2*32+l] >> (quarter / 2 * 4) & 15
		bits := high[part*32+l] >> (quarter * 2) & 3
		q[k] = int8(nibble|bits<<4) - 32
	}
}
