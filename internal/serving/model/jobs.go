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
