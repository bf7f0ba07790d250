package model

import (
	"errors"
	"fmt"

	"llmmemory/internal/model/matrix"
	"llmmemory/internal/model/weights"
)

// A linear is matrices with the same inputs, whose outputs stand one after the
// other, and a bias.
type linear struct {
	parts []*matrix.Matrix
	out   int
	bias  []float32 // nil: none
}

func (l *linear) close() error {
	var err error
	for _, m := range l.parts {
		err = errors.Join(err, m.Close())
	}
	return err
}

func (l *linear) panels() int {
	n := 0
	for _, m := range l.parts {
		n += m.Panels()
	}
	return n
}

// product computes panels from up to to, counted over all parts, without the
// bias.
func (l *linear) product(dst, x []float32, rows, from, to int, s *matrix.Scratch) {
	column := 0
	for _, m := range l.parts {
		if n := m.Panels(); from < n && to > 0 {
			m.Product(dst[column:], l.out, x, rows, max(from, 0), min(to, n), s)
		}
		from, to = from-m.Panels(), to-m.Panels()
		column += m.Out
	}
}

// packedType is how weights of a type are kept, and in blocks of how many.
func packedType(t *weights.Tensor) (kind matrix.Type, block int) {
	switch t.DType {
	case weights.F16:
		return matrix.F16, 0
	case weights.BF16:
		return matrix.BF16, 0
	case weights.Q8_0, weights.Q6_K:
		return matrix.Int8, t.Block()
	case weights.Q4_0, weights.Q4_K:
		return matrix.Int4, t.Block()
	}
	return matrix.F32, 0
}

// A stack is the rows of several tensors, one after the other.
type stack struct{ tensors []*weights.Tensor }

func (s stack) at(i int) (*weights.Tensor, int) {
	for _, t := range s.tensors {
		if i < t.Rows {
			return t, i
		}
		i -= t.Rows
	}
	panic("model: a row beyond the matrix")
}

func (s stack) Row(i int, dst []float32) {
	t, row := s.at(i)
	t.Row(row, dst)
}

func (s stack) Quantized(i int, q []int8, scale, least []float32) {
	t, row := s.at(i)
	t.Quantized(row, q, scale, least)
}

// A turned is the columns of a matrix as rows.
type turned struct {
	values     []float32
	rows, cols int // of the matrix in the file
}

func (t turned) Row(i int, dst []float32) {
	for k := range t.rows {
		dst[k] = t.values[k*t.cols+i]
	}
}

// pack packs a source in parallel.
func (l *loader) pack(kind matrix.Type, out, in, block int, src matrix.Source) (*matrix.Matrix, error) {
	m, err := matrix.New(kind, out, in, block)
	if err != nil {
		return nil, err
	}
	job := &packing{m: m, src: src, errs: make([]error, m.Panels())}
	l.pool.Run(m.Panels(), job)
	if err := errors.Join(job.errs...); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

type packing struct {
	m    *matrix.Matrix
	src  matrix.Source
	errs []error
}

func (p *packing) Do(_, i int) { p.errs[i] = p.m.Pack(p.src, i, i+1) }

// linear loads matrices of in inputs with outs outputs. Those of the same type
// are packed as one.
func (l *loader) linear(in int, outs []int, withBias bool, tensors ...string) (linear, error) {
	var lin linear
	var group stack
	flush := func() error {
		if len(group.tensors) == 0 {
			return nil
		}
		rows := 0
		for _, t := range group.tensors {
			rows += t.Rows
		}
		kind, block := packedType(group.tensors[0])
		m, err := l.pack(kind, rows, in, block, group)
		if err != nil {
			return fmt.Errorf("%s: %w", group.tensors[0].Name, err)
		}
		lin.parts = append(lin.parts, m)
		for _, t := range group.tensors {
			t.Release()
		}
		group.tensors = nil
		return nil
	}
	for i, name := range tensors {
		t, err := l.matrix(name, outs[i], in)
		if err != nil {
			return lin, errors.Join(err, lin.close())
		}
		lin.out += outs[i]
		if l.names.transposed {
			kind, _ := packedType(t)
			m, err := l.pack(kind, outs[i], in, 0, turned{t.Vector(), t.Rows, t.Cols})
			if err != nil {
				return lin, errors.Join(err, lin.close())
			}
			lin.parts = append(lin.parts, m)
			t.Release()
			continue
		}
		if len(group.tensors) > 0 && group.tensors[0].DType != t.DType {
			if err := flush(); err != nil {
				return lin, errors.Join(err, lin.close())
			}
		}
		group.tensors = append(group.tensors, t)
	}
	if err := flush(); err != nil {
		return lin, errors.Join(err, lin.close())
	}
	if withBias {
		return lin, l.biases(&lin, outs, tensors)
	}
	return lin, nil
}

func (l *loader) biases(lin *linear, outs []int, tensors []string) error {
	for i, name := range tensors {
		v, err := l.vector(name+".bias", outs[i])
		if err != nil {
			return errors.Join(err, lin.close())
		}
		lin.bias = append(lin.bias, v...)
	}
	return nil
}
