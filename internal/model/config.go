package model

import (
	"fmt"
	"math"
)

// Norm is how activations are normalized.
type Norm uint8

const (
	RMSNorm Norm = iota
	LayerNorm
)

// Activation is the function between the two matrices of a layer's second half.
type Activation uint8

const (
	SiLU Activation = iota // gated: silu(gate) × up
	GELU                   // in the approximation by tanh
	ReLU
)

// Config is a model's shape and rules. Names are those of vLLM and Hugging Face.
type Config struct {
	Family           string // as config.json or GGUF calls it
	VocabSize        int
	HiddenSize       int
	NumLayers        int
	NumHeads         int
	NumKVHeads       int
	HeadDim          int
	IntermediateSize int
	MaxModelLen      int // positions that the model knows

	Norm       Norm
	NormEps    float64
	Activation Activation

	Rope           *Rope // nil: positions are learned
	PositionOffset int   // learned: position p is in row p + PositionOffset (OPT: 2)
	SlidingWindow  int   // tokens that a token attends to; 0: all
	QKNorm         bool  // RMSNorm of each head's query and key (Qwen3)
	TieEmbeddings  bool  // the output matrix is that of the embeddings

	QKVBias, OutBias, MLPBias bool

	End []int32 // tokens that end a sequence
}

// gated reports whether the activation has a gate.
func (c *Config) gated() bool { return c.Activation == SiLU }

// scale is what products of queries and keys are multiplied with.
func (c *Config) scale() float32 { return float32(1 / math.Sqrt(float64(c.HeadDim))) }

// check refuses what the forward pass cannot compute, and sizes that are certainly wrong.
func (c *Config) check() error {
	const most = 1 << 24
	for _, n := range []struct {
		name  string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"num_hidden_layers", c.NumLayers},
		{"num_attention_heads", c.NumHeads}, {"num_key_value_heads", c.NumKVHeads}, {"head_dim", c.HeadDim},
		{"intermediate_size", c.IntermediateSize}, {"max_position_embeddings", c.MaxModelLen},
	} {
		if n.value < 1 || n.value > most {
			return fmt.Errorf("%w: %s is %d", ErrModel, n.name, n.value)
		}
	}
	switch {
	case c.NumHeads%c.NumKVHeads != 0:
		return fmt.Errorf("%w: %d query heads on %d key heads: want a multiple", ErrModel, c.NumHeads, c.NumKVHeads)
	case c.HeadDim > 256 || c.HeadDim%8 != 0:
		return fmt.Errorf("%w: heads of %d elements: want a multiple of 8 up to 256", ErrModel, c.HeadDim)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return fmt.Errorf("%w: the epsilon of norms is %v", ErrModel, c.NormEps)
	case c.SlidingWindow < 0:
		return fmt.Errorf("%w: a sliding window of %d tokens", ErrModel, c.SlidingWindow)
	}
	for _, id := range c.End {
		if id < 0 || int(id) >= c.VocabSize {
			return fmt.Errorf("%w: eos_token_id is %d; the vocabulary has %d tokens", ErrModel, id, c.VocabSize)
		}
	}
	if c.Rope != nil {
		return c.Rope.check(c.HeadDim)
	}
	return nil
}
