package sampling

import (
	"maps"
	"math"
)

// A Choice says how a GPU chooses a token from a row of logits. It must choose the token that Sample chooses.
type Choice struct {
	*Params // nil if the GPU does not choose the token
	State
	Only   int32 // the only possible token, or -1
	Logits bool  // the logits are needed for log probabilities
}

// Weights say how weights are computed and one of them is drawn, as Sampler.Sample does.
type Weights struct {
	Scale  float32 // 1 / temperature; 0 means that the first of the largest logits is taken
	MinP   float32
	TopP   uint64 // times 2^64; the largest number means all tokens
	Random uint64
}

// Weights returns the numbers with which Sample computes.
func (c *Choice) Weights() Weights {
	if c.greedy() {
		return Weights{}
	}
	w := Weights{c.scale(), float32(c.MinP), math.MaxUint64, Random(c.Seed, len(c.Output))}
	if c.TopP < 1 {
		w.TopP = part(c.TopP)
	}
	return w
}

// Biases returns what is added to logits. Minus infinity forbids a token.
func (c *Choice) Biases() map[int32]float32 {
	if len(c.Forbidden) == 0 {
		return c.LogitBias
	}
	all := make(map[int32]float32, len(c.LogitBias)+len(c.Forbidden))
	maps.Copy(all, c.LogitBias)
	for _, id := range c.Forbidden {
		all[id] = float32(math.Inf(-1))
	}
	return all
}

// Counted returns the tokens to which penalties apply.
func (c *Choice) Counted() []Count {
	if !c.Penalizes() {
		return nil
	}
	if c.Counts == nil {
		c.Counts = &Counts{}
	}
	return c.counted(c.State)
}
