package weights

import (
	"encoding/binary"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model/matrix"
)

// words are a matrix of 32-bit words.
type words struct {
	data       []byte
	rows, cols int
}

func (w *words) at(row, col int) uint32 {
	return binary.LittleEndian.Uint32(w.data[(row*w.cols+col)*4:])
}

// words returns a matrix of words. ok is false if it is missing.
func (t *Tensors) words(name string) (w words, ok bool, err error) {
	l, ok := t.leftOut[name]
	if !ok {
		return w, false, nil
	}
	if l.DType != "I32" || len(l.Shape) != 2 || l.Shape[0] > 1<<31 || l.Shape[1] > 1<<31 ||
		l.Shape[0]*l.Shape[1]*4 != uint64(len(l.data)) || len(l.data) == 0 {
		return w, false, damaged("tensor %q is %s; a matrix of I32 is expected", name, t.LeftOut(name))
	}
	return words{l.data, int(l.Shape[0]), int(l.Shape[1])}, true, nil
}

// numbers returns a matrix of numbers as a table. A scalar becomes one row and one column.
func (t *Tensors) numbers(name string) (*table, error) {
	if v := t.byName[name]; v != nil {
		return &table{v.Vector(), v.Rows, v.Cols}, nil
	}
	if l, ok := t.leftOut[name]; ok && len(l.Shape) == 0 {
		if d, ok := floatTypes[l.DType]; ok {
			v, err := makeTensor(name, d, []uint64{1}, l.data)
			if err != nil {
				return nil, err
			}
			return &table{v.Vector(), 1, 1}, nil
		}
	}
	if what := t.LeftOut(name); what != "" {
		return nil, damaged("tensor %q is %s; numbers are expected", name, what)
	}
	return nil, damaged("tensor %q is missing", name)
}

// A table has the scales of a matrix.
type table struct {
	values     []float32
	rows, cols int
}

// A quantized matrix has functions that return the integers of a row and the scale, with the zero, of a row's group.
type quantized struct {
	rows, cols int
	dtype      DType
	group      int // columns that share a scale
	integers   func(row int, q []int8)
	scale      func(row, group int) matrix.Scale
}

func (m *quantized) Quantized(i int, q []int8, scales []matrix.Scale) {
	m.integers(i, q)
	for b := range scales {
		scales[b] = m.scale(i, b*layouts[m.dtype].scaled/m.group)
	}
}

func (m *quantized) Row(i int, dst []float32) {
	q := make([]int8, m.cols)
	m.integers(i, q)
	var s matrix.Scale
	for k, v := range q {
		if k%m.group == 0 {
			s = m.scale(i, k/m.group)
		}
		dst[k] = s.Weight(v, layouts[m.dtype].packed.Table())
	}
}

func (m *quantized) tensor(name string, data []byte) *Tensor {
	return &Tensor{Name: name, DType: m.dtype, Rows: m.rows, Cols: m.cols, data: data, mapped: true, source: m}
}

// check returns an error if package matrix cannot keep the groups.
func (t *Tensor) check(name string) error {
	unit := layouts[t.DType].scaled
	if m := t.source.(*quantized); t.Cols%unit != 0 || m.group%unit != 0 && m.group < t.Cols {
		return unsupported("%d inputs in groups of %d; multiples of 32 are read", t.Cols, m.group)
	}
	return nil
}

// groups4 checks the number of scales for rows × cols weights and selects a type that keeps the groups exactly.
func (s *scheme) groups4(rows, cols int, scales *table, groups, outputs int) (*quantized, error) {
	m := &quantized{rows: rows, cols: cols, group: s.GroupSize, dtype: Groups4}
	if m.group <= 0 {
		m.group = cols
	}
	if want := (cols + m.group - 1) / m.group; groups != want || outputs != rows {
		return nil, damaged("scales of %d groups of %d outputs for %d × %d weights in groups of %d", groups, outputs, rows,
			cols, m.group)
	}
	if m.group%64 != 0 || cols%64 != 0 {
		m.dtype = Groups4Free
	}
	for _, v := range scales.values {
		if half.FromF16(half.ToF16(v)) != v {
			m.dtype = Groups4Free
		}
	}
	return m, nil
}

// scaleOf returns the scale of integers from which zero is subtracted.
func scaleOf(d float32, zero int) matrix.Scale {
	return matrix.Scale{D: d, By: 1, Min: d, MinBy: int8(-zero)}
}
