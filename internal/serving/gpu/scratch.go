package gpu

import (
	"llmmemory/internal/serving/cuda"
)

// scratch is memory that kernels use one after the other.
type scratch struct {
	parts, arrived, unpacked cuda.Pointer // of products
	attention                *cuda.Memory // results of partitions
}

// growAttention makes room for results of partitions. No step is in flight.
func (s *scratch) growAttention(c *cuda.Context, size int) error {
	if s.attention != nil && s.attention.Size() >= size {
		return nil
	}
	larger, err := c.Alloc(max(size, 16))
	if err != nil {
		return err
	}
	err = s.close()
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
