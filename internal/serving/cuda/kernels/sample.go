package kernels

import (
	"math"

	"llmmemory/internal/serving/cuda"
)

// Sample chooses a token from each row of N float32 logits, and changes the logits. It writes the token, as int32, to
// Tokens, and the largest logit after biases, penalties and masks to Values. If a logit is NaN or infinite, or all are
// minus infinity, the token is 0 and the value is NaN or infinite.
//
// The token is the one that sampling.Sampler chooses from the same logits.
type Sample struct {
	Tokens, Values, Logits cuda.Pointer
	Rows, N                int

	Params cuda.Pointer // a SamplingRow for each row
	Biases cuda.Pointer // SamplingBias; may be 0 if no row has any, like Counts and Masks
	Counts cuda.Pointer // SamplingCount
	Masks  cuda.Pointer // uint64: bit t%64 of word t/64 of a mask is token t
}

// A SamplingRow says how Sample chooses the token of a row.
type SamplingRow struct {
	Random uint64 // chooses among the tokens that are left
	TopP   uint64 // part of the sum of all weights, times 2^64; the largest number means all tokens

	Scale      float32 // 1 / temperature; 0 means the first token with the largest logit
	MinP       float32 // part of the largest weight; 0 means all tokens
	Repetition float32 // 1 means none
	Frequency  float32
	Presence   float32
	TopK       int32 // 0 means all tokens

	Token int32 // the only possible token, or -1. The logits are not read then.
	Mask  int32 // index of the first word of the row's mask in Masks, or -1 if all tokens are allowed

	BiasStart, BiasEnd   int32 // the row's elements of Biases
	CountStart, CountEnd int32 // the row's elements of Counts
}

// A SamplingBias is added to the logit of a token. Minus infinity forbids the token. A row has one for each token at most.
type SamplingBias struct {
	Token int32
	Bias  float32
}

// A SamplingCount says how often a token is in the answer; 0 if only the prompt has it. A row has one for each token at
// most.
type SamplingCount struct{ Token, Output int32 }

// Launch puts the kernel into a stream.
func (a Sample) Launch(set *Set, s *cuda.Stream) error {
	c := checker{kernel: "sample"}
	c.require(a.N > 0 && a.N <= math.MaxInt32-1024, " of rows of %d logits", a.N)
	c.count(a.Rows, "rows")
	c.addresses(4, operand{"Tokens", a.Tokens}, operand{"Values", a.Values}, operand{"Logits", a.Logits})
	c.addresses(8, operand{"Params", a.Params})
	c.optional(4, operand{"Biases", a.Biases}, operand{"Counts", a.Counts})
	c.optional(8, operand{"Masks", a.Masks})
	if !c.ready() {
		return c.err
	}
	threads := max(64, min(1024, (a.N+31)/32*32)) // find needs two warps
	return set.launch(s, "sample_f32", cuda.Shape{X: a.Rows, Threads: threads},
		a.Tokens, a.Values, a.Logits, int32(a.N), a.Params, a.Biases, a.Counts, a.Masks)
}
