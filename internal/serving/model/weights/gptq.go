package weights

import (
	"encoding/binary"
	"fmt"

	"llmmemory/internal/serving/model/matrix"
)

// readGPTQ reads weights of 8 inputs per word, and zeros of 8 outputs per word.
func (s *scheme) readGPTQ(t *Tensors, base string) (*Tensor, error) {
	q, zeros, scales, err := t.parts(base)
	if err != nil {
		return nil, err
	}
	m, err := s.groups4(q.cols, q.rows*8, scales, scales.rows, scales.cols)
	if err != nil {
		return nil, err
	}
	if zeros.rows != scales.rows || zeros.cols*8 != m.rows {
		return nil, fmt.Errorf("%w: zeros of %d × %d words", ErrFormat, zeros.rows, zeros.cols)
	}
	order, ok := t.leftOut[base+".g_idx"]
	if !ok && s.DescAct {
		return nil, fmt.Errorf("%w: tensor %q is missing", ErrFormat, base+".g_idx")
	}
	for k := range m.cols {
		if ok && (len(order.data) != m.cols*4 || binary.LittleEndian.Uint32(order.data[k*4:]) != uint32(k/m.group)) {
			return nil, fmt.Errorf("%w: g_idx orders inputs by their size (desc_act), which is not read", ErrUnsupported)
		}
	}
	offset := 1
	if s.CheckpointFormat == "gptq_v2" {
		offset = 0
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(k/8, row) >> (k % 8 * 4) & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return scaleOf(scales.values[group*scales.cols+row], int(zeros.at(group, row/8)>>(row%8*4)&15)+offset)
	}
	return m.tensor(base+".weight", q.data), nil
}

// parts returns the tensors of a matrix of GPTQ or AWQ.
func (t *Tensors) parts(base string) (q, zeros words, scales *table, err error) {
	if q, _, err = t.words(base + ".qweight"); err != nil {
		return q, zeros, nil, err
	}
	zeros, ok, err := t.words(base + ".qzeros")
	if err == nil && !ok {
		err = fmt.Errorf("%w: tensor %q is missing", ErrFormat, base+".qzeros")
	}
	if err != nil {
		return q, zeros, nil, err
	}
	scales, err = t.numbers(base + ".scales")
	return q, zeros, scales, err
}

// awqShifts are the bit positions of the 8 outputs in a word of AWQ.
var awqShifts = [8]int{0, 16, 4, 20, 8, 24, 12, 28}

// readAWQ reads weights of 8 outputs per word, and zeros of 8 outputs per word.
func (s *scheme) readAWQ(t *Tensors, base string) (*Tensor, error) {
	q, zeros, scales, err := t.parts(base)
	if err != nil {
		return nil, err
	}
	m, err := s.groups4(q.cols*8, q.rows, scales, scales.rows, scales.cols)
	if err != nil {
		return nil, err
	}
	if zeros.rows != scales.rows || zeros.cols != q.cols {
		return nil, fmt.Errorf("%w: zeros of %d × %d words", ErrFormat, zeros.rows, zeros.cols)
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(k, row/8) >> awqShifts[row%8] & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return scaleOf(scales.values[group*scales.cols+row], int(zeros.at(group, row/8)>>awqShifts[row%8]&15))
	}
	return m.tensor(base+".weight", q.data), nil
}

// readPacked reads weights of 8 inputs per word, and zeros of 8 outputs per word. Without zeros, all zeros are 8.
func (s *scheme) readPacked(t *Tensors, base string) (*Tensor, error) {
	q, _, err := t.words(base + ".weight_packed")
	if err != nil {
		return nil, err
	}
	scales, err := t.numbers(base + ".weight_scale")
	if err != nil {
		return nil, err
	}
	m, err := s.groups4(q.rows, q.cols*8, scales, scales.cols, scales.rows)
	if err != nil {
		return nil, err
	}
	zeros, asymmetric, err := t.words(base + ".weight_zero_point")
	if err != nil {
		return nil, err
	}
	if asymmetric && (zeros.rows != (m.rows+7)/8 || zeros.cols != scales.cols) {
		return nil, fmt.Errorf("%w: zeros of %d × %d words", ErrFormat, zeros.rows, zeros.cols)
	}
	if _, ok := t.leftOut[base+".weight_g_idx"]; ok {
		return nil, fmt.Errorf("%w: weight_g_idx orders inputs by their size (actorder), which is not read", ErrUnsupported)
	}
	m.integers = func(row int, to []int8) {
		for k := range to {
			to[k] = int8(q.at(row, k/8) >> (k % 8 * 4) & 15)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		zero := 8
		if asymmetric {
			zero = int(zeros.at(row/8, group) >> (row % 8 * 4) & 15)
		}
		return scaleOf(scales.values[row*scales.cols+group], zero)
	}
	return m.tensor(base+".weight", q.data), nil
}
