package model

import (
	"llmmemory/internal/model/matrix"
)

// A productJob multiplies rows by a linear, some panels at a time.
type productJob struct {
	lin      *linear
	dst, x   []float32
	residual []float32 // the result is added to it, too; nil: not
	rows     int
	chunk    int // panels
	scratch  []*matrix.Scratch
}

// multiply sets dst to x times the matrix, plus its bias.
func (r *Runner) multiply(lin *linear, dst, x []float32, rows int, residual []float32) {
	if rows == 0 {
		return
	}
	j := &r.product
	j.lin, j.dst, j.x, j.rows, j.residual = lin, dst, x, rows, residual
	panels := lin.panels()
	j.chunk = max(1, panels/(4*r.pool.Size()))
	r.pool.Run((panels+j.chunk-1)/j.chunk, j)
}

// Do multiplies a chunk of panels.
func (j *productJob) Do(worker, i int) {
	from := i * j.chunk
	j.lin.product(j.dst, j.x, j.rows, from, from+j.chunk, j.scratch[worker])
	if j.lin.bias == nil && j.residual == nil {
		return
	}
	first, last := j.lin.columns(from, from+j.chunk)
	for r := range j.rows {
		out := j.dst[r*j.lin.out:][first:last]
		if j.lin.bias != nil {
			for c, b := range j.lin.bias[first:last] {
				out[c] += b
			}
		}
		if j.residual != nil {
			sum := j.residual[r*j.lin.out:][first:last]
			for c, v := range out {
				sum[c] += v
			}
		}
	}
}

// columns are the outputs of panels from up to to.
func (l *linear) columns(from, to int) (first, last int) {
	column := 0
	first = -1
	for _, m := range l.parts {
		n := m.Panels()
		if from < n && to > 0 {
			if first < 0 {
				first = column + max(from, 0)*matrix.Panel
			}
			last = column + min(to*matrix.Panel, m.Out)
		}
		from, to, column = from-n, to-n, column+m.Out
	}
	return first, last
}

type rowOp uint8

const (
	opNorm     rowOp = iota // x to normed
	opRotate                // queries; with QKNorm, queries and keys are normalized before
	opActivate              // up to act
)

// A rowJob does something to each row by itself.
type rowJob struct {
	r         *Runner
	op        rowOp
	norm      *norm
	layer     *layer
	positions []int32
	chunk     int
}

// each does a job for n rows.
func (r *Runner) each(n int, j rowJob) {
	r.rows = j
	r.rows.r = r
	if r.rows.chunk = (n + r.pool.Size() - 1) / r.pool.Size(); n < 4 {
		r.rows.chunk = n // waking others would take longer
	}
	r.pool.Run((n+r.rows.chunk-1)/r.rows.chunk, &r.rows)
}

// Do does a chunk of rows.
func (j *rowJob) Do(_, i int) {
	r := j.r
	n := len(r.x) / r.model.HiddenSize
	for row := i * j.chunk; row < min((i+1)*j.chunk, n); row++ {
		switch j.op {
		case opNorm:
			hidden := r.model.HiddenSize
			r.model.normalize(r.normed[row*hidden:][:hidden], r.x[row*hidden:][:hidden], j.norm)
		case opRotate:
			r.rotateRow(j, row)
		case opActivate:
			r.activateRow(row)
		}
	}
}

func (r *Runner) rotateRow(j *rowJob, row int) {
	m := r.model
	query, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	qkv := r.qkv[row*(query+2*kv):]
	if m.QKNorm {
		for h := 0; h < query; h += m.HeadDim {
			rmsNorm(qkv[h:][:m.HeadDim], qkv[h:][:m.HeadDim], j.layer.qNorm, m.NormEps)
		}
		for h := query; h < query+kv; h += m.HeadDim {
			rmsNorm(qkv[h:][:m.HeadDim], qkv[h:][:m.HeadDim], j.layer.kNorm, m.NormEps)
		}
	}
	if m.Rope != nil {
		m.rotate(qkv[:query], j.positions[row])
	}
}

func (r *Runner) activateRow(row int) {
	m := r.model
	n, width := m.IntermediateSize, m.layers[0].up.out
	in, out := r.up[row*width:][:width], r.act[row*n:][:n]
	switch m.Activation {
	case SiLU:
		matrix.SiLUMul(out, in[:n], in[n:])
	case GELU:
		gelu(out, in)
	case ReLU:
		relu(out, in)
	}
}
