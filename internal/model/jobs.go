package model

import (
	"llmmemory/internal/model/matrix"
)

// A productJob multiplies rows by a linear, some panels at a time.
type productJob struct {
	lin      *linear
	dst      []float32
	x        matrix.Input
	bias     []float32 // nil: none
	residual []float32 // the result is added to it, too; nil: not
	rows     int
	first    int // panels
	last     int
	large    int      // panels of the first task of each worker
	small    int      // panels of the others
	largest  *largest // of the outputs of each row; nil: not looked for
	scratch  []*matrix.Scratch
}

// multiply sets dst to x times the matrix, plus its bias.
func (r *Runner) multiply(lin *linear, dst, x []float32, rows int) {
	r.product.residual, r.product.bias = nil, lin.bias
	r.multiplyPanels(lin, dst, x, rows, 0, lin.panels())
}

// addProduct adds the product of x and a matrix, plus its bias, to rows of the residual stream.
// A worker of a group has a part of the inputs, and the product is the sum over all.
func (r *Runner) addProduct(lin *linear, residual, x []float32, rows int) {
	if r.group == nil {
		r.product.residual, r.product.bias = residual, lin.bias
		r.multiplyPanels(lin, r.sums, x, rows, 0, lin.panels())
		return
	}
	r.product.residual, r.product.bias = nil, nil
	r.multiplyPanels(lin, r.sums, x, rows, 0, lin.panels())
	r.group.AllReduce(r.model.part.Rank, r.sums[:rows*lin.out])
	r.each(rows, rowJob{op: opAdd, residual: residual, bias: lin.bias})
}

// multiplyPanels computes the outputs of panels from up to to.
func (r *Runner) multiplyPanels(lin *linear, dst, x []float32, rows, from, to int) {
	if rows == 0 {
		return
	}
	j := &r.product
	j.lin, j.dst, j.rows, j.first, j.last = lin, dst, rows, from, to
	r.pack(j.x.Set(x, rows, lin.parts[0].In, lin.forms()))
	tasks := j.share(to-from, len(j.scratch))
	if j.largest != nil {
		j.largest.reset(tasks, rows)
	}
	r.pool.Run(tasks, j)
}

// share cuts n panels into tasks and returns their number. Each worker first has a large one, whose
// weights it reads as one stretch of memory, and then small ones, so that all end together.
func (j *productJob) share(n, workers int) int {
	j.large = n * 5 / 8 / workers
	rest := n - j.large*workers
	j.small = max(1, rest/(4*workers))
	return workers + (rest+j.small-1)/j.small
}

// A packJob packs the rows of a product.
type packJob struct{ product *productJob }

// Do packs some of them.
func (j *packJob) Do(_, call int) { j.product.x.Pack(call) }

// pack packs the product's rows in some calls. One worker packs a few rows before others would wake up.
func (r *Runner) pack(calls int) {
	if calls > 2 {
		r.packing.product = &r.product
		r.pool.Run(calls, &r.packing)
		return
	}
	for call := range calls {
		r.product.x.Pack(call)
	}
}

// Do multiplies some panels; see parallel.Task.
func (j *productJob) Do(worker, i int) {
	workers := len(j.scratch)
	from, n := j.first+i*j.large, j.large
	if i >= workers {
		from, n = j.first+workers*j.large+(i-workers)*j.small, j.small
	}
	to := min(from+n, j.last)
	if j.largest == nil {
		j.panels(worker, from, to)
		return
	}
	for ; from < to; from += comparedPanels {
		end := min(from+comparedPanels, to)
		j.panels(worker, from, end)
		first, last := j.lin.columns(from, end)
		for r := range j.rows {
			j.largest.compare(i, r, j.dst[r*j.lin.out:][first:last], first)
		}
	}
}

// panels multiplies panels from up to to.
func (j *productJob) panels(worker, from, to int) {
	if from == to {
		return
	}
	j.lin.product(j.dst, &j.x, from, to, j.scratch[worker])
	if j.bias == nil && j.residual == nil {
		return
	}
	first, last := j.lin.columns(from, to)
	for r := range j.rows {
		out := j.dst[r*j.lin.out:][first:last]
		if j.bias != nil {
			for c, b := range j.bias[first:last] {
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
	opAdd                   // sums, plus a bias, to the residual stream
)

// A rowJob does something to each row by itself.
type rowJob struct {
	r         *Runner
	op        rowOp
	norm      *norm
	residual  []float32
	bias      []float32
	layer     *layer
	positions []int32
	rows      int
	chunk     int
}

// each does a job for n rows.
func (r *Runner) each(n int, j rowJob) {
	r.rows = j
	r.rows.r, r.rows.rows = r, n
	if r.rows.chunk = (n + r.pool.Size() - 1) / r.pool.Size(); n < 4 {
		r.rows.chunk = n // waking others would take longer
	}
	r.pool.Run((n+r.rows.chunk-1)/r.rows.chunk, &r.rows)
}

// Do does a chunk of rows.
func (j *rowJob) Do(_, i int) {
	r := j.r
	for row := i * j.chunk; row < min((i+1)*j.chunk, j.rows); row++ {
		switch j.op {
		case opNorm:
			hidden := r.model.HiddenSize
			r.model.normalize(r.normed[row*hidden:][:hidden], r.x[row*hidden:][:hidden], j.norm)
		case opRotate:
			r.rotateRow(j, row)
		case opActivate:
			r.activateRow(row)
		case opAdd:
			r.addRow(j.residual, row, j.bias)
		}
	}
}

func (r *Runner) rotateRow(j *rowJob, row int) {
	m := r.model
	query, kv := r.local.NumHeads*m.HeadDim, r.local.NumKVHeads*m.HeadDim
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
		m.rotate(qkv[:query], j.positions[row], &r.angles)
	}
}

// addRow adds a product to the residual stream, in the order in which one worker alone does.
func (r *Runner) addRow(residual []float32, row int, bias []float32) {
	hidden := r.model.HiddenSize
	x, sums := residual[row*hidden:][:hidden], r.sums[row*hidden:][:hidden]
	if bias == nil {
		for i, v := range sums {
			x[i] += v
		}
		return
	}
	for i, v := range sums {
		x[i] += v + bias[i]
	}
}

func (r *Runner) activateRow(row int) {
	m := r.model
	n, width := r.local.IntermediateSize, m.layers[0].up.out
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
