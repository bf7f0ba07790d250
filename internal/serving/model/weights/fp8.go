package weights

import (
	"math"

	"llmmemory/internal/serving/model/matrix"
)

// largestScale is the bound that the magnitude of an FP8 scale must be below.
const largestScale = 256

// readFP8 reads 8-bit numbers with one scale for all, for each output, or for each block of outputs and inputs.
func (s *scheme) readFP8(t *Tensors, base string) (*Tensor, error) {
	l := t.leftOut[base+".weight"]
	if len(l.Shape) != 2 || l.Shape[0] == 0 || l.Shape[0] > 1<<31 || l.Shape[1] > 1<<31 ||
		l.Shape[0]*l.Shape[1] != uint64(len(l.data)) {
		return nil, damaged("it is %s", t.LeftOut(base+".weight"))
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
		if !(math.Abs(float64(v)) < largestScale) {
			return nil, unsupported("a scale of %v; they must be below %d", v, largestScale)
		}
	}
	groups := (m.cols + m.group - 1) / m.group
	m.integers = func(row int, to []int8) {
		for k, v := range l.data[row*m.cols:][:m.cols] {
			to[k] = int8(v)
		}
	}
	m.scale = func(row, group int) matrix.Scale {
		return matrix.Scale{D: scales.values[row/outs*groups+group], By: 1}
	}
	return m.tensor(base+".weight", l.data), nil
}
