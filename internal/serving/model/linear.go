package model

import (
	"errors"
	"fmt"
	"sync"

	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
)

// A linear is one or more matrices with the same inputs, whose outputs are concatenated, and a bias.
type linear struct {
	parts []*matrix.Matrix
	out   int
	bias  []float32 // or nil

	deltas []*delta // of each adapter, nil if it does not change the products; there are none if no adapter does
}

func (l *linear) panels() int {
	n := 0
	for _, m := range l.parts {
		n += m.Panels()
	}
	return n
}

func (l *linear) forms() matrix.Form {
	var forms matrix.Form
	for _, m := range l.parts {
		forms |= m.Form()
	}
	return forms
}

// product sets dst to the outputs of the panels [start, end), without the bias. A panel has matrix.Panel outputs. The
// panels of all l.parts are numbered consecutively from 0.
func (l *linear) product(dst []float32, x *matrix.Input, start, end int, s *matrix.Scratch) {
	column := 0
	for _, m := range l.parts {
		if n := m.Panels(); start < n && end > 0 {
			m.Product(dst[column:], l.out, x, max(start, 0), min(end, n), s)
		}
		start, end = start-m.Panels(), end-m.Panels()
		column += m.Out
	}
}

// packedType returns the type of matrix to which the weights of t are packed. A worker of a group may load a part of
// the inputs of t, but inputs is the number of all inputs of t.
func (l *loader) packedType(t *weights.Tensor, inputs int) matrix.Type {
	switch l.rounding {
	case matrix.Rounded:
		if rounds := t.Rounds(); rounds != matrix.F32 {
			return rounds
		}
	case matrix.Shorts:
		if pairsOf(t, inputs) {
			return matrix.W16A16
		}
	}
	return t.Packed()
}

// A transposed is a source whose rows are the columns of some rows of a tensor. It reads the tensor when its first row
// is read.
type transposed struct {
	tensor *weights.Tensor
	rows   span
	once   sync.Once
	values []float32
}

func (t *transposed) Row(i int, dst []float32) {
	cols := t.tensor.Cols
	t.once.Do(func() {
		t.values = make([]float32, t.rows.len()*cols)
		for k := range t.rows.len() {
			t.tensor.Row(t.rows.start+k, t.values[k*cols:])
		}
	})
	for k := range t.rows.len() {
		dst[k] = t.values[k*cols+i]
	}
}

// A paired is a source for the gate and up projections of experts. In the tensor, the rows of the two projections of an
// expert alternate. In the source, an expert has the rows of the gate projection and then those of the up projection.
type paired struct {
	*weights.Tensor
	inter int // rows of an expert's gate
}

func (p paired) row(i int) int {
	k := i % (2 * p.inter)
	return i - k + k%p.inter*2 + k/p.inter
}

func (p paired) Row(i int, dst []float32) { p.Tensor.Row(p.row(i), dst) }

func (p paired) Quantized(i int, q []int8, scales []matrix.Scale) {
	p.Tensor.Quantized(p.row(i), q, scales)
}

// pack packs the rows of a source, in parallel. Each time it has packed weights with a total size of about waveBytes,
// it releases the pages of the source that it has read. Otherwise the pages of the whole source would stay in memory
// beside the packed matrix. If only shapes are needed or the loader has a device, pack does not read the source (see
// inFile).
func (l *loader) pack(src *stack) *matrix.Matrix {
	if l.err != nil {
		return nil
	}
	first, c := src.tensors[0], src.cuts[0]
	m := l.packAs(l.packedType(first, c.width), src)
	l.noteRounding(first, c.width, m)
	return m
}

// packAs is pack for a given type of matrix.
func (l *loader) packAs(kind matrix.Type, src *stack) *matrix.Matrix {
	if l.shapes || l.device != nil {
		return l.inFile(kind, src)
	}
	first, out, inputs := src.tensors[0], src.rows(), src.cuts[0].cols.len()
	m, err := l.weights.New(kind, out, inputs, src.cuts[0].block)
	if err == nil {
		job := &packing{m: m, src: src, errs: make([]error, m.Panels())}
		wave := max(1, waveBytes/(matrix.Panel*inputs*4))
		for job.first = 0; job.first < m.Panels(); job.first += wave {
			n := min(wave, m.Panels()-job.first)
			l.pool.Run(n, job)
			src.release(job.first*matrix.Panel, min((job.first+n)*matrix.Panel, out))
		}
		err = errors.Join(job.errs...)
	}
	if err != nil {
		l.stop(fmt.Errorf("%s: %w", first.Name, err))
	}
	for _, t := range src.tensors {
		t.Release()
	}
	return m
}

// waveBytes is the size of the weights that are packed before pages of their source are released. Each weight counts as
// 4 bytes, whatever its type.
const waveBytes = 32 << 20

type packing struct {
	m     *matrix.Matrix
	src   matrix.Source
	errs  []error
	first int // panel
}

func (p *packing) Do(_, i int) {
	i += p.first
	p.errs[i] = p.m.Pack(p.src, i, i+1)
}

// A shape describes the tensors from which loader.linear loads matrices. The fields rows and cols select the rows and
// columns that it loads. All tensors have the same number of inputs. The number of outputs of tensor i is outputs[i].
type shape struct {
	inputs  int
	outputs []int
	rows    [][]span // of each tensor; nil means all
	cols    span     // inputs; empty means all
	bias    bool
	paired  int  // number of rows of an expert's gate if they alternate with those of the up projection, else 0
	adapts  bool // adapters can change the products
}

// linear loads the matrices of the given tensors. It packs consecutive tensors of the same type as one matrix.
func (l *loader) linear(s shape, tensors ...string) (lin linear) {
	if s.cols.len() == 0 {
		s.cols = span{0, s.inputs}
	}
	var group stack
	for i, name := range tensors {
		t := l.matrix(name, s.outputs[i], s.inputs)
		if l.err != nil {
			return lin
		}
		if len(group.tensors) > 0 && group.tensors[0].DType != t.DType {
			lin.parts, group = append(lin.parts, l.pack(&group)), stack{}
		}
		rows := []span{{0, s.outputs[i]}}
		if s.rows != nil {
			rows = s.rows[i]
		}
		c := &cut{source: t, rows: rows, width: s.inputs, cols: s.cols, block: t.Block()}
		if l.names.transposed {
			c.block = 0
			c.source = &transposed{tensor: t, rows: span{0, t.Rows}}
		}
		if s.paired > 0 {
			c.source = paired{t, s.paired}
		}
		lin.out += count(rows)
		group.cuts, group.tensors = append(group.cuts, c), append(group.tensors, t)
	}
	lin.parts = append(lin.parts, l.pack(&group))
	if s.bias {
		l.biases(&lin, &s, tensors)
	}
	if s.adapts {
		lin.deltas = l.deltas(&s, tensors)
	}
	return lin
}

func (l *loader) biases(lin *linear, s *shape, tensors []string) {
	for i, name := range tensors {
		if l.err != nil {
			return
		}
		t := l.tensor(name + ".bias")
		switch {
		case l.err != nil && i > 0:
			l.err = fmt.Errorf("%w; the file has %q", l.err, l.prefix+tensors[0]+".bias")
			return
		case l.err != nil:
			return
		case t.Rows*t.Cols != s.outputs[i]:
			l.fail("the tensor %q is %d × %d, the configuration says %d", t.Name, t.Rows, t.Cols, s.outputs[i])
			return
		}
		v := t.Vector()
		if s.paired > 0 {
			file, p := v, paired{inter: s.paired}
			v = make([]float32, len(v))
			for i := range v {
				v[i] = file[p.row(i)]
			}
		}
		if s.rows != nil {
			v = pick(v, s.rows[i]...)
		}
		lin.bias = append(lin.bias, v...)
	}
}

// rowParallel loads the second matrix of attention or of an MLP. Each worker has some of the inputs of this matrix.
// Products with it are sums over slices of the inputs. The slices are the same for any number of workers, so that the
// sums have the same bits.
func (l *loader) rowParallel(s shape, tensor string) linear {
	n := l.part.size()
	s.cols = l.part.span(s.inputs)
	lin := l.linear(s, tensor)
	if l.err != nil {
		return lin
	}
	m := lin.parts[0]
	slices := matrix.Slices(s.inputs, m.Unit())
	if slices < n {
		l.fail("the %d inputs of %q cannot be shared out among %d workers: the share of each must be a multiple of %d", s.inputs,
			tensor, n, m.Unit())
	} else if err := m.Slice(slices / n); err != nil {
		l.stop(err)
	}
	l.sliceDeltas(&lin, &s, tensor)
	return lin
}
