package kernels

import (
	"fmt"

	"llmmemory/internal/serving/cuda"
)

// RMSNorm is Out = In / sqrt(mean of squares + Epsilon) * (Weight + WeightOffset), for each of Rows rows of N elements. With a
// Residual, Residual += In comes first, and its rows are normalized. Out may be In.
type RMSNorm struct {
	Type                      Type
	Out, In, Residual, Weight cuda.Pointer // Residual may be 0
	Rows, N                   int
	Epsilon, WeightOffset     float32 // an offset of 1 for Gemma
}

// Launch puts the kernel into a stream.
func (a RMSNorm) Launch(set *Set, s *cuda.Stream) error {
	size := a.Type.in16()
	if a.N <= 0 || a.N%size != 0 {
		return fmt.Errorf("rms_norm of rows of %d elements: the length must be a multiple of %d", a.N, size)
	}
	if a.Rows == 0 {
		return nil
	}
	// A thread's part depends on N alone, so that a row has the same bits in every batch.
	shape := cuda.Shape{X: a.Rows, Threads: min(1024, (a.N/size+31)/32*32)}
	if a.Residual == 0 {
		return set.launch(s, "rms_norm_"+a.Type.String(), shape, a.Out, a.In, a.Weight, int32(a.N), a.Epsilon, a.WeightOffset)
	}
	return set.launch(s, "fused_add_rms_norm_"+a.Type.String(), shape, a.Out, a.In, a.Residual, a.Weight, int32(a.N), a.Epsilon, a.WeightOffset)
}
