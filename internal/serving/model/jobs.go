package model

import (
	"math"

	"llmmemory/internal/serving/model/matrix"
)

// A productJob multiplies rows of activations by the matrices of lin. It is a parallel.Task: the pool calls Do several
// times, and each call computes the outputs of some panels.
type productJob struct {
	lin      *linear
	dst      []float32
	x        matrix.Input
	bias     []float32 // or nil
	residual []float32 // if not nil, the result is added to it
	rows     int
	first    int // the panels [first, last) are computed
	last     int
	large    int      // panels of each large task; there is one for each worker
	small    int      // panels of the other tasks
	largest  *largest // if not nil, the outputs are logits, and largest finds the largest logit of each row
	config   *Config
	scratch  []*matrix.Scratch
}

func (r *Runner) multiply(lin *linear, dst, x []float32, rows int) {
	r.product.residual, r.product.bias = nil, lin.bias
	r.multiplyPanels(lin, dst, x, rows, 0, lin.panels())
	if r.adaptation.plan(lin, dst, x) {
		r.adaptation.run(false)
	}
}

// addProduct multiplies rows of x by lin and adds the products and lin's bias to rows of the residual stream. In a
// group, each worker has some of the inputs, and the product is the sum over all workers. If postNorm has weights, the
// sum of product and bias is normalized before it is added. If ResidualScale is not 0, it is then multiplied by this
// scale.
func (r *Runner) addProduct(lin *linear, postNorm *norm, residual, x []float32, rows int) error {
	if r.group == nil && postNorm.weight == nil && r.model.ResidualScale == 0 && !r.adaptation.changes(lin) {
		r.product.residual, r.product.bias = residual, lin.bias
		r.multiplyPanels(lin, r.sums, x, rows, 0, lin.panels())
		return nil
	}
	if err := r.sumProduct(lin, r.sums, x, rows); err != nil {
		return err
	}
	r.each(rows, rowJob{op: opAdd, residual: residual, bias: lin.bias, norm: postNorm})
	return nil
}

// sumProduct sets dst to the products of rows of x and lin, with what adapters add and without lin's bias. In a group,
// they are summed over the workers.
func (r *Runner) sumProduct(lin *linear, dst, x []float32, rows int) error {
	r.product.residual, r.product.bias = nil, nil
	r.multiplyPanels(lin, dst, x, rows, 0, lin.panels())
	if r.group != nil {
		if err := r.group.AllReduce(r.model.part.Rank, dst[:rows*lin.out]); err != nil {
			return err
		}
	}
	if r.adaptation.plan(lin, dst, x) {
		return r.adaptation.run(r.group != nil)
	}
	return nil
}

func (r *Runner) multiplyPanels(lin *linear, dst, x []float32, rows, start, end int) {
	if rows == 0 {
		return
	}
	j := &r.product
	j.lin, j.dst, j.rows, j.first, j.last = lin, dst, rows, start, end
	r.pack(j.x.Set(x, rows, lin.parts[0].In, lin.forms()))
	tasks := j.share(end-start, len(j.scratch))
	if j.largest != nil {
		j.largest.reset(tasks, rows)
	}
	r.pool.Run(tasks, j)
}

// share divides n panels into tasks and returns the number of tasks. First there is a large task for each worker,
// whose weights are contiguous in memory. Then there are small tasks, so that all workers finish at about the same
// time.
func (j *productJob) share(n, workers int) int {
	j.large = n * 5 / 8 / workers
	rest := n - j.large*workers
	j.small = max(1, rest/(4*workers))
	return workers + (rest+j.small-1)/j.small
}

type packJob struct{ product *productJob }

// Do packs some rows; see parallel.Task.
func (j *packJob) Do(_, call int) { j.product.x.Pack(call) }

// pack packs the rows that r.product reads, with the given number of calls of Pack. If there are only one or two
// calls, it makes them itself, because other workers would take longer to wake up.
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
	start, n := j.first+i*j.large, j.large
	if i >= workers {
		start, n = j.first+workers*j.large+(i-workers)*j.small, j.small
	}
	end := min(start+n, j.last)
	if j.largest == nil {
		j.panels(worker, start, end)
		return
	}
	for ; start < end; start += comparedPanels {
		groupEnd := min(start+comparedPanels, end)
		j.panels(worker, start, groupEnd)
		first, last := j.lin.columns(start, groupEnd)
		for r := range j.rows {
			j.config.FinishLogits(j.dst[r*j.lin.out:][first:last])
			j.largest.compare(i, r, j.dst[r*j.lin.out:][first:last], first)
		}
	}
}

func (j *productJob) panels(worker, start, end int) {
	if start == end {
		return
	}
	j.lin.product(j.dst, &j.x, start, end, j.scratch[worker])
	if j.bias == nil && j.residual == nil {
		return
	}
	first, last := j.lin.columns(start, end)
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

// columns returns the range [first, last) of outputs that the panels [start, end) compute.
func (l *linear) columns(start, end int) (first, last int) {
	column := 0
	first = -1
	for _, m := range l.parts {
		n := m.Panels()
		if start < n && end > 0 {
			if first < 0 {
				first = column + max(start, 0)*matrix.Panel
			}
			last = column + min(end*matrix.Panel, m.Out)
		}
		start, end, column = start-n, end-n, column+m.Out
	}
	return first, last
}

type rowOp uint8

const (
	opNorm         rowOp = iota // x to normed
	opSquares                   // sums the squares of queries and keys
	opRotate                    // normalizes queries and keys with QKNorm, and rotates queries, and with RotatedNorm also keys
	opLower                     // normalizes what queries are made from
	opLatent                    // prepares queries and keys of latent attention
	opActivate                  // gateUp to act
	opRoute                     // logits of experts to chosen experts
	opCombine                   // results of experts to sums
	opAdd                       // adds sums, after bias and norm if they are given, to the residual stream
	opLogits                    // scales and caps logits
	opSigmoid                   // multiplies attended by sigmoids of gates
	opPrepareHeads              // decays and factors of heads with a state
	opGate                      // gates and norms of the outputs of heads with a state
)

type rowJob struct {
	r         *Runner
	op        rowOp
	norm      *norm
	residual  []float32
	bias      []float32
	layer     *layer
	positions []int32
	angles    *rotary
	width     int
	rows      int
	chunk     int
}

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
		case opSquares:
			r.squareRow(row)
		case opRotate:
			r.rotateRow(j, row)
		case opLower:
			r.lowerRow(j.layer, row)
		case opLatent:
			r.latentRow(j, row)
		case opActivate:
			r.activateRow(row, j.width)
		case opRoute:
			r.routing.choose(r.model.Experts, j.layer.experts.correction, row)
		case opCombine:
			r.combineRow(j.layer, row)
		case opAdd:
			r.addRow(j, row)
		case opSigmoid:
			r.gateRow(row, j.width)
		case opPrepareHeads:
			r.scan.prepareHeads(row)
		case opGate:
			r.scan.gate(row)
		case opLogits:
			r.model.FinishLogits(r.logits[row*r.model.VocabSize:][:r.model.VocabSize])
		}
	}
}

func (r *Runner) queryAndKey(row int) (query, key []float32) {
	q, kv := r.local.NumHeads*r.model.HeadDim, r.local.NumKVHeads*r.model.HeadDim
	qkv := r.qkv[row*(q+2*kv):][:q+kv]
	return qkv[:q], qkv[q:]
}

func (r *Runner) squareRow(row int) {
	query, key := r.queryAndKey(row)
	for i, x := range [2][]float32{query, key} {
		var sums [4]float32
		n := 4 / r.model.part.size()
		for k := range n {
			sum := 0.0
			for _, v := range x[len(x)/n*k : len(x)/n*(k+1)] {
				sum += float64(v) * float64(v)
			}
			sums[k] = float32(sum)
		}
		r.squares[2*row+i] = (sums[0] + sums[1]) + (sums[2] + sums[3])
	}
}

func (r *Runner) rotateRow(j *rowJob, row int) {
	m := r.model
	query, key := r.queryAndKey(row)
	switch m.QKNorm {
	case HeadNorm:
		m.normHeads(query, j.layer.qNorm)
		m.normHeads(key, j.layer.kNorm)
	case WidthNorm:
		scaleBy(query, j.layer.qNorm, r.squares[2*row], m.NumHeads*m.HeadDim, m.NormEps)
		scaleBy(key, j.layer.kNorm, r.squares[2*row+1], m.NumKVHeads*m.HeadDim, m.NormEps)
	}
	if j.angles == nil {
		if m.Temperature != nil {
			factor := m.Temperature.factor(j.positions[row])
			for i := range query {
				query[i] *= factor
			}
		}
		return
	}
	m.rotate(query, j.positions[row], j.angles.rope, &j.angles.tables)
	if m.QKNorm == RotatedNorm {
		m.rotate(key, j.positions[row], j.angles.rope, &j.angles.tables)
		m.normHeads(query, j.layer.qNorm)
		m.normHeads(key, j.layer.kNorm)
	}
}

// normHeads normalizes each head.
func (m *Model) normHeads(heads, weight []float32) {
	for h := 0; h < len(heads); h += m.HeadDim {
		rmsNorm(heads[h:][:m.HeadDim], heads[h:][:m.HeadDim], weight, m.NormEps)
	}
}

// addRow adds the bias to a row of r.sums, then normalizes and scales the row, then adds it to the residual stream. It
// leaves out the steps that the layer does not have. In a group, every worker does this, with the same operations as a
// worker that computes alone.
func (r *Runner) addRow(j *rowJob, row int) {
	m := r.model
	x, sums := j.residual[row*m.HiddenSize:][:m.HiddenSize], r.sums[row*m.HiddenSize:][:m.HiddenSize]
	for i, b := range j.bias {
		sums[i] += b
	}
	if j.norm.weight != nil {
		m.normalize(sums, sums, j.norm)
	}
	if scale := float32(m.ResidualScale); scale != 0 {
		for i := range sums {
			sums[i] *= scale
		}
	}
	for i, v := range sums {
		x[i] += v
	}
}

func (r *Runner) activateRow(row, width int) {
	a := r.model.Activation
	gateUp := r.gateUp[row*width:][:width]
	switch a {
	case GELU:
		gelu(r.act[row*width:][:width], gateUp)
	case ReLU2:
		relu(r.act[row*width:][:width], gateUp)
		for i, v := range r.act[row*width:][:width] {
			r.act[row*width+i] = v * v
		}
	case ReLU:
		relu(r.act[row*width:][:width], gateUp)
	default:
		n := width / 2
		prepareGate(a, gateUp[:n], gateUp[n:])
		matrix.SiLUMul(r.act[row*n:][:n], gateUp[:n], gateUp[n:])
	}
}

// comparedPanels is the number of panels that a task computes before it looks for the largest logit in them. The
// logits are then still in the second-level cache.
const comparedPanels = 16

// largest finds the largest logit of each row, task by task, while the logits are computed.
type largest struct {
	tasks  []logit // the largest of each task and row
	tokens []int32 // the result for each row
}

type logit struct {
	value float32
	token int32
}

func (l *largest) reset(tasks, rows int) {
	l.tasks, l.tokens = grow(l.tasks, tasks*rows), grow(l.tokens, rows)
	for i := range l.tasks {
		l.tasks[i] = logit{float32(math.Inf(-1)), -1}
	}
}

// compare updates a task's largest logit of a row. logits are those of consecutive tokens; token is the first of these.
func (l *largest) compare(task, row int, logits []float32, token int) {
	i, value := matrix.ArgMax(logits)
	l.tasks[task*len(l.tokens)+row].take(logit{value, int32(token + i)})
}

// take replaces l by other if other is larger or NaN. It keeps l if they are equal, unless l has no token yet.
func (l *logit) take(other logit) {
	if other.value > l.value || l.token < 0 && other.value == l.value || other.value != other.value {
		*l = other
	}
}

// merge sets tokens from the results of the tasks. If several tokens of a row have the largest logit, the row gets the
// first of them. A row whose largest logit is not finite gets token -1.
func (l *largest) merge() {
	rows := len(l.tokens)
	for row := range rows {
		best := logit{float32(math.Inf(-1)), -1}
		for i := row; i < len(l.tasks); i += rows {
			best.take(l.tasks[i])
		}
		l.tokens[row] = best.token
		if best.value-best.value != 0 {
			l.tokens[row] = -1
		}
	}
}
