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
	GatedGELU     // gelu(gate) × up (Gemma)
	ClampedSwiGLU // gate × sigmoid(1.702·gate) × (up + 1), of gates up to 7 and ups of -7 to 7 (gpt-oss)
)

// NormPlace is where the norms of a layer stand.
type NormPlace uint8

const (
	NormBefore NormPlace = iota // before attention, and before the second half
	NormAfter                   // of what these give, before it is added (OLMo 2)
	NormAround                  // both (Gemma)
)

// QKNorm is an RMSNorm of queries and keys.
type QKNorm uint8

const (
	NoQKNorm  QKNorm = iota
	HeadNorm         // of each head (Qwen3, Gemma 3)
	WidthNorm        // of all heads together (OLMo 2)
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
	NormOffset float32 // is added to the weights of norms as the file has them (Gemma's folders: 1)
	NormPlace  NormPlace
	QKNorm     QKNorm
	Activation Activation
	Experts    *Experts // nil: no mixture

	Rope           *Rope  // nil: positions are learned
	LocalRope      *Rope  // of layers with the window; nil: as of the others
	PositionOffset int    // learned: position p is in row p + PositionOffset (OPT: 2)
	SlidingWindow  int    // tokens that a token attends to; 0: all
	Full           []bool // layers without the window; nil: all have it
	NoRope         []bool // layers without rotations (SmolLM3); nil: none
	UnusedWindow   int    // tokens of a GGUF file's window that is not used, as in llama.cpp; 0: none
	Sinks          bool   // each head has a logit of its own in the softmax, without a value (gpt-oss)
	TieEmbeddings  bool   // the output matrix is that of the embeddings

	AttentionScale float64 // products of queries and keys are multiplied by it; 0: 1 / sqrt(HeadDim)
	AttentionCap   float64 // logits of attention become cap · tanh(logit / cap); 0: none
	LogitCap       float64 // the same of the model's logits
	LogitScale     float64 // the model's logits are multiplied by it, before the cap; 0: 1
	EmbeddingScale float64 // embeddings are multiplied by it; 0: 1
	ResidualScale  float64 // what each half of a layer adds is multiplied by it; 0: 1

	QKVBias, OutBias, MLPBias bool

	End []int32 // tokens that end a sequence
}

// Experts describe a mixture of experts in the second half of a layer. A router computes a logit for each expert;
// a token uses the experts with the largest logits.
type Experts struct {
	Count, PerToken  int
	IntermediateSize int  // of each
	SharedSize       int  // IntermediateSize of an expert that all tokens take; 0: none
	SharedGate       bool // the shared expert is multiplied by the sigmoid of a product (Qwen2)

	// Normalize: the weights are a softmax over the logits of the chosen experts only, not of all.
	Normalize  bool
	Bias       bool
	RouterBias bool
	Dense      []bool // layers with an MLP instead; nil: none
}

// gated reports whether the activation has a gate.
func (c *Config) gated() bool { return c.Activation != GELU && c.Activation != ReLU }

// mixture reports whether the second half of a layer is a mixture of experts.
func (c *Config) mixture(layer int) bool {
	return c.Experts != nil && (c.Experts.Dense == nil || !c.Experts.Dense[layer])
}

// Window is how many tokens a token attends to in a layer; 0: all.
func (c *Config) Window(layer int) int {
	if c.Full != nil && c.Full[layer] {
		return 0
	}
	return c.SlidingWindow
}

// rope returns the rotation of a layer, or nil.
func (c *Config) rope(layer int) *Rope {
	switch {
	case c.NoRope != nil && c.NoRope[layer]:
		return nil
	case c.LocalRope != nil && c.Window(layer) > 0:
		return c.LocalRope
	}
	return c.Rope
}

// scale is what products of queries and keys are multiplied with.
func (c *Config) scale() float32 {
	if c.AttentionScale != 0 {
		return float32(c.AttentionScale)
	}
	return float32(1 / math.Sqrt(float64(c.HeadDim)))
}

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
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"the scale of attention", c.AttentionScale}, {"the soft cap of attention", c.AttentionCap},
		{"the soft cap of logits", c.LogitCap}, {"the scale of logits", c.LogitScale},
		{"the scale of embeddings", c.EmbeddingScale}, {"the scale of residuals", c.ResidualScale},
	} {
		if !(v.value >= 0 && v.value <= most) {
			return fmt.Errorf("%w: %s is %v", ErrModel, v.name, v.value)
		}
	}
	if err := c.checkLayers(); err != nil {
		return err
	}
	for _, id := range c.End {
		if id < 0 || int(id) >= c.VocabSize {
			return fmt.Errorf("%w: eos_token_id is %d; the vocabulary has %d tokens", ErrModel, id, c.VocabSize)
		}
	}
	for _, r := range []*Rope{c.Rope, c.LocalRope} {
		if r != nil {
			if err := r.check(c.HeadDim); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLayers checks the settings of single layers and of experts.
func (c *Config) checkLayers() error {
	e := c.Experts
	if e == nil {
		e = &Experts{Count: 1, PerToken: 1, IntermediateSize: 1}
	}
	for _, list := range [][]bool{c.Full, c.NoRope, e.Dense} {
		if list != nil && len(list) != c.NumLayers {
			return fmt.Errorf("%w: %d layers are described, there are %d", ErrModel, len(list), c.NumLayers)
		}
	}
	const most = 1 << 16
	switch {
	case e.Count < 1 || e.Count > most || e.PerToken < 1 || e.PerToken > e.Count:
		return fmt.Errorf("%w: %d of %d experts for each token", ErrModel, e.PerToken, e.Count)
	case e.IntermediateSize < 1 || e.IntermediateSize > 1<<24 || e.SharedSize < 0 || e.SharedSize > 1<<24:
		return fmt.Errorf("%w: experts of %d and %d columns", ErrModel, e.IntermediateSize, e.SharedSize)
	case c.Experts != nil && !c.gated():
		return fmt.Errorf("%w: experts without a gate", ErrModel)
	}
	return nil
}
