package matrix

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Source has the rows of a matrix: row i are the weights of output i.
type Source interface {
	// Row writes row i as f32.
	Row(i int, dst []float32)
}

// A Quantized source has rows of integers: weight k is q[k] × scale[k/block] +
// min[k/block].
type Quantized interface {
	Source
	Quantized(i int, q []int8, scale, min []float32)
}

// Pack fills panels from up to to. The rows of a matrix of blocks must come from a Quantized source of
// its block: with min = 0 for Int8 and W8A8, 0 ≤ q < 16 for 4 bits, and min = -8 × scale for W4A8.
// Scales and minima are rounded to F16.
func (m *Matrix) Pack(src Source, from, to int) error {
	quantized, ok := src.(Quantized)
	if m.Block != 0 && !ok {
		return fmt.Errorf("%w: %v needs weights that are quantized", ErrShape, m.Type)
	}
	row := make([]float32, m.In)
	q := make([]int8, m.In)
	for p := from; p < to; p++ {
		for c := range min(Panel, m.Out-p*Panel) {
			if m.Block == 0 {
				src.Row(p*Panel+c, row)
				m.setRow(p, c, row)
				continue
			}
			blocks := m.In / m.Block
			quantized.Quantized(p*Panel+c, q, row[:blocks], row[blocks:2*blocks])
			m.setQuantized(p, c, q, row[:blocks], row[blocks:2*blocks])
		}
	}
	return nil
}

func (m *Matrix) setRow(p, c int, row []float32) {
	switch m.Type {
	case F32:
		to := m.floats(p)
		for k, v := range row {
			to[k*Panel+c] = v
		}
	case F16:
		to := m.halves(p)
		for k, v := range row {
			to[k*Panel+c] = ToF16(v)
		}
	case BF16:
		to := m.halves(p)
		for k, v := range row {
			to[k*Panel+c] = ToBF16(v)
		}
	}
}

func (m *Matrix) setQuantized(p, c int, q []int8, scale, least []float32) {
	if m.Type.rounds() {
		m.setQuads(p, c, q, scale, least)
		return
	}
	data := m.data[p*m.panelBytes : (p+1)*m.panelBytes]
	size := m.bytesOf(m.Block)
	for b := range scale {
		block, values := data[b*size:(b+1)*size], q[b*m.Block:(b+1)*m.Block]
		binary.LittleEndian.PutUint16(block[c*2:], ToF16(scale[b]))
		if m.Type == Int8 {
			for k, v := range values {
				block[Panel*2+k*Panel+c] = byte(v)
			}
			continue
		}
		binary.LittleEndian.PutUint16(block[Panel*2+c*2:], ToF16(least[b]))
		for k := 0; k < m.Block; k += 2 {
			block[Panel*4+k/2*Panel+c] = byte(values[k]&15) | byte(values[k+1])<<4
		}
	}
}

// Row writes the weights of output i as they are multiplied with.
func (m *Matrix) Row(i int, dst []float32) {
	p, c := i/Panel, i%Panel
	switch m.Type {
	case F32:
		from := m.floats(p)
		for k := range m.In {
			dst[k] = from[k*Panel+c]
		}
	case F16:
		from := m.halves(p)
		for k := range m.In {
			dst[k] = FromF16(from[k*Panel+c])
		}
	case BF16:
		from := m.halves(p)
		for k := range m.In {
			dst[k] = FromBF16(from[k*Panel+c])
		}
	case Int8, Int4:
		m.quantizedRow(p, c, dst)
	default:
		m.quadsRow(p, c, dst)
	}
}

func (m *Matrix) quantizedRow(p, c int, dst []float32) {
	data := m.data[p*m.panelBytes : (p+1)*m.panelBytes]
	size := m.bytesOf(m.Block)
	for k := range m.In {
		block, at := data[k/m.Block*size:], k%m.Block
		scale := FromF16(binary.LittleEndian.Uint16(block[c*2:]))
		if m.Type == Int8 {
			dst[k] = float32(int8(block[Panel*2+at*Panel+c])) * scale
			continue
		}
		least := FromF16(binary.LittleEndian.Uint16(block[Panel*2+c*2:]))
		q := block[Panel*4+at/2*Panel+c] >> (at % 2 * 4) & 15
		dst[k] = fma(float32(q), scale, least)
	}
}

// fma is a×b + c, rounded once to float64 and once to float32: for products of
// small integers with halves that is exact enough to equal the instruction.
func fma(a, b, c float32) float32 { return float32(math.FMA(float64(a), float64(b), float64(c))) }
