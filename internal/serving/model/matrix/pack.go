package matrix

import (
	"encoding/binary"
	"fmt"
	"math"

	"llmmemory/internal/serving/half"
)

// A Source has the rows of a matrix. Row i has the weights of output i.
type Source interface {
	// Row writes row i as f32.
	Row(i int, dst []float32)
}

// A Scale converts an integer q of a block to a weight: q × D × By + Min × MinBy.
type Scale struct {
	D, Min    float32
	By, MinBy int8
}

func (s Scale) values() (scale, minimum float32) {
	return s.D * float32(s.By), s.Min * float32(s.MinBy)
}

// Weight returns the weight for integer q. If table is not nil, q is an index of it, and Min does not count.
func (s Scale) Weight(q int8, table []float32) float32 {
	scale, minimum := s.values()
	if table != nil {
		return table[uint8(q)] * scale
	}
	return float32(float32(q)*scale) + minimum
}

// A Quantized is a Source of weights that are already quantized. Its method Quantized writes the integers of row i to
// q, and the scale of each block of row i to scales.
type Quantized interface {
	Source
	Quantized(i int, q []int8, scales []Scale)
}

// Pack sets panels [from, to) to the weights of src. A matrix with blocks needs a Quantized source with the same
// blocks. For W4A8, W5A8 and W6A8, Min must be an integer multiple of D. Integers plus Min/D must be from -8 to 7, -16
// to 15, and -32 to 31. For other types without minima, Min must be 0. Integers must be from 0 to 15 for other types of
// 4 bits, and from 0 to 31 for W5A8Min.
//
// For types with units, D and Min are rounded to F16. The blocks of a unit must then have the same D and the same Min.
// For other types, D × By and Min × MinBy are rounded, to F16 or F32.
func (m *Matrix) Pack(src Source, from, to int) error {
	quantized, ok := src.(Quantized)
	if m.Block != 0 && !ok {
		return fmt.Errorf("%w: %v needs weights that are quantized", ErrShape, m.Type)
	}
	var row []float32
	var q []int8
	var scales []Scale
	if m.Block == 0 {
		row = make([]float32, m.In)
	} else {
		q, scales = make([]int8, m.In), make([]Scale, m.In/m.Block)
	}
	for p := from; p < to; p++ {
		for c := range min(Panel, m.Out-p*Panel) {
			if m.Block == 0 {
				src.Row(p*Panel+c, row)
				m.setRow(p, c, row)
				continue
			}
			quantized.Quantized(p*Panel+c, q, scales)
			if m.Type.rounds() {
				m.setQuads(p, c, q, scales)
			} else {
				m.setQuantized(p, c, q, scales)
			}
		}
	}
	return nil
}

func (m *Matrix) setRow(p, c int, row []float32) {
	if m.Type == F32 {
		to := m.floats(p)
		for k, v := range row {
			to[k*Panel+c] = v
		}
		return
	}
	to := m.halves(p)
	for k, v := range row {
		at := &to[m.half(c, k)]
		switch m.Type { // a function value would not be inlined
		case F16:
			*at = half.ToF16(v)
		case BF16:
			*at = half.ToBF16(v)
		default:
			*at = short(v)
		}
	}
}

func (m *Matrix) setQuantized(p, c int, q []int8, scales []Scale) {
	for b, s := range scales {
		m.setScale(p, c, b, s)
		integers := m.integers(p, b)
		values := q[b*m.Block:][:m.Block]
		if m.Type.bits() == 8 {
			for i, v := range values {
				integers[i*Panel+c] = byte(v)
			}
			continue
		}
		for i := 0; i < len(values); i += 2 {
			integers[i/2*Panel+c] = byte(values[i]&15) | byte(values[i+1])<<4
		}
	}
}

// number returns number i of head, which has the scales and then the minima of a block.
func (m *Matrix) number(head []byte, i int) float32 {
	if kinds[m.Type].single {
		return math.Float32frombits(binary.LittleEndian.Uint32(head[i*4:]))
	}
	return half.FromF16(binary.LittleEndian.Uint16(head[i*2:]))
}

func (m *Matrix) setNumber(head []byte, i int, v float32) {
	if kinds[m.Type].single {
		binary.LittleEndian.PutUint32(head[i*4:], math.Float32bits(v))
	} else {
		binary.LittleEndian.PutUint16(head[i*2:], half.ToF16(v))
	}
}

func (m *Matrix) setScale(p, c, b int, s Scale) {
	head, factors := m.scalesAt(p, b)
	scale, minimum := s.values()
	if m.Type.units() {
		scale, minimum = s.D, s.Min
		factors[c] = byte(s.By)
	}
	m.setNumber(head, c, scale)
	if m.Type.hasMinimum() {
		m.setNumber(head, Panel+c, minimum)
		if m.Type.units() {
			factors[Panel+c] = byte(s.MinBy)
		}
	}
}

func (m *Matrix) scale(p, c, b int) Scale {
	head, factors := m.scalesAt(p, b)
	s := Scale{D: m.number(head, c), By: 1, MinBy: 1}
	if m.Type.hasMinimum() {
		s.Min = m.number(head, Panel+c)
	}
	if m.Type.units() {
		s.By = int8(factors[c])
		if m.Type.hasMinimum() {
			s.MinBy = int8(factors[Panel+c])
		}
	}
	return s
}

func (m *Matrix) scalesAt(p, b int) (head, factors []byte) {
	if !m.Type.units() {
		return m.data[p*m.panelBytes+m.bytesOf(b*m.Block):], nil
	}
	k := b * m.Block
	at := m.data[p*m.panelBytes+m.bytesOf(k/unit*unit):]
	return at, at[m.Type.scaleBytes()+k%unit/m.Block*(m.Type.factorBytes()+m.Block*Panel*m.Type.bits()/8):]
}

func (m *Matrix) integers(p, b int) []byte {
	head, factors := m.scalesAt(p, b)
	if factors != nil {
		return factors[m.Type.factorBytes():]
	}
	return head[m.Type.scaleBytes():]
}

// Row writes the weights of output i to dst, as products use them after rounding.
func (m *Matrix) Row(i int, dst []float32) {
	p, c := i/Panel, i%Panel
	switch {
	case m.Type == F32:
		from := m.floats(p)
		for k := range m.In {
			dst[k] = from[k*Panel+c]
		}
	case m.Type.rounds():
		m.quadsRow(p, c, dst)
	case m.Type.bits() > 0:
		m.decodeBlocks(p, c, 0, m.In, dst, 1)
	default:
		from, widen := m.halves(p), half.FromBF16
		if m.Type == F16 {
			widen = half.FromF16
		}
		for k := range m.In {
			dst[k] = widen(from[m.half(c, k)])
		}
	}
}

// fma returns a×b + c, rounded to float64 and then to float32. If a and b are small integers or F16, the result is the
// same as with one rounding. The processor's instruction rounds once.
func fma(a, b, c float32) float32 { return float32(math.FMA(float64(a), float64(b), float64(c))) }
