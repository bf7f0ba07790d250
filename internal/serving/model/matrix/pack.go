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

// A Scale converts an integer q of a block to a weight:
//
//	q × D × Factor + Min × MinFactor
//
// In some types, several blocks form a unit. D and Min are then the same for all blocks of the unit. Factor and
// MinFactor can differ from block to block.
type Scale struct {
	D, Min            float32
	Factor, MinFactor int8
}

func (s Scale) values() (scale, minimum float32) {
	return s.D * float32(s.Factor), s.Min * float32(s.MinFactor)
}

// Weight converts integer q to a weight. If table is nil, it uses the formula of Scale. If table is not nil, the weight
// is table[q] × D × Factor.
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

// Pack sets the panels [start, end) to the weights of src. A matrix with blocks needs a Quantized source with the same
// blocks. The type of the matrix limits the integers q and the scales that the source may return:
//
//   - Int4, Int4K, Int4F, NL4, FP4, W4A8Min, NL4A8, FP4A8: q is from 0 to 15.
//   - W5A8Min: q is from 0 to 31.
//   - W4A8: q + n is from -8 to 7. See below for n.
//   - W5A8: q + n is from -16 to 15.
//   - W6A8: q + n is from -32 to 31.
//
// W4A8, W5A8 and W6A8 store no minimum. Pack therefore adds n to q. n must be an integer, or D × Factor must be 0, and
// n is then 0:
//
//	n = (Min × MinFactor) / (D × Factor)
//
// The type also limits D and Min:
//
//   - Int8, Int8K, E4M3, NL4, FP4, W8A8, NL4A8, FP4A8: Min is 0.
//   - E4M3: the magnitude of D × Factor is below 256.
//   - Int8K, Int8KMin, Int4K: the blocks of a unit have the same D and the same Min.
//
// Pack rounds D and Min to F16 if the type has units. Otherwise it rounds the products D × Factor and Min × MinFactor,
// to F16 or F32.
func (m *Matrix) Pack(src Source, start, end int) error {
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
	for p := start; p < end; p++ {
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
		weights := m.floats(p)
		for k, v := range row {
			weights[k*Panel+c] = v
		}
		return
	}
	weights := m.halves(p)
	for k, v := range row {
		dst := &weights[m.half(c, k)]
		switch m.Type { // a function value would not be inlined
		case F16:
			*dst = half.ToF16(v)
		case BF16:
			*dst = half.ToBF16(v)
		default:
			*dst = short(v)
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

// headValue returns value i of head. head begins with the scales of a block or a unit, which are followed by its
// minima.
func (m *Matrix) headValue(head []byte, i int) float32 {
	if kinds[m.Type].single {
		return math.Float32frombits(binary.LittleEndian.Uint32(head[i*4:]))
	}
	return half.FromF16(binary.LittleEndian.Uint16(head[i*2:]))
}

func (m *Matrix) setHeadValue(head []byte, i int, v float32) {
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
		factors[c] = byte(s.Factor)
	}
	m.setHeadValue(head, c, scale)
	if m.Type.hasMinimum() {
		m.setHeadValue(head, Panel+c, minimum)
		if m.Type.units() {
			factors[Panel+c] = byte(s.MinFactor)
		}
	}
}

func (m *Matrix) scale(p, c, b int) Scale {
	head, factors := m.scalesAt(p, b)
	s := Scale{D: m.headValue(head, c), Factor: 1, MinFactor: 1}
	if m.Type.hasMinimum() {
		s.Min = m.headValue(head, Panel+c)
	}
	if m.Type.units() {
		s.Factor = int8(factors[c])
		if m.Type.hasMinimum() {
			s.MinFactor = int8(factors[Panel+c])
		}
	}
	return s
}

func (m *Matrix) scalesAt(p, b int) (head, factors []byte) {
	if !m.Type.units() {
		return m.data[p*m.panelBytes+m.bytesOf(b*m.Block):], nil
	}
	k := b * m.Block
	data := m.data[p*m.panelBytes+m.bytesOf(k/unit*unit):]
	return data, data[m.Type.scaleBytes()+k%unit/m.Block*(m.Type.factorBytes()+m.Block*Panel*m.Type.bits()/8):]
}

func (m *Matrix) integers(p, b int) []byte {
	head, factors := m.scalesAt(p, b)
	if factors != nil {
		return factors[m.Type.factorBytes():]
	}
	return head[m.Type.scaleBytes():]
}

// Row decodes the packed weights of output i and writes them to dst. They may differ from the weights given to Pack,
// because Pack rounds weights or their scales.
func (m *Matrix) Row(i int, dst []float32) {
	p, c := i/Panel, i%Panel
	switch {
	case m.Type == F32:
		src := m.floats(p)
		for k := range m.In {
			dst[k] = src[k*Panel+c]
		}
	case m.Type.rounds():
		m.quadsRow(p, c, dst)
	case m.Type.bits() > 0:
		m.decodeBlocks(p, c, 0, m.In, dst, 1)
	default:
		src, widen := m.halves(p), half.FromBF16
		if m.Type == F16 {
			widen = half.FromF16
		}
		for k := range m.In {
			dst[k] = widen(src[m.half(c, k)])
		}
	}
}

// fma returns a×b + c, rounded to float64 and then to float32. The processor's instruction, which kernels use, rounds
// only once. Both results are equal if a and b are small integers or F16.
func fma(a, b, c float32) float32 { return float32(math.FMA(float64(a), float64(b), float64(c))) }
