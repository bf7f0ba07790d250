package model

import (
	"errors"
	"math"

	"llmmemory/internal/serving/attention"
)

// Norm is the kind of normalization of activations.
type Norm uint8

const (
	RMSNorm Norm = iota
	LayerNorm
)

// Activation is the function between the matrices of an MLP.
type Activation uint8

const (
	SiLU Activation = iota // gated: silu(gate) × up
	GELU                   // approximated by tanh
	ReLU
	ReLU2         // the square of ReLU (Nemotron-H)
	GatedGELU     // gelu(gate) × up (Gemma)
	ClampedSwiGLU // gate × sigmoid(1.702·gate) × (up + 1); gate is at most 7, up between -7 and 7 (gpt-oss)
)

// NormPlace is where a layer has its norms.
type NormPlace uint8

const (
	NormBefore NormPlace = iota // before attention and before the MLP
	NormAfter                   // after attention and after the MLP, before their outputs are added (OLMo 2)
	NormAround                  // both (Gemma)
)

// QKNorm is an RMSNorm of queries and keys.
type QKNorm uint8

const (
	NoQKNorm  QKNorm = iota
	HeadNorm         // over each head (Qwen3, Gemma 3)
	WidthNorm        // over all heads together (OLMo 2)

	// RotatedNorm is an RMSNorm without weights over each head, after its rotation, in layers with rotations (Llama 4).
	RotatedNorm
)

// Config describes the shape and the computation of a model. Names are those of vLLM and Hugging Face.
type Config struct {
	Family           string // its name in config.json or GGUF
	VocabSize        int
	HiddenSize       int
	NumLayers        int
	DraftLayers      int // layers after these that only propose drafts (multi-token prediction); they are not used
	NumHeads         int
	NumKVHeads       int
	HeadDim          int
	IntermediateSize int
	MaxModelLen      int // number of positions

	Norm       Norm
	NormEps    float64
	NormOffset float32 // added to norm weights from the file (1 in Gemma's folders)
	NormPlace  NormPlace
	QKNorm     QKNorm
	Activation Activation
	Experts    *Experts // nil if no layer has experts
	Mixed      *Mixed   // nil if all layers have the same heads
	Latent     *Latent  // nil if heads have keys and values of their own

	Recurrence *Recurrence // nil if all layers have attention
	Halves     []Half      // of each layer; nil if all have both

	Rope           *Rope        // nil if positions are learned
	LocalRope      *Rope        // of layers with the window; if nil, Rope
	PositionOffset int          // learned position p is in row p + PositionOffset (2 in OPT)
	SlidingWindow  int          // tokens that a token attends to; 0 means all
	AttentionChunk int          // if not 0, a token attends only to the tokens of its chunk: token t is in chunk t / AttentionChunk
	Full           []bool       // layers without the window and without chunks; if nil, all have them
	NoRope         []bool       // layers without rotations (SmolLM3); if nil, all have them
	UnusedWindow   int          // a window below MaxModelLen in a GGUF file that is ignored, as in llama.cpp; else 0
	Temperature    *Temperature // of layers without rotations; nil means none
	Gate           bool         // the output of attention is multiplied by a sigmoid of another projection (Qwen3-Next)
	Sinks          bool         // the softmax of each head has an extra logit without a value (gpt-oss)
	TieEmbeddings  bool         // the output matrix is the embeddings

	AttentionScale float64 // factor of the products of queries and keys; 0 means 1 / sqrt(HeadDim)
	AttentionCap   float64 // if not 0, logits of attention become cap · tanh(logit / cap)
	LogitCap       float64 // the same for the model's logits
	LogitScale     float64 // factor of the model's logits, before the cap; 0 means 1
	EmbeddingScale float64 // factor of the embeddings; 0 means 1
	ResidualScale  float64 // factor of what attention and the MLP add; 0 means 1

	QKVBias, OutBias, MLPBias bool

	End []int32 // tokens that end a sequence
}

// Experts describes a mixture of experts, which replaces a layer's MLP. A router computes a logit for each expert,
// and a token is computed by the PerToken experts with the largest logits.
type Experts struct {
	Count, PerToken  int
	IntermediateSize int     // of each expert
	SharedSize       int     // IntermediateSize of an expert that all tokens use, or 0
	SharedGate       bool    // the output of the shared expert is multiplied by a sigmoid (Qwen2)
	Sigmoid          bool    // an expert's weight is the sigmoid of its logit; otherwise, of a softmax over all logits
	Correction       bool    // numbers are added to weights to choose experts (DeepSeek V3)
	Groups, Chosen   int     // if Groups > 1, the experts of a token are in Chosen of Groups groups of consecutive experts
	InputScale       bool    // an expert's input is multiplied by its weight, not its output (Llama 4)
	Normalize        bool    // weights are divided by the sum of the weights of the chosen experts
	Scale            float64 // factor of the weights; 0 means 1
	Bias             bool
	RouterBias       bool
	Dense            []bool // layers with an MLP; if nil, all have experts
}

// Temperature multiplies the queries at position p by 1 + Scale · ln(1 + floor((p + 1) / Floor)) (Llama 4).
type Temperature struct{ Floor, Scale float64 }

func (t *Temperature) factor(position int32) float32 {
	return float32(1 + t.Scale*math.Log1p(math.Floor((float64(position)+1)/t.Floor)))
}

// Latent describes multi-head latent attention (MLA). The cache has one key of a token for all heads: KVRank elements,
// from which the keys and values of all heads are made, and RopeDim rotated elements. HeadDim is NopeDim + RopeDim, and
// NumKVHeads is 1.
type Latent struct {
	QueryRank int // q_lora_rank; 0 if queries are not made from a smaller vector
	KVRank    int // kv_lora_rank
	NopeDim   int // qk_nope_head_dim: elements of a query that are not rotated
	RopeDim   int // qk_rope_head_dim: rotated elements of a query
	ValueDim  int // v_head_dim
}

// keySize returns the number of elements of a key in the cache.
func (a *Latent) keySize() int { return a.KVRank + a.RopeDim }

func (a *Latent) check(c *Config) error {
	switch {
	case a.QueryRank < 0 || a.QueryRank > 1<<16:
		return refused("q_lora_rank is %d", a.QueryRank)
	case a.NopeDim < 1 || a.RopeDim < 2 || a.NopeDim+a.RopeDim != c.HeadDim || c.NumKVHeads != 1:
		return refused("qk_nope_head_dim is %d and qk_rope_head_dim %d", a.NopeDim, a.RopeDim)
	case a.ValueDim < 1 || a.ValueDim > 1<<16:
		return refused("v_head_dim is %d", a.ValueDim)
	case a.KVRank < 8 || a.KVRank%8 != 0 || a.keySize()%8 != 0 || a.keySize() > attention.MaxKeySize:
		return refused("kv_lora_rank is %d and qk_rope_head_dim %d; multiples of 8 with a sum of at most %d are supported", a.KVRank,
			a.RopeDim, attention.MaxKeySize)
	case c.Rope == nil || c.LocalRope != nil || c.Rope.Rotated(c.HeadDim) != a.RopeDim:
		return refused("latent attention without its rotation")
	case c.Sinks || c.QKVBias || c.OutBias || c.QKNorm != NoQKNorm || c.SlidingWindow > 0 || c.AttentionChunk > 0:
		return refused("latent attention with biases, sinks, norms of heads or a window is not supported")
	}
	return nil
}

// Gated reports whether the activation multiplies two halves of a row.
func (c *Config) Gated() bool {
	return c.Activation != GELU && c.Activation != ReLU && c.Activation != ReLU2
}

func (c *Config) mixture(layer int) bool {
	return c.Experts != nil && (c.Experts.Dense == nil || !c.Experts.Dense[layer])
}

// Window returns the number of tokens to which a token attends in a layer, itself included, or 0 if it attends to
// all.
func (c *Config) Window(layer int) int {
	if c.Full != nil && c.Full[layer] {
		return 0
	}
	return c.SlidingWindow
}

// Chunk returns the size of the chunks of a layer's attention, or 0 if it has none.
func (c *Config) Chunk(layer int) int {
	if c.Full != nil && c.Full[layer] {
		return 0
	}
	return c.AttentionChunk
}

// RopeOf returns the rotary embedding of a layer, or nil if it has none.
func (c *Config) RopeOf(layer int) *Rope {
	switch {
	case c.NoRope != nil && c.NoRope[layer]:
		return nil
	case c.LocalRope != nil && c.Window(layer) > 0:
		return c.LocalRope
	}
	return c.Rope
}

// AttentionFactor returns the factor of products of queries and keys.
func (c *Config) AttentionFactor() float32 {
	if c.AttentionScale != 0 {
		return float32(c.AttentionScale)
	}
	return float32(1 / math.Sqrt(float64(c.HeadDim)))
}

// check returns an error if this package cannot compute the model, or if a size is below 1 or implausibly large.
func (c *Config) check() error {
	const limit = 1 << 24
	for _, n := range []struct {
		name  string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"num_hidden_layers", c.NumLayers},
		{"num_attention_heads", c.NumHeads}, {"num_key_value_heads", c.NumKVHeads}, {"head_dim", c.HeadDim},
		{"intermediate_size", c.IntermediateSize}, {"max_position_embeddings", c.MaxModelLen},
	} {
		if n.value < 1 || n.value > limit {
			return refused("%s is %d", n.name, n.value)
		}
	}
	switch {
	case c.NumHeads%c.NumKVHeads != 0:
		return refused("%d query heads on %d key heads: want a multiple", c.NumHeads, c.NumKVHeads)
	case c.HeadDim > 256 || c.HeadDim%8 != 0:
		return refused("heads of %d elements: want a multiple of 8 up to 256", c.HeadDim)
	case !(c.NormEps > 0 && c.NormEps < 1):
		return refused("the epsilon of norms is %v", c.NormEps)
	case c.SlidingWindow < 0 || c.AttentionChunk < 0:
		return refused("a sliding window of %d tokens, chunks of %d", c.SlidingWindow, c.AttentionChunk)
	case c.Temperature != nil && !(c.Temperature.Floor >= 1 && c.Temperature.Scale >= 0 && c.Temperature.Scale <= 1<<24):
		return refused("queries are scaled by %v every %v tokens", c.Temperature.Scale, c.Temperature.Floor)
	}
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"the scale of attention", c.AttentionScale}, {"the soft cap of attention", c.AttentionCap},
		{"the soft cap of logits", c.LogitCap}, {"the scale of logits", c.LogitScale},
		{"the scale of embeddings", c.EmbeddingScale}, {"the scale of residuals", c.ResidualScale},
	} {
		if !(v.value >= 0 && v.value <= limit) {
			return refused("%s is %v", v.name, v.value)
		}
	}
	if err := errors.Join(c.checkLayers(), c.checkRecurrence()); err != nil {
		return err
	}
	for _, id := range c.End {
		if id < 0 || int(id) >= c.VocabSize {
			return refused("eos_token_id is %d; the vocabulary has %d tokens", id, c.VocabSize)
		}
	}
	if c.Latent != nil {
		if err := c.Latent.check(c); err != nil {
			return err
		}
	}
	if c.Mixed != nil {
		if err := c.Mixed.check(c); err != nil {
			return err
		}
	}
	for _, r := range []*Rope{c.Rope, c.LocalRope} {
		if r != nil {
			if err := r.check(c.largestHead()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Config) checkLayers() error {
	e := c.Experts
	if e == nil {
		e = &Experts{Count: 1, PerToken: 1, IntermediateSize: 1}
	}
	for _, list := range [][]bool{c.Full, c.NoRope, e.Dense} {
		if list != nil && len(list) != c.NumLayers {
			return refused("%d layers are described, there are %d", len(list), c.NumLayers)
		}
	}
	switch {
	case e.Count < 1 || e.Count > 1<<16 || e.PerToken < 1 || e.PerToken > e.Count:
		return refused("%d of %d experts for each token", e.PerToken, e.Count)
	case e.IntermediateSize < 1 || e.IntermediateSize > 1<<24 || e.SharedSize < 0 || e.SharedSize > 1<<24:
		return refused("experts of %d and %d columns", e.IntermediateSize, e.SharedSize)
	case c.Experts != nil && !c.Gated() && c.Activation != ReLU2:
		return refused("experts without a gate")
	case !(e.Scale >= 0 && e.Scale <= 1<<24):
		return refused("the weights of experts are multiplied by %v", e.Scale)
	case e.Groups > 1:
		if size := e.Count / e.Groups; e.Groups > maxGroups || size*e.Groups != e.Count || e.Correction && size < 2 || e.Chosen < 1 || e.Chosen > e.Groups ||
			e.Chosen*size < e.PerToken {
			return refused("%d of %d experts for each token, in %d of %d groups", e.PerToken, e.Count, e.Chosen, e.Groups)
		}
	}
	return nil
}
