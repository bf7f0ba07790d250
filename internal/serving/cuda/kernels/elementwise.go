package kernels

import "llmmemory/internal/serving/cuda"

// A Function is what an MLP computes between its products.
type Function string

// The activation functions, by vLLM's names. A function with _and_mul is applied to the first half of
// a row, and the result is multiplied by the second half.
const (
	SiLUAndMul      Function = "silu_and_mul"
	GELUTanhAndMul  Function = "gelu_tanh_and_mul"
	SwiGLUOAIAndMul Function = "swigluoai_and_mul" // GPT-OSS's, with both halves limited
	GELUNew         Function = "gelu_new"
	ReLU            Function = "relu"
)

// Activation applies a function to Rows rows. A row of Out has N elements. A row of In has N elements,
// or 2 N for a function with _and_mul.
type Activation struct {
	Type     Type
	Function Function
	Out, In  cuda.Pointer
	Rows, N  int
}

// Launch puts the kernel into a stream.
func (a Activation) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: string(a.Function)}
	c.row(a.Type, a.N)
	c.count(a.Rows, "rows")
	c.addresses(16, operand{"Out", a.Out}, operand{"In", a.In})
	if !c.ready() {
		return c.err
	}
	const threads = 256
	perBlock := threads * a.Type.in16()
	return set.launch(s, c.kernel+"_"+a.Type.String(), cuda.Shape{X: a.Rows, Y: (a.N + perBlock - 1) / perBlock, Threads: threads}, a.Out, a.In, int32(a.N))
}

// Add computes Out = In * Scale + Other for rows of N elements. Out may be In or Other.
type Add struct {
	Type           Type
	Out, In, Other cuda.Pointer
	Stride         int // elements from a row of Other to the next; 0 for a bias, which is added to every row
	Rows, N        int
	Scale          float32
}

// Launch puts the kernel into a stream.
func (a Add) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: "add"}
	c.row(a.Type, a.N)
	c.count(a.Rows, "rows")
	c.stride(a.Stride, a.N, a.Type.in16())
	c.addresses(16, operand{"Out", a.Out}, operand{"In", a.In}, operand{"Other", a.Other})
	if !c.ready() {
		return c.err
	}
	const threads = 256
	perBlock := threads * a.Type.in16()
	return set.launch(s, "add_"+a.Type.String(), cuda.Shape{X: a.Rows, Y: (a.N + perBlock - 1) / perBlock, Threads: threads},
		a.Out, a.In, a.Other, uint64(a.Stride), int32(a.N), a.Scale)
}

// Embedding computes, for each token, Out = the token's row of Table, times Scale, plus the row of
// PositionTable for the token's position. Each token must be in the table.
type Embedding struct {
	Type                     Type
	Out, Table, Tokens       cuda.Pointer // Tokens: int32
	PositionTable, Positions cuda.Pointer // may be 0
	Rows, N                  int
	Scale                    float32
}

// Launch puts the kernel into a stream.
func (a Embedding) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: "embedding"}
	c.row(a.Type, a.N)
	c.count(a.Rows, "rows")
	c.addresses(16, operand{"Out", a.Out}, operand{"Table", a.Table})
	c.addresses(4, operand{"Tokens", a.Tokens})
	if a.PositionTable != 0 {
		c.addresses(16, operand{"PositionTable", a.PositionTable})
		c.addresses(4, operand{"Positions", a.Positions})
	}
	if !c.ready() {
		return c.err
	}
	return set.launch(s, "embedding_"+a.Type.String(), cuda.Shape{X: a.Rows, Threads: min(256, a.Type.rowThreads(a.N))},
		a.Out, a.Table, a.Tokens, a.PositionTable, a.Positions, int32(a.N), a.Scale)
}
