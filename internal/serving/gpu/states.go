package gpu

import (
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
)

// pick copies n rows of x to picked and normalizes them with the model's last norm. The parameter rows is the address
// of their numbers.
func (r *Runner) pick(rows cuda.Pointer, n int) {
	picked := r.picked.Pointer()
	r.launch(kernels.Embedding{Type: r.kind, Out: picked, Table: r.x, Tokens: rows, Rows: n, N: r.HiddenSize, Scale: 1})
	r.normalize(r.Model.norm, picked, picked, 0, n)
}

// launchStates computes the batch's states [start, start+n) and copies them to the host.
func (r *Runner) launchStates(start, n int, host *cuda.Pinned) {
	if n == 0 {
		return
	}
	r.pick(r.inputs.states+cuda.Pointer(4*start), n)
	r.try(func() error { return r.stream.Download(host, 0, r.picked, 0, n*r.HiddenSize*r.kind.Bytes()) })
}

// ComputeStates implements engine.ModelRunner. The first states were launched with the batch.
func (r *Runner) ComputeStates(b *model.Batch) ([]float32, error) {
	n := len(b.States)
	if n == 0 {
		return nil, nil
	}
	if r.taken == nil || n > r.results.rows && (len(r.launched) > 0 || r.prepared.flight != nil) {
		return nil, fmt.Errorf("%w: %d states, for at most %d, while %d batches are computed", model.ErrBatch, n, r.results.rows, len(r.launched))
	}
	r.states = r.states[:0]
	for start := 0; start < n; start += r.results.rows {
		rows := min(r.results.rows, n-start)
		if start > 0 {
			if err := r.moreStates(start, rows); err != nil {
				return nil, err
			}
		}
		r.appendStates(rows * r.HiddenSize)
	}
	return r.states, nil
}

// moreStates computes states for which the memory was too small at first, and waits until they are on the host.
func (r *Runner) moreStates(start, n int) error {
	return r.context.Do(func() error {
		r.err = nil
		r.launchStates(start, n, r.taken.states)
		r.try(r.stream.Synchronize)
		return r.err
	})
}

// appendStates appends n numbers of the host's memory to r.states.
func (r *Runner) appendStates(n int) {
	wide := half.FromF16
	if r.kind == kernels.BF16 {
		wide = half.FromBF16
	}
	for _, v := range unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(r.taken.states.Bytes()))), n) {
		r.states = append(r.states, wide(v))
	}
}
