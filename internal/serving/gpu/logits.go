package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
)

// results are the logits of some rows on the GPU. They also contain the token chosen from each row, and the largest logit
// of each row.
type results struct {
	*cuda.Memory
	rows, size int // the largest number of rows, and the logits of a row
}

func (r *results) allocate(l *launcher, rows, size int) {
	*r = results{l.alloc(4 * rows * (size + 2)), rows, size}
}

// tokens returns the offset of the tokens; the largest logits follow.
func (r *results) tokens() int { return 4 * r.rows * r.size }

// address returns the address of the byte at an offset.
func (r *results) address(offset int) cuda.Pointer { return r.Pointer() + cuda.Pointer(offset) }

// numbers returns n numbers of 4 bytes in pinned memory. The offset of the first number is in bytes.
func numbers[T int32 | float32](p *cuda.Pinned, offset, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&p.Bytes()[offset])), n)
}

// ComputeLogits implements engine.ModelRunner. It waits for the end of the step.
func (r *Runner) ComputeLogits(b *model.Batch, start, end int) ([]float32, error) {
	n := end - start
	r.largest = r.largest[:0]
	err := r.context.Do(func() error {
		if start > 0 {
			return r.moreLogits(b, start, n)
		}
		if len(r.launched) == 0 || n > r.launched[0].rows {
			return fmt.Errorf("%w: %d logits of a batch that has fewer or that Forward did not begin", model.ErrBatch, n)
		}
		r.taken = r.launched[0]
		err := r.sampleRest(r.taken)
		r.launched = append(r.launched[:0], r.launched[1:]...)
		return errors.Join(err, r.taken.computed.Synchronize())
	})
	if err != nil || n == 0 {
		return nil, err
	}
	host := r.taken.results
	tokens, values := numbers[int32](host, r.results.tokens(), n), numbers[float32](host, r.results.tokens()+4*r.results.rows, n)
	for i, v := range values {
		if v-v != 0 { // not finite
			tokens[i] = -1
		}
	}
	r.largest = append(r.largest, tokens...)
	logits := numbers[float32](host, 0, n*r.VocabSize)
	if r.ChangesLogits() {
		r.FinishLogits(logits)
	}
	return logits, nil
}

// moreLogits computes logits for which the memory for results was too small at first, and waits until they
// are on the host.
func (r *Runner) moreLogits(b *model.Batch, start, n int) error {
	if len(r.launched) > 0 || r.prepared.flight != nil || r.taken == nil || n > r.results.rows {
		return fmt.Errorf("%w: %d more logits, for at most %d, while %d batches are computed", model.ErrBatch, n, r.results.rows, len(r.launched))
	}
	r.err = nil
	r.launchLogits(start, n)
	r.sample(r.taken, n, nil)
	r.try(r.stream.Synchronize)
	return r.err
}

// launchLogits computes the rows [start, start+n) of the batch's logits.
func (r *Runner) launchLogits(start, n int) {
	if n == 0 {
		return
	}
	r.pick(r.inputs.logits+cuda.Pointer(4*start), n)
	r.multiplyTo(&r.head, kernels.Product{Out: r.results.address(0), OutStride: r.head.out, In: r.picked.Pointer(), Rows: n, Float32: true})
}

// Largest implements engine.ModelRunner.
func (r *Runner) Largest() []int32 {
	if r.ChangesLogits() { // rounding can make others equal to the largest
		return nil
	}
	return r.largest
}
