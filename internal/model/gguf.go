package model

import (
	"fmt"
	"math"

	"llmmemory/internal/model/weights"
)

// ConfigFromGGUF reads the metadata of a GGUF file. Mistral calls itself llama
// there.
func ConfigFromGGUF(g *weights.GGUF) (*Config, error) {
	family := g.Meta["general.architecture"].String()
	if family != "llama" && family != "qwen2" && family != "qwen3" {
		return nil, fmt.Errorf("%w: general.architecture is %q; llama, qwen2 and qwen3 are supported in GGUF", ErrModel, family)
	}
	number := func(key string, otherwise int) int {
		v, ok := g.Meta[family+"."+key].Int()
		if !ok || v < math.MinInt32 || v > math.MaxInt32 {
			return otherwise
		}
		return int(v)
	}
	if n := number("expert_count", 0); n > 0 {
		return nil, fmt.Errorf("%w: a mixture of %d experts is not supported", ErrModel, n)
	}
	heads := number("attention.head_count", 0)
	c := &Config{
		Family: family, HiddenSize: number("embedding_length", 0), NumLayers: number("block_count", 0),
		NumHeads: heads, NumKVHeads: number("attention.head_count_kv", heads),
		IntermediateSize: number("feed_forward_length", 0), MaxModelLen: number("context_length", 0),
		Activation: SiLU, QKVBias: family == "qwen2", QKNorm: family == "qwen3",
		TieEmbeddings: g.Get("output.weight") == nil,
		SlidingWindow: number("attention.sliding_window", 0),
	}
	c.NormEps, _ = g.Meta[family+".attention.layer_norm_rms_epsilon"].Float()
	if heads > 0 {
		c.HeadDim = number("attention.key_length", c.HiddenSize/heads)
	}
	if v := number("attention.value_length", c.HeadDim); v != c.HeadDim {
		return nil, fmt.Errorf("%w: values of %d elements beside keys of %d", ErrModel, v, c.HeadDim)
	}
	if t := g.Get("token_embd.weight"); t != nil {
		c.VocabSize = t.Rows
	}
	if id, ok := g.Meta["tokenizer.ggml.eos_token_id"].Int(); ok && id >= 0 && id <= math.MaxInt32 {
		c.End = []int32{int32(id)}
	}
	if id, ok := g.Meta["tokenizer.ggml.eot_token_id"].Int(); ok && id >= 0 && id <= math.MaxInt32 {
		c.End = append(c.End, int32(id))
	}
	if err := c.ropeFromGGUF(g); err != nil {
		return nil, err
	}
	return c, c.check()
}

func (c *Config) ropeFromGGUF(g *weights.GGUF) error {
	r := &Rope{Theta: 10000, Interleaved: c.Family == "llama"}
	if v, ok := g.Meta[c.Family+".rope.freq_base"].Float(); ok {
		r.Theta = v
	}
	if v, ok := g.Meta[c.Family+".rope.dimension_count"].Int(); ok && int(v) != c.HeadDim {
		return fmt.Errorf("%w: %d of %d elements of a head are rotated; all is supported", ErrModel, v, c.HeadDim)
	}
	switch kind := g.Meta[c.Family+".rope.scaling.type"].String(); kind {
	case "", "none":
	case "linear":
		r.Linear, _ = g.Meta[c.Family+".rope.scaling.factor"].Float()
	default:
		return fmt.Errorf("%w: rope scaling of type %q; linear is supported", ErrModel, kind)
	}
	if t := g.Get("rope_freqs.weight"); t != nil {
		for _, f := range t.Vector() {
			r.Factors = append(r.Factors, float64(f))
		}
	}
	c.Rope = r
	return nil
}
