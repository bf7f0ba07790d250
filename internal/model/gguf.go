package model

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"llmmemory/internal/model/weights"
)

// ggufIdle are keys of an architecture that change no logits here. llama.cpp does not read them for the
// architectures that are supported, or only with a rope scaling that is not.
var ggufIdle = []string{
	"vocab_size", "tensor_data_layout", "pooling_type", "attention.layer_norm_epsilon", "attention.sliding_window",
	"rope.scaling.original_context_length", "rope.scaling.finetuned",
}

// ggufNeutral are the values with which other keys of an architecture change nothing.
var ggufNeutral = map[string]float64{
	"expert_used_count": 0, "expert_shared_count": 0, "expert_group_count": 0, "expert_group_used_count": 0,
	"leading_dense_block_count": 0, "nextn_predict_layers": 0, "attention.causal": 1, "attention.clamp_kqv": 0,
	"attention.max_alibi_bias": 0, "attention.scale": 0, "attn_logit_softcapping": 0, "final_logit_softcapping": 0,
	"logit_scale": 1, "embedding_scale": 1, "residual_scale": 1, "rope.scaling.attn_factor": 1,
}

// ggufKeys reads the keys of an architecture. err says which value was the first of a wrong type.
type ggufKeys struct {
	family string
	meta   map[string]weights.Value
	read   []string
	err    error
}

// look returns the value of a key and whether the file has it.
func (k *ggufKeys) look(key string) (weights.Value, bool) {
	k.read = append(k.read, key)
	v, ok := k.meta[k.family+"."+key]
	return v, ok
}

func (k *ggufKeys) wrong(key, want string) {
	if k.err == nil {
		k.err = fmt.Errorf("%w: %s.%s is not %s", ErrModel, k.family, key, want)
	}
}

func (k *ggufKeys) int(key string, otherwise int) int {
	v, given := k.look(key)
	if !given {
		return otherwise
	}
	n, ok := v.Int()
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		k.wrong(key, "an integer of 32 bits for all layers")
	}
	return int(n)
}

func (k *ggufKeys) float(key string, otherwise float64) float64 {
	v, given := k.look(key)
	if !given {
		return otherwise
	}
	f, ok := v.Float()
	if !ok {
		k.wrong(key, "a number")
	}
	return f
}

func (k *ggufKeys) text(key string) string {
	v, given := k.look(key)
	if given && v.String() == "" {
		k.wrong(key, "a text")
	}
	return v.String()
}

// check refuses keys that were not read and may change the logits.
func (k *ggufKeys) check() error {
	if k.err != nil {
		return k.err
	}
	for _, full := range slices.Sorted(maps.Keys(k.meta)) {
		key, of := strings.CutPrefix(full, k.family+".")
		if !of || slices.Contains(k.read, key) || slices.Contains(ggufIdle, key) {
			continue
		}
		neutral, known := ggufNeutral[key]
		if !known {
			return fmt.Errorf("%w: the key %q is not supported in GGUF", ErrModel, full)
		}
		if v, ok := k.meta[full].Float(); !ok || v != neutral {
			return fmt.Errorf("%w: the key %q is supported only with the value %v, which changes nothing",
				ErrModel, full, neutral)
		}
	}
	return nil
}

// ConfigFromGGUF reads the metadata of a GGUF file. Mistral calls itself llama
// there.
func ConfigFromGGUF(g *weights.GGUF) (*Config, error) {
	family := g.Meta["general.architecture"].String()
	if family != "llama" && family != "qwen2" && family != "qwen3" {
		return nil, fmt.Errorf("%w: general.architecture is %q; llama, qwen2 and qwen3 are supported in GGUF", ErrModel,
			family)
	}
	k := &ggufKeys{family: family, meta: g.Meta}
	if n := k.int("expert_count", 0); n > 0 {
		return nil, fmt.Errorf("%w: a mixture of %d experts is not supported", ErrModel, n)
	}
	has := func(tensor string) bool { return g.Get("blk.0."+tensor) != nil }
	heads := k.int("attention.head_count", 0)
	c := &Config{
		Family: family, HiddenSize: k.int("embedding_length", 0), NumLayers: k.int("block_count", 0),
		NumHeads: heads, NumKVHeads: k.int("attention.head_count_kv", heads),
		IntermediateSize: k.int("feed_forward_length", 0), MaxModelLen: k.int("context_length", 0),
		Activation: SiLU, QKNorm: family == "qwen3", TieEmbeddings: g.Get("output.weight") == nil,
		QKVBias: family == "qwen2" || has("attn_q.bias") || has("attn_k.bias") || has("attn_v.bias"),
		OutBias: has("attn_output.bias"),
		MLPBias: has("ffn_gate.bias") || has("ffn_up.bias") || has("ffn_down.bias"),
		NormEps: k.float("attention.layer_norm_rms_epsilon", 0),
	}
	if heads > 0 {
		c.HeadDim = c.HiddenSize / heads
	}
	c.HeadDim = k.int("attention.key_length", c.HeadDim)
	if v := k.int("attention.value_length", c.HeadDim); v != c.HeadDim {
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
	if err := c.ropeFromGGUF(k, g.Get(ropeFactors)); err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	return c, c.check()
}

// ropeFactors is the tensor by which Llama 3.1 stretches frequencies.
const ropeFactors = "rope_freqs.weight"

// ropeFromGGUF reads rope scaling as llama.cpp does: without a type it is linear, and scale_linear is an
// older name of the factor, where 0 is 1.
func (c *Config) ropeFromGGUF(k *ggufKeys, factors *weights.Tensor) error {
	c.Rope = &Rope{Theta: k.float("rope.freq_base", 10000), Interleaved: c.Family == "llama"}
	if n := k.int("rope.dimension_count", c.HeadDim); n != c.HeadDim {
		return fmt.Errorf("%w: %d of %d elements of a head are rotated; all is supported", ErrModel, n, c.HeadDim)
	}
	factor := k.float("rope.scaling.factor", k.float("rope.scale_linear", 0))
	switch kind := k.text("rope.scaling.type"); kind {
	case "", "linear":
		c.Rope.Linear = factor
	case "none":
	default:
		return fmt.Errorf("%w: rope scaling of type %q; linear is supported", ErrModel, kind)
	}
	if factors != nil && c.Family == "llama" { // elsewhere it is a tensor that is not used
		for _, f := range factors.Vector() {
			c.Rope.Factors = append(c.Rope.Factors, float64(f))
		}
	}
	return nil
}
