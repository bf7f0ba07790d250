package model

import "llmmemory/internal/serving/parallel"

// A Group joins the workers of a step, each of which has a part of the model. They call
// the same methods in the same order; a call returns when its result is there. After an error
// the group cannot be used: a worker is lost. Package mpi joins workers of several processes.
type Group interface {
	// AllReduce replaces x, in all workers, by its sum over them: with 4 the
	// sum of the first two plus the sum of the last two, in this order.
	AllReduce(rank int, x []float32) error

	// Gather puts the rows of each worker's part into the columns of dst, of worker 0, that are the
	// worker's. Rows of dst are stride values apart.
	Gather(rank int, dst []float32, stride int, part []float32, columns []Columns) error
}

// Columns are those of a matrix from From up to To.
type Columns struct{ From, To int }

// CopyFrom copies rows of the columns, which stand in part one after the other, to their place in dst.
func (c Columns) CopyFrom(part, dst []float32, stride int) {
	width := c.To - c.From
	for r := 0; r*width < len(part); r++ {
		copy(dst[r*stride+c.From:][:width], part[r*width:])
	}
}

// Workers join workers of this process.
type Workers struct {
	size  int
	share [][]float32
	sum   []float32
	to    []float32
	all   *parallel.Barrier
}

// NewWorkers joins n workers: 1, 2 or 4.
func NewWorkers(n int) *Workers {
	return &Workers{size: n, share: make([][]float32, n), all: parallel.NewBarrier(n)}
}

// AllReduce implements Group. Each worker adds up its share of the values.
func (w *Workers) AllReduce(rank int, x []float32) error {
	w.share[rank] = x
	if rank == 0 {
		w.sum = grow(w.sum, len(x))
	}
	w.all.Wait(rank)
	from, to := len(x)*rank/w.size, len(x)*(rank+1)/w.size
	sum := w.sum[from:to]
	switch s := w.share; w.size {
	case 2:
		a, b := s[0][from:to], s[1][from:to]
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
	case 4:
		a, b, c, d := s[0][from:to], s[1][from:to], s[2][from:to], s[3][from:to]
		for i := range sum {
			sum[i] = (a[i] + b[i]) + (c[i] + d[i])
		}
	}
	w.all.Wait(rank)
	copy(x, w.sum)
	w.all.Wait(rank)
	return nil
}

// Gather implements Group.
func (w *Workers) Gather(rank int, dst []float32, stride int, part []float32, columns []Columns) error {
	if rank == 0 {
		w.to = dst
	}
	w.all.Wait(rank)
	columns[rank].CopyFrom(part, w.to, stride)
	w.all.Wait(rank)
	return nil
}
