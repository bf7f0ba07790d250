package model

import "llmmemory/internal/serving/parallel"

// A Group connects workers that each have a part of the model and call the same methods in the same order. A call
// returns when its result is complete. After an error the group cannot be used. Package mpi connects processes.
type Group interface {
	// AllReduce replaces x in all workers by the sum over the workers. With 4 workers, it adds the sum of the first two
	// and the sum of the last two, in this order.
	AllReduce(rank int, x []float32) error

	// Gather copies the rows of each worker's part into that worker's columns of dst in worker 0. Rows of dst are
	// stride values apart.
	Gather(rank int, dst []float32, stride int, part []float32, columns []Columns) error
}

// Columns are columns From to To-1 of a matrix.
type Columns struct{ From, To int }

// CopyFrom copies rows of the columns, which are contiguous in part, to dst.
func (c Columns) CopyFrom(part, dst []float32, stride int) {
	width := c.To - c.From
	for r := 0; r*width < len(part); r++ {
		copy(dst[r*stride+c.From:][:width], part[r*width:])
	}
}

// Workers is a Group in one process.
type Workers struct {
	size  int
	share [][]float32
	sum   []float32
	to    []float32
	all   *parallel.Barrier
}

// NewWorkers returns a Group of n workers: 1, 2 or 4.
func NewWorkers(n int) *Workers {
	return &Workers{size: n, share: make([][]float32, n), all: parallel.NewBarrier(n)}
}

// AllReduce implements Group. Each worker sums its share of the values.
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
