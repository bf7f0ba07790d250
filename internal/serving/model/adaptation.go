package model

import (
	"slices"

	"llmmemory/internal/serving/model/matrix"
)

// An adaptation adds to products what the adapters of their rows add (LoRA): scale · B A x. A task computes some rows
// with the same adapter. What is added to a row does not depend on other rows, because a product does not. An
// adaptation is a parallel.Task.
type adaptation struct {
	runner *Runner
	ofRow  []int32 // the adapter of each row of the batch, or 0; empty if no row has one

	// The rows that choose has chosen, numbered from 0, in the order of their adapters. Rows without an adapter are left
	// out.
	rows   []int32
	groups []adapterRows
	starts []int

	// A product.
	lin     *linear
	dst, x  []float32
	tasks   []adaptTask
	lowered []float32 // A x of all tasks
	phase   phase
	worker  []adaptMemory
}

// adapterRows are the rows with an adapter, which is numbered from 0.
type adapterRows struct {
	adapter int
	rows    []int32
}

// An adaptTask is some rows with the same adapter.
type adaptTask struct {
	delta   *delta
	rows    []int32
	lowered []float32 // A x of each row
}

// A phase says what tasks compute. If each worker of a group has some of the inputs, A x is summed over the workers
// before the second phase.
type phase uint8

const (
	bothPhases phase = iota
	lowerPhase       // A x
	raisePhase       // scale · B A x, from A x
)

// adaptMemory is the memory of a worker.
type adaptMemory struct {
	input           matrix.Input
	inputs, outputs []float32
}

// adaptRows is the largest number of rows of a task. The rows of an adapter are divided among the workers, but a task
// has at least fewestRows of them, except the last task.
const (
	adaptRows  = 64
	fewestRows = 4
)

func (a *adaptation) init(r *Runner) {
	a.runner, a.worker = r, make([]adaptMemory, r.pool.Size())
}

// begin reads the adapters of a batch.
func (a *adaptation) begin(b *Batch) error {
	a.ofRow = a.ofRow[:0]
	some := false
	for i, adapter := range b.Adapters {
		if adapter < 0 || int(adapter) > a.runner.model.adapters {
			return badBatch("sequence %d has the adapter %d of %d", i, adapter, a.runner.model.adapters)
		}
		some = some || adapter > 0
	}
	for i := 0; some && i < len(b.Adapters); i++ {
		for range b.QueryStart[i+1] - b.QueryStart[i] {
			a.ofRow = append(a.ofRow, b.Adapters[i])
		}
	}
	return nil
}

// choose chooses n rows of the batch, from the row start on, for the following products.
func (a *adaptation) choose(start, n int) {
	a.groups = a.groups[:0]
	if len(a.ofRow) == 0 {
		return
	}
	ofRow, adapters := a.ofRow[start:start+n], a.runner.model.adapters
	a.rows, a.starts = grow(a.rows, n), grow(a.starts, adapters+2)
	clear(a.starts)
	for _, adapter := range ofRow {
		if adapter > 0 {
			a.starts[adapter+1]++
		}
	}
	for i := range adapters {
		if first, rows := a.starts[i+1], a.starts[i+2]; rows > 0 {
			a.groups = append(a.groups, adapterRows{i, a.rows[first : first+rows]})
		}
		a.starts[i+2] += a.starts[i+1]
	}
	for row, adapter := range ofRow {
		if adapter > 0 {
			a.rows[a.starts[adapter]] = int32(row)
			a.starts[adapter]++
		}
	}
}

// changes reports whether an adapter of the chosen rows changes the products with lin.
func (a *adaptation) changes(lin *linear) bool {
	return lin.deltas != nil && slices.ContainsFunc(a.groups, func(g adapterRows) bool { return lin.deltas[g.adapter] != nil })
}

// plan makes the tasks for the products dst of the chosen rows x and lin. It returns false if there are none.
func (a *adaptation) plan(lin *linear, dst, x []float32) bool {
	if !a.changes(lin) {
		return false
	}
	a.lin, a.dst, a.x, a.tasks = lin, dst, x, a.tasks[:0]
	size := 0
	for _, g := range a.groups {
		if d := lin.deltas[g.adapter]; d != nil {
			size += len(g.rows) * d.a.Out
		}
	}
	a.lowered = grow(a.lowered, size)
	lowered, workers := a.lowered, a.runner.pool.Size()
	for _, g := range a.groups {
		d := lin.deltas[g.adapter]
		if d == nil {
			continue
		}
		size := min(adaptRows, max(fewestRows, (len(g.rows)+workers-1)/workers))
		for rows := range slices.Chunk(g.rows, size) {
			n := len(rows) * d.a.Out
			a.tasks = append(a.tasks, adaptTask{d, rows, lowered[:n]})
			lowered = lowered[n:]
		}
	}
	return true
}

// run does the planned tasks. If x has only this worker's share of the inputs, reduce must be true.
func (a *adaptation) run(reduce bool) error {
	r := a.runner
	a.phase = bothPhases
	if reduce {
		a.phase = lowerPhase
		r.pool.Run(len(a.tasks), a)
		if err := r.group.AllReduce(r.model.part.Rank, a.lowered); err != nil {
			return err
		}
		a.phase = raisePhase
	}
	r.pool.Run(len(a.tasks), a)
	return nil
}

// Do does a task; see parallel.Task.
func (a *adaptation) Do(worker, i int) {
	if a.phase != raisePhase {
		a.lower(&a.tasks[i], worker)
	}
	if a.phase != lowerPhase {
		a.raise(&a.tasks[i], worker)
	}
}

// lower computes A x.
func (a *adaptation) lower(t *adaptTask, worker int) {
	m, first, n, inputs := &a.worker[worker], int(t.rows[0]), len(t.rows), t.delta.a.In
	x := a.x[first*inputs:]
	if int(t.rows[n-1])-first != n-1 { // rows with another adapter or none are between them
		m.inputs = grow(m.inputs, n*inputs)
		x = m.inputs
		for i, row := range t.rows {
			copy(x[i*inputs:][:inputs], a.x[int(row)*inputs:])
		}
	}
	a.multiply(t.delta.a, t.lowered, x, n, worker)
}

// raise adds scale · B A x to the rows of the product.
func (a *adaptation) raise(t *adaptTask, worker int) {
	m, d, n, ranks := &a.worker[worker], t.delta, len(t.rows), t.delta.a.Out
	for k := range d.modules {
		module := &d.modules[k]
		rank, outputs := module.b.In, module.b.Out
		m.inputs, m.outputs = grow(m.inputs, n*rank), grow(m.outputs, n*outputs)
		scales := d.scales[module.first:][:rank]
		for i := range n {
			for j, v := range t.lowered[i*ranks+module.first:][:rank] {
				m.inputs[i*rank+j] = v * scales[j]
			}
		}
		a.multiply(module.b, m.outputs, m.inputs, n, worker)
		for i, row := range t.rows {
			dst := a.dst[int(row)*a.lin.out+module.column:][:outputs]
			for c, v := range m.outputs[i*outputs:][:outputs] {
				dst[c] += v
			}
		}
	}
}

// multiply sets dst to the products of n rows of x and a matrix.
func (a *adaptation) multiply(m *matrix.Matrix, dst, x []float32, n, worker int) {
	input := &a.worker[worker].input
	for call := range input.Set(x, n, m.In, m.Form()) {
		input.Pack(call)
	}
	m.Product(dst, m.Out, input, 0, m.Panels(), a.runner.scratch[worker])
}
