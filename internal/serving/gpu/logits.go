package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
)

// results are the logits of some rows, and the index and value of the largest logit of each row. device has all of
// them, and host has those that were copied.
type results struct {
	device     *cuda.Memory
	host       *cuda.Pinned
	rows, size int // the largest number of rows, and the logits of a row
}

func (r *results) allocate(c *cuda.Context, rows, size int) (err error) {
	r.rows, r.size = rows, size
	if r.device, err = c.Alloc(4 * rows * (size + 2)); err != nil {
		return err
	}
	r.host, err = c.AllocPinned(r.device.Size())
	return err
}

// indices returns the offset of the indices; the values follow.
func (r *results) indices() int { return 4 * r.rows * r.size }

func (r *results) logits(row int) cuda.Pointer {
	return r.device.Pointer() + cuda.Pointer(4*row*r.size)
}

// download copies the results of some rows to the host, without the logits that are not needed.
func (r *results) download(s *cuda.Stream, rows int, unneeded []bool) error {
	at := r.indices()
	err := s.Download(r.host, at, r.device, at, 8*r.rows)
	for first := 0; first < rows && err == nil; {
		end := first
		for end < rows && !unneeded[end] {
			end++
		}
		at, size := 4*first*r.size, 4*(end-first)*r.size
		err = s.Download(r.host, at, r.device, at, size)
		first = end + 1
	}
	return err
}

func (r *results) close() error { return errors.Join(r.device.Close(), r.host.Close()) }

// numbers returns n numbers of 4 bytes each in pinned memory. The first is at the given offset.
func numbers[T int32 | float32](p *cuda.Pinned, at, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&p.Bytes()[at])), n)
}

// ComputeLogits implements engine.ModelRunner. It waits for the end of the step.
func (r *Runner) ComputeLogits(b *model.Batch, from, to int) ([]float32, error) {
	n, out := to-from, &r.results
	r.largest = r.largest[:0]
	if n > out.rows {
		return nil, fmt.Errorf("%w: %d logits, for at most %d", model.ErrBatch, n, out.rows)
	}
	unneeded := make([]bool, n)
	if !r.ChangesLogits() && b.LargestOnly != nil {
		unneeded = b.LargestOnly[from:to]
	}
	err := r.device.context.Do(func() error {
		if r.err = nil; n > 0 {
			r.launchLogits(from, n)
		}
		if n > 0 && r.err == nil {
			r.err = out.download(r.stream, n, unneeded)
		}
		if err := r.stream.Synchronize(); r.err == nil {
			r.err = err
		}
		return r.err
	})
	if err != nil || n == 0 {
		return nil, err
	}
	indices, values := numbers[int32](out.host, out.indices(), n), numbers[float32](out.host, out.indices()+4*out.rows, n)
	for i, v := range values {
		if v-v != 0 { // not finite
			indices[i] = -1
		}
	}
	r.largest = append(r.largest, indices...)
	logits := numbers[float32](out.host, 0, n*r.VocabSize)
	if r.ChangesLogits() {
		r.FinishLogits(logits)
	}
	return logits, nil
}

// launchLogits computes n logits, from logit first of the batch on.
func (r *Runner) launchLogits(first, n int) {
	r.launch(kernels.Embedding{Type: r.kind, Out: r.picked, Table: r.x, Tokens: r.inputs.logits + cuda.Pointer(4*first), Rows: n, N: r.HiddenSize,
		Scale: 1})
	r.normalize(r.Model.norm, r.picked, r.picked, 0, n)
	for at := 0; at < n; at += kernels.MostFloat32Rows {
		in := r.picked + cuda.Pointer(at*r.HiddenSize*r.kind.Bytes())
		r.multiplyTo(&r.head, r.results.logits(at), in, min(kernels.MostFloat32Rows, n-at), true)
	}
	at := r.results.device.Pointer() + cuda.Pointer(r.results.indices())
	r.launch(kernels.ArgMax{Indices: at, Values: at + cuda.Pointer(4*r.results.rows), Logits: r.results.logits(0), Rows: n, N: r.VocabSize})
}

// Largest implements engine.ModelRunner.
func (r *Runner) Largest() []int32 {
	if r.ChangesLogits() { // rounding can make others equal to the largest
		return nil
	}
	return r.largest
}
