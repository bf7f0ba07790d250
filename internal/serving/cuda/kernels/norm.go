package kernels

import "llmmemory/internal/serving/cuda"

// RMSNorm computes Out = In / sqrt(mean of squares + Epsilon) * (Weight + WeightOffset) for each row of N
// elements. With a Residual, it first adds In to Residual, and then computes Out from Residual instead of In.
// Out may be In.
type RMSNorm struct {
	Type                      Type
	Out, In, Residual, Weight cuda.Pointer // Residual may be 0
	Tokens, N                 int          // rows, and elements of a row
	Stride                    int          // elements from a token to the next in Out, In and Residual; 0 means N
	Epsilon, WeightOffset     float32      // an offset of 1 for Gemma
}

// Launch puts the kernel into a stream.
func (a RMSNorm) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: "rms_norm"}
	c.row(a.Type, a.N)
	c.count(a.Tokens, "tokens")
	stride := c.stride(a.Stride, a.N, a.Type.in16())
	c.optional(16, operand{"Residual", a.Residual})
	c.addresses(16, operand{"Out", a.Out}, operand{"In", a.In}, operand{"Weight", a.Weight})
	if !c.ready() {
		return c.err
	}
	return set.launch(s, "fused_add_rms_norm_"+a.Type.String(), cuda.Shape{X: a.Tokens, Threads: a.Type.rowThreads(a.N)},
		a.Out, a.In, a.Residual, a.Weight, stride, int32(a.N), a.Epsilon, a.WeightOffset)
}

// LayerNorm computes Out = (In - mean) / sqrt(variance + Epsilon) * Weight + Bias for each row of N elements.
// With a Residual, it first adds In to Residual, and then computes Out from Residual instead of In. Out may
// be In.
type LayerNorm struct {
	Type                            Type
	Out, In, Residual, Weight, Bias cuda.Pointer // Residual may be 0
	Rows, N                         int
	Epsilon                         float32
}

// Launch puts the kernel into a stream.
func (a LayerNorm) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: "layer_norm"}
	c.row(a.Type, a.N)
	c.count(a.Rows, "rows")
	c.optional(16, operand{"Residual", a.Residual})
	c.addresses(16, operand{"Out", a.Out}, operand{"In", a.In}, operand{"Weight", a.Weight}, operand{"Bias", a.Bias})
	if !c.ready() {
		return c.err
	}
	return set.launch(s, "layer_norm_"+a.Type.String(), cuda.Shape{X: a.Rows, Threads: a.Type.rowThreads(a.N)},
		a.Out, a.In, a.Residual, a.Weight, a.Bias, int32(a.N), a.Epsilon)
}

// rowThreads returns the number of threads that share a row. It depends only on the size of the row,
// so that a row has the same bits in every batch.
func (t Type) rowThreads(n int) int { return min(1024, (n/t.in16()+31)/32*32) }
