package weights

import (
	"cmp"
	"encoding/binary"

	"llmmemory/internal/serving/model/matrix"
)

// The bit positions of the 8 integers in a word.
var (
	inOrder   = [8]int{0, 4, 8, 12, 16, 20, 24, 28}
	awqShifts = [8]int{0, 16, 4, 20, 8, 24, 12, 28}
)

// readGPTQ reads weights of 8 inputs per word, and zeros of 8 outputs per word.
func (s *scheme) readGPTQ(t *Tensors, base string) (*Tensor, error) {
	m, q, err := s.readZeros(t, base, inOrder)
	if err != nil {
		return nil, err
	}
	order, ok := t.leftOut[base+".g_idx"]
	if !ok && s.DescAct {
		return nil, damaged("tensor %q is missing", base+".g_idx")
	}
	for k := range m.cols {
		if ok && (len(order.data) != m.cols*4 || binary.LittleEndian.Uint32(order.data[k*4:]) != uint32(k/m.group)) {
			return nil, unsupported("g_idx orders inputs by their size (desc_act), which is not read")
		}
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(k/8, row) >> inOrder[k%8] & 15)
		}
	}
	return m.tensor(base+".weight", q.data), nil
}

// readAWQ reads weights of 8 outputs per word, and zeros of 8 outputs per word.
func (s *scheme) readAWQ(t *Tensors, base string) (*Tensor, error) {
	m, q, err := s.readZeros(t, base, awqShifts)
	if err != nil {
		return nil, err
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(k, row/8) >> awqShifts[row%8] & 15)
		}
	}
	return m.tensor(base+".weight", q.data), nil
}

// readZeros reads the scales and zeros of a matrix of GPTQ or AWQ. q has the words of its weights.
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
		return scaleOf(scales.values[group*scales.cols+row], int(zeros.at(group, row/8)>>shifts[row%8]&15)+offset)
	}
	return m, q, nil
}

// readPacked reads weights of 8 inputs per word, and zeros of 8 outputs per word. Without zeros, all zeros are 8.
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
	if _, ok := t.leftOut[base+".weight_g_idx"]; ok {
		return nil, unsupported("weight_g_idx orders inputs by their size (actorder), which is not read")
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(row, k/8) >> inOrder[k%8] & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		zero := 8
		if asymmetric {
			zero = int(zeros.at(row/8, group) >> inOrder[row%8] & 15)
		}
		return scaleOf(scales.values[row*scales.cols+group], zero)
	}
	return m.tensor(base+".weight", q.data), nil
}
