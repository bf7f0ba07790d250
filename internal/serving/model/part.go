package model

import (
	"sync"

	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// A Part is one worker's share of a model, as in vLLM's tensor parallelism. It has some of the heads. In attention and
// in an MLP, the inputs of a second matrix are computed from the outputs of a first matrix. The part has the weights
// for some outputs of the first matrix. Of the second matrix, it has the weights for the inputs that are computed from
// these outputs. Each part has all embeddings.
type Part struct {
	Rank int // from 0
	Size int // number of workers: 1, 2 or 4; 0 means 1
}

func (p Part) size() int { return max(1, p.Size) }

func (p Part) span(n int) span {
	return span{n / p.size() * p.Rank, n / p.size() * (p.Rank + 1)}
}

// Check returns an error if p is not a valid part, or if the model's key heads cannot be divided into so many parts.
// Loading checks the other sizes.
func (p Part) Check(c *Config) error {
	n := p.size()
	if n != 1 && n != 2 && n != 4 || p.Rank < 0 || p.Rank >= n {
		return refused("worker %d of %d; 1, 2 and 4 workers are possible", p.Rank, n)
	}
	if c.Mixed != nil && n > 1 {
		return refused("layers with different heads cannot be shared out among workers; 1 is possible")
	}
	if c.Latent != nil && n > 1 {
		return refused("latent attention cannot be shared out among workers; 1 is possible")
	}
	if c.Recurrence != nil && n > 1 {
		return refused("layers with states cannot be shared out among %d workers; use one", n)
	}
	if c.NumKVHeads%n != 0 {
		return refused("%d key heads cannot be shared out among %d workers", c.NumKVHeads, n)
	}
	return nil
}

func (c *Config) local(p Part) Config {
	l := *c
	l.NumHeads, l.NumKVHeads, l.IntermediateSize = c.NumHeads/p.size(), c.NumKVHeads/p.size(), c.IntermediateSize/p.size()
	return l
}

type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// qkvRows returns which rows of a matrix belong to the part. The whole matrix has rows for queries, then rows for keys,
// then rows for values. query is the number of rows for queries. kv is the number of rows for keys; there are as many
// for values.
func (p Part) qkvRows(query, kv int) []span {
	q, k := p.span(query), p.span(kv)
	return []span{q, {query + k.start, query + k.end}, {query + kv + k.start, query + kv + k.end}}
}

func count(spans []span) int {
	n := 0
	for _, s := range spans {
		n += s.len()
	}
	return n
}

// pick returns the concatenated values in spans, or nil if v is nil.
func pick(v []float32, spans ...span) (picked []float32) {
	if v == nil {
		return nil
	}
	for _, s := range spans {
		picked = append(picked, v[s.start:s.end]...)
	}
	return picked
}

// A cut is some columns of some rows of a source.
type cut struct {
	source matrix.Source
	rows   []span
	width  int // of a row of the source
	cols   span
	block  int // columns that share a scale, or 0
}

func (c *cut) row(i int) int {
	s := 0
	for i >= c.rows[s].len() {
		i -= c.rows[s].len()
		s++
	}
	return c.rows[s].start + i
}

type rowBuffer struct {
	values []float32
	q      []int8
	scales []matrix.Scale
}

var rowBuffers = sync.Pool{New: func() any { return &rowBuffer{} }}

func (c *cut) Row(i int, dst []float32) {
	if c.cols.len() == c.width {
		c.source.Row(c.row(i), dst)
		return
	}
	b := rowBuffers.Get().(*rowBuffer)
	b.values = grow(b.values, c.width)
	c.source.Row(c.row(i), b.values)
	copy(dst, b.values[c.cols.start:c.cols.end])
	rowBuffers.Put(b)
}

func (c *cut) Quantized(i int, q []int8, scales []matrix.Scale) {
	source := c.source.(matrix.Quantized)
	if c.cols.len() == c.width {
		source.Quantized(c.row(i), q, scales)
		return
	}
	b, blocks := rowBuffers.Get().(*rowBuffer), c.width/c.block
	b.q, b.scales = grow(b.q, c.width), grow(b.scales, blocks)
	source.Quantized(c.row(i), b.q, b.scales)
	copy(q, b.q[c.cols.start:c.cols.end])
	copy(scales, b.scales[c.cols.start/c.block:c.cols.end/c.block])
	rowBuffers.Put(b)
}

// A stack is the concatenation of the rows of several cuts.
type stack struct {
	cuts    []*cut
	tensors []*weights.Tensor
}

func (s *stack) rows() int {
	n := 0
	for _, c := range s.cuts {
		n += count(c.rows)
	}
	return n
}

// find returns the cut that has row i of the stack, and the row's index in the cut.
func (s *stack) find(i int) (*cut, int) {
	c := 0
	for n := count(s.cuts[c].rows); i >= n; n = count(s.cuts[c].rows) {
		i -= n
		c++
	}
	return s.cuts[c], i
}

// release tells the system that the rows [start, end) of the stack need no memory in the files any more. It leaves out
// rows of which the stack has only some columns, because another part will read the rest, and rows that do not come
// from a tensor.
func (s *stack) release(start, end int) {
	for i := start; i < end; i++ {
		c, row := s.find(i)
		t, ok := c.source.(*weights.Tensor)
		if !ok || c.cols.len() < c.width {
			continue // another part will read the rest
		}
		// All rows that are consecutive in the tensor.
		first, n := c.row(row), 1
		for i+n < end && row+n < count(c.rows) && c.row(row+n) == first+n {
			n++
		}
		t.ReleaseRows(first, first+n)
		i += n - 1
	}
}

func (s *stack) Row(i int, dst []float32) {
	c, row := s.find(i)
	c.Row(row, dst)
}

func (s *stack) Quantized(i int, q []int8, scales []matrix.Scale) {
	c, row := s.find(i)
	c.Quantized(row, q, scales)
}

// A Group connects workers that each have a part of the model. All workers must call the same methods in the same
// order. A call returns when its result is complete. After an error, the group must not be used any more. Package
// mpi implements a Group of processes.
type Group interface {
	// AllReduce replaces x in all workers by the sum over the workers. With 4 workers, the sum is (x0 + x1) + (x2 +
	// x3), where xi is the x of rank i.
	AllReduce(rank int, x []float32) error

	// Gather copies the part of each worker to dst in the worker of rank 0. The part of rank i has those columns of
	// every row that columns[i] describes. Rows of dst are stride values apart.
	Gather(rank int, dst []float32, stride int, part []float32, columns []Columns) error
}

// Columns are the columns [Start, End) of a matrix.
type Columns struct{ Start, End int }

// CopyFrom copies part to dst. part has only these columns of some rows, without gaps; rows of dst are stride values
// apart.
func (c Columns) CopyFrom(part, dst []float32, stride int) {
	width := c.End - c.Start
	for r := 0; r*width < len(part); r++ {
		copy(dst[r*stride+c.Start:][:width], part[r*width:])
	}
}

// Workers is a Group in one process.
type Workers struct {
	size    int
	share   [][]float32
	sum     []float32
	dst     []float32
	barrier *parallel.Barrier
}

// NewWorkers returns a Group of n workers: 1, 2 or 4.
func NewWorkers(n int) *Workers {
	return &Workers{size: n, share: make([][]float32, n), barrier: parallel.NewBarrier(n)}
}

// AllReduce implements Group, for 2 or 4 workers. Each worker sums its share of the values.
func (w *Workers) AllReduce(rank int, x []float32) error {
	w.share[rank] = x
	if rank == 0 {
		w.sum = grow(w.sum, len(x))
	}
	w.barrier.Wait(rank)
	start, end := len(x)*rank/w.size, len(x)*(rank+1)/w.size
	sum := w.sum[start:end]
	switch s := w.share; w.size {
	case 2:
		a, b := s[0][start:end], s[1][start:end]
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
	case 4:
		a, b, c, d := s[0][start:end], s[1][start:end], s[2][start:end], s[3][start:end]
		for i := range sum {
			sum[i] = (a[i] + b[i]) + (c[i] + d[i])
		}
	}
	w.barrier.Wait(rank)
	copy(x, w.sum)
	w.barrier.Wait(rank)
	return nil
}

// Gather implements Group.
func (w *Workers) Gather(rank int, dst []float32, stride int, part []float32, columns []Columns) error {
	if rank == 0 {
		w.dst = dst
	}
	w.barrier.Wait(rank)
	columns[rank].CopyFrom(part, w.dst, stride)
	w.barrier.Wait(rank)
	return nil
}
