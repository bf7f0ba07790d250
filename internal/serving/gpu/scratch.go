package gpu

import (
	"errors"

	"llmmemory/internal/serving/cuda"
)

// scratch is memory that kernels use one after the other.
type scratch struct {
	parts, arrived, unpacked cuda.Pointer // of products
	attention                *cuda.Memory // results of partitions
}

// growAttention makes the memory for results of partitions at least size bytes large. Before it frees the
// smaller memory, it waits until no batch uses it.
func (r *Runner) growAttention(size int) error {
	s := &r.scratch
	if s.attention != nil && s.attention.Size() >= size {
		return nil
	}
	larger, err := r.context.Alloc(max(size, 16))
	if err != nil {
		return err
	}
	err = errors.Join(r.stream.Synchronize(), r.graphs.close(), s.attention.Close())
	s.attention = larger
	return err
}
