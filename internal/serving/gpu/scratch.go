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

// growAttention makes room for results of partitions. No step is in flight.
func (r *Runner) growAttention(size int) error {
	s := &r.scratch
	if s.attention != nil && s.attention.Size() >= size {
		return nil
	}
	larger, err := r.device.context.Alloc(max(size, 16))
	if err != nil {
		return err
	}
	err = errors.Join(r.graphs.close(), s.close())
	s.attention = larger
	return err
}

func (s *scratch) close() error {
	if s.attention == nil {
		return nil
	}
	err := s.attention.Close()
	s.attention = nil
	return err
}
