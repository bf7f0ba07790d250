package kernels

import (
	"cmp"
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
)

// RMSNorm computes Out = In / sqrt(mean of squares + Epsilon) * (Weight + WeightOffset) for each row
// of N elements. If there is a Residual, RMSNorm first adds In to it, and normalizes its rows instead.
// Out may be In.
type RMSNorm struct {
	Type                      Type
	Out, In, Residual, Weight cuda.Pointer // Residual may be 0
	Tokens, Heads, N          int          // Heads rows of N elements for each token; 0 means 1
	Stride                    int          // elements from a token to the next in Out, In and Residual; 0 means Heads*N
	Epsilon, WeightOffset     float32      // an offset of 1 for Gemma
}

// Launch puts the kernel into a stream.
func (a RMSNorm) Launch(set *Set, s *cuda.Stream) error {
	heads := max(a.Heads, 1)
	if err := cmp.Or(a.Type.checkRow("rms_norm", a.N), checkCount("rms_norm", a.Tokens, "tokens")); err != nil {
		return err
	}
	if err := checkCount("rms_norm", a.Tokens*heads, "rows"); err != nil {
		return err
	}
	stride, err := strideOf("rms_norm", a.Stride, heads*a.N, a.Type.in16())
	if err != nil || a.Tokens == 0 {
		return err
	}
	if err := checkOperands("rms_norm", 16, append(given(operand{"Residual", a.Residual}), operand{"Out", a.Out}, operand{"In", a.In}, operand{"Weight", a.Weight})...); err != nil {
		return err
	}
	return set.launch(s, "fused_add_rms_norm_"+a.Type.String(), cuda.Shape{X: a.Tokens * heads, Threads: a.Type.rowThreads(a.N)},
		a.Out, a.In, a.Residual, a.Weight, int32(heads), uint64(stride), int32(a.N), a.Epsilon, a.WeightOffset)
}

// LayerNorm computes Out = (In - mean) / sqrt(variance + Epsilon) * Weight + Bias for each row of N
// elements. If there is a Residual, LayerNorm first adds In to it, and normalizes its rows instead.
// Out may be In.
type LayerNorm struct {
	Type                            Type
	Out, In, Residual, Weight, Bias cuda.Pointer // Residual may be 0
	Rows, N                         int
	Epsilon                         float32
}

// Launch puts the kernel into a stream.
func (a LayerNorm) Launch(set *Set, s *cuda.Stream) error {
	if err := cmp.Or(a.Type.checkRow("layer_norm", a.N), checkCount("layer_norm", a.Rows, "rows")); err != nil || a.Rows == 0 {
		return err
	}
	if err := checkOperands("layer_norm", 16, append(given(operand{"Residual", a.Residual}), operand{"Out", a.Out}, operand{"In", a.In}, operand{"Weight", a.Weight}, operand{"Bias", a.Bias})...); err != nil {
		return err
	}
	return set.launch(s, "layer_norm_"+a.Type.String(), cuda.Shape{X: a.Rows, Threads: a.Type.rowThreads(a.N)},
		a.Out, a.In, a.Residual, a.Weight, a.Bias, int32(a.N), a.Epsilon)
}

// checkRow returns an error unless rows of n elements are whole vectors.
func (t Type) checkRow(kernel string, n int) error {
	if err := t.check(kernel); err != nil {
		return err
	}
	if n <= 0 || n > math.MaxInt32 || n%t.in16() != 0 {
		return fmt.Errorf("%s of rows of %d elements: the length must be a multiple of %d", kernel, n, t.in16())
	}
	return nil
}

// rowThreads returns the number of threads that share a row. It depends only on the size of the row,
// so that a row has the same bits in every batch.
func (t Type) rowThreads(n int) int { return min(1024, (n/t.in16()+31)/32*32) }
