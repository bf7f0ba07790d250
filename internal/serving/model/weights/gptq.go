package weights

import (
	"cmp"
	"encoding/binary"
	"math"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model/matrix"
)

// The bit positions of the 8 integers in a word. An integer is a weight or a zero. A zero is a number that is
// subtracted from the weights of a group.
var (
	inOrder   = [8]int{0, 4, 8, 12, 16, 20, 24, 28}
	awqShifts = [8]int{0, 16, 4, 20, 8, 24, 12, 28}
)

// readGPTQ reads a matrix of GPTQ. A 32-bit word has the weights of 8 inputs, or the zeros of 8 outputs.
func (s *scheme) readGPTQ(t *Tensors, base string) (*Tensor, error) {
	m, q, err := s.readZeros(t, base, inOrder)
	if err != nil {
		return nil, err
	}
	order, ok := t.others[base+".g_idx"]
	if !ok && s.DescAct {
		return nil, damaged("tensor %q is missing", base+".g_idx")
	}
	for k := range m.cols {
		if ok && (len(order.data) != m.cols*4 || binary.LittleEndian.Uint32(order.data[k*4:]) != uint32(k/m.group)) {
			return nil, unsupported("g_idx orders inputs by their size (desc_act), which is not read")
		}
	}
	m.integers = func(row int, dst []int8) {
		for k := range dst {
			dst[k] = int8(q.word(k/8, row) >> inOrder[k%8] & 15)
		}
	}
	return m.tensor(base+".weight", q.data), nil
}

// readAWQ reads a matrix of AWQ. A 32-bit word has the weights, or the zeros, of 8 outputs.
func (s *scheme) readAWQ(t *Tensors, base string) (*Tensor, error) {
	m, q, err := s.readZeros(t, base, awqShifts)
	if err != nil {
		return nil, err
	}
	m.integers = func(row int, dst []int8) {
		for k := range dst {
			dst[k] = int8(q.word(k, row/8) >> awqShifts[row%8] & 15)
		}
	}
	return m.tensor(base+".weight", q.data), nil
}

// readZeros reads the scales and zeros of a matrix of GPTQ or AWQ. shifts has the bit positions of the zeros in a
// word. The result m lacks only m.integers, which the caller reads from q, the words with the weights.
func (s *scheme) readZeros(t *Tensors, base string, shifts [8]int) (m *quantized, q words, err error) {
	q, _, err = t.words(base + ".qweight")
	zeros, ok, zerosErr := t.words(base + ".qzeros")
	if zerosErr == nil && !ok {
		zerosErr = damaged("tensor %q is missing", base+".qzeros")
	}
	scales, scalesErr := t.numbers(base + ".scales")
	if err = cmp.Or(err, zerosErr, scalesErr); err != nil {
		return nil, q, err
	}
	rows, cols, offset := q.cols, q.rows*8, 1 // GPTQ stores zeros minus 1
	if s.CheckpointFormat == "gptq_v2" {
		offset = 0
	}
	if s.Method == "awq" {
		rows, cols, offset = q.cols*8, q.rows, 0
	}
	if m, err = s.groups4(rows, cols, scales, scales.rows, scales.cols); err != nil {
		return nil, q, err
	}
	if zeros.rows != scales.rows || zeros.cols*8 != rows {
		return nil, q, damaged("zeros of %d × %d words", zeros.rows, zeros.cols)
	}
	m.scale = func(row, group int) matrix.Scale {
		return scaleOf(scales.values[group*scales.cols+row], int(zeros.word(group, row/8)>>shifts[row%8]&15)+offset)
	}
	return m, q, nil
}

// readPacked reads a matrix of compressed-tensors. A 32-bit word has the weights of 8 inputs, or the zeros of 8
// outputs. If the file has no tensor of zeros for the matrix, the zero of every group is 8.
func (s *scheme) readPacked(t *Tensors, base string) (*Tensor, error) {
	q, _, err := t.words(base + ".weight_packed")
	scales, scalesErr := t.numbers(base + ".weight_scale")
	zeros, asymmetric, zerosErr := t.words(base + ".weight_zero_point")
	if err = cmp.Or(err, scalesErr, zerosErr); err != nil {
		return nil, err
	}
	m, err := s.groups4(q.rows, q.cols*8, scales, scales.cols, scales.rows)
	if err != nil {
		return nil, err
	}
	if asymmetric && (zeros.rows != (m.rows+7)/8 || zeros.cols != scales.cols) {
		return nil, damaged("zeros of %d × %d words", zeros.rows, zeros.cols)
	}
	if _, ok := t.others[base+".weight_g_idx"]; ok {
		return nil, unsupported("weight_g_idx orders inputs by their size (actorder), which is not read")
	}
	m.integers = func(row int, dst []int8) {
		for k := range dst {
			dst[k] = int8(q.word(row, k/8) >> inOrder[k%8] & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		zero := 8
		if asymmetric {
			zero = int(zeros.word(row/8, group) >> inOrder[row%8] & 15)
		}
		return scaleOf(scales.values[row*scales.cols+group], zero)
	}
	return m.tensor(base+".weight", q.data), nil
}

// maxScale limits the magnitude of FP8's scales, which must be smaller.
const maxScale = 256

// readFP8 reads a matrix of E4M3. It has one scale, or one for each output, or one for each block of outputs and
// inputs.
func (s *scheme) readFP8(t *Tensors, base string) (*Tensor, error) {
	l := t.others[base+".weight"]
	if len(l.Shape) != 2 || l.Shape[0] == 0 || l.Shape[0] > 1<<31 || l.Shape[1] > 1<<31 ||
		l.Shape[0]*l.Shape[1] != uint64(len(l.data)) {
		return nil, damaged("it is %s", t.DescribeOther(base+".weight"))
	}
	name := base + ".weight_scale"
	if len(s.BlockSize) > 0 && s.Method == "fp8" {
		name = base + ".weight_scale_inv"
	}
	scales, err := t.numbers(name)
	if err != nil {
		return nil, err
	}
	m := &quantized{rows: int(l.Shape[0]), cols: int(l.Shape[1]), dtype: FP8}
	m.group = m.cols
	outs := 1 // outputs that share a scale
	switch n := len(scales.values); {
	case len(s.BlockSize) == 2 && s.BlockSize[0] > 0 && s.BlockSize[1] > 0:
		outs, m.group = s.BlockSize[0], s.BlockSize[1]
		if scales.rows != (m.rows+outs-1)/outs || scales.cols != (m.cols+m.group-1)/m.group {
			return nil, damaged("%d × %d scales of blocks of %v for %d × %d weights", scales.rows, scales.cols, s.BlockSize,
				m.rows, m.cols)
		}
	case n == 1:
		outs = m.rows
	case n != m.rows:
		return nil, damaged("%d scales for %d outputs", n, m.rows)
	}
	for _, v := range scales.values {
		if !(math.Abs(float64(v)) < maxScale) {
			return nil, unsupported("a scale of %v; they must be below %d", v, maxScale)
		}
	}
	groups := (m.cols + m.group - 1) / m.group
	m.integers = func(row int, dst []int8) {
		for k, v := range l.data[row*m.cols:][:m.cols] {
			dst[k] = int8(v)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return matrix.Scale{D: scales.values[row/outs*groups+group], Factor: 1}
	}
	return m.tensor(base+".weight", l.data), nil
}

type words struct {
	data       []byte
	rows, cols int
}

func (w *words) word(row, col int) uint32 {
	return binary.LittleEndian.Uint32(w.data[(row*w.cols+col)*4:])
}

// words returns the tensor with this name as a matrix of 32-bit words. ok is false if there is no such tensor.
func (t *Tensors) words(name string) (w words, ok bool, err error) {
	l, ok := t.others[name]
	if !ok {
		return w, false, nil
	}
	if l.DType != "I32" || len(l.Shape) != 2 || l.Shape[0] > 1<<31 || l.Shape[1] > 1<<31 ||
		l.Shape[0]*l.Shape[1]*4 != uint64(len(l.data)) || len(l.data) == 0 {
		return w, false, damaged("tensor %q is %s; a matrix of I32 is expected", name, t.DescribeOther(name))
	}
	return words{l.data, int(l.Shape[0]), int(l.Shape[1])}, true, nil
}

// numbers returns the tensor with this name as a table of float32. A scalar becomes a table with one row and one
// column.
func (t *Tensors) numbers(name string) (*table, error) {
	if v := t.byName[name]; v != nil {
		return &table{v.Vector(), v.Rows, v.Cols}, nil
	}
	if l, ok := t.others[name]; ok && len(l.Shape) == 0 {
		if d, ok := floatTypes[l.DType]; ok {
			v, err := makeTensor(name, d, []uint64{1}, l.data)
			if err != nil {
				return nil, err
			}
			return &table{v.Vector(), 1, 1}, nil
		}
	}
	if description := t.DescribeOther(name); description != "" {
		return nil, damaged("tensor %q is %s; numbers are expected", name, description)
	}
	return nil, damaged("tensor %q is missing", name)
}

type table struct {
	values     []float32
	rows, cols int
}

// A quantized is a matrix that is read from several tensors. integers writes the integers of a row to q. scale returns
// the scale and the zero of a group of a row's columns.
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

// groups4 returns a matrix without its functions, of a type that keeps the groups exactly.
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
	return matrix.Scale{D: d, Factor: 1, Min: d, MinFactor: int8(-zero)}
}
