package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/model/weights"
)

// ggufIdle are keys that change no logits, in architectures for which they are not read below. llama.cpp does not
// read them there either.
var ggufIdle = []string{
	"vocab_size", "tensor_data_layout", "pooling_type", "attention.layer_norm_epsilon", "rope.scaling.finetuned",
}

// ggufNeutral are the values with which other keys of an architecture change nothing.
var ggufNeutral = map[string]float64{
	"expert_count": 0, "expert_used_count": 0, "expert_shared_count": 0, "expert_group_count": 0,
	"expert_group_used_count": 0, "leading_dense_block_count": 0, "nextn_predict_layers": 0,
	"attention.causal": 1, "attention.clamp_kqv": 0, "attention.max_alibi_bias": 0, "attention.scale": 0, "attn_logit_softcapping": 0, "final_logit_softcapping": 0,
	"logit_scale": 1, "embedding_scale": 1, "residual_scale": 1, "expert_weights_scale": 1,
	"rope.scaling.yarn_beta_fast": 32, "rope.scaling.yarn_beta_slow": 1,
}

// ggufFamilies are the architectures, each with the function that reads its own keys.
var ggufFamilies = map[string]func(c *Config, k *ggufKeys){
	"llama": func(c *Config, k *ggufKeys) {
		c.Rope.Interleaved = true
		c.expertsFromGGUF(k, c.IntermediateSize, true) // Mixtral
	},
	"qwen2": func(*Config, *ggufKeys) {},
	"qwen3": func(c *Config, _ *ggufKeys) { c.QKNorm = HeadNorm },
	"qwen2moe": func(c *Config, k *ggufKeys) {
		shared := k.int("expert_shared_feed_forward_length", c.IntermediateSize)
		c.expertsFromGGUF(k, k.int("expert_feed_forward_length", 0), false)
		if c.Experts != nil {
			c.Experts.SharedSize, c.Experts.SharedGate = shared, true
		}
	},
	"qwen3moe": func(c *Config, k *ggufKeys) {
		c.QKNorm = HeadNorm
		c.expertsFromGGUF(k, k.int("expert_feed_forward_length", 0), true)
	},
	"phi3": func(*Config, *ggufKeys) {},
	"smollm3": func(c *Config, _ *ggufKeys) {
		c.Rope.Interleaved, c.NoRope = true, everyFrom(c.NumLayers, 4)
	},
	"granite": func(c *Config, k *ggufKeys) {
		c.Rope.Interleaved = true
		c.EmbeddingScale, c.ResidualScale = k.float("embedding_scale", 0), k.float("residual_scale", 0)
		c.AttentionScale = k.float("attention.scale", 0)
		scale := k.float("logit_scale", 1)
		if scale == 0 {
			k.wrong("logit_scale", "above 0")
		}
		c.LogitScale = 1 / scale
		if k.float("rope.scaling.finetuned", 1) == 0 {
			c.NoRope = everyFrom(c.NumLayers, 1)
		}
	},
	"olmo2": func(c *Config, k *ggufKeys) { // and OLMo 3, whose layers with a window have no rope scaling
		c.NormPlace, c.QKNorm = NormAfter, WidthNorm
		c.windowsFromGGUF(k, 0, 4)
		c.LocalRope = &Rope{Theta: k.float("rope.freq_base_swa", c.Rope.Theta)}
	},
	"gemma2": func(c *Config, k *ggufKeys) {
		c.gemma(46)
		c.windowsFromGGUF(k, 4096, 2)
		c.AttentionCap = k.float("attn_logit_softcapping", 50)
		c.LogitCap = k.float("final_logit_softcapping", 30)
	},
	"gemma3": func(c *Config, k *ggufKeys) {
		c.gemma(62)
		c.QKNorm = HeadNorm
		c.windowsFromGGUF(k, 0, 6)
		c.LocalRope = &Rope{Theta: k.float("rope.freq_base_swa", 10000)}
		c.LogitCap = k.float("final_logit_softcapping", 0)
	},
	"gpt-oss": func(c *Config, k *ggufKeys) {
		c.Activation, c.Sinks = ClampedSwiGLU, true
		k.need("attention.sliding_window")
		c.windowsFromGGUF(k, 0, 2)
		c.expertsFromGGUF(k, k.int("expert_feed_forward_length", 0), true)
		if c.Experts != nil {
			c.Experts.Bias, c.Experts.RouterBias = true, true
		}
	},
}

// gemma sets what Gemma 2 and 3 share. The largest model of each has another scale of attention.
func (c *Config) gemma(largest int) {
	c.NormPlace, c.Activation, c.EmbeddingScale = NormAround, GatedGELU, math.Sqrt(float64(c.HiddenSize))
	if c.NumLayers == largest && c.NumHeads > 0 {
		c.AttentionScale = 1 / math.Sqrt(float64(c.HiddenSize/c.NumHeads))
	}
}

// everyFrom marks the last of every n layers.
func everyFrom(layers, n int) []bool {
	marks := make([]bool, max(0, min(layers, 1<<24)))
	for i := n - 1; i >= 0 && i < len(marks); i += n {
		marks[i] = true
	}
	return marks
}

// windowsFromGGUF reads the window. The last of every few layers has none.
func (c *Config) windowsFromGGUF(k *ggufKeys, window, every int) {
	c.SlidingWindow = k.int("attention.sliding_window", window)
	every = k.int("attention.sliding_window_pattern", every)
	if every > 0 {
		c.Full = everyFrom(c.NumLayers, every)
	}
}

// expertsFromGGUF reads the keys of a mixture of experts.
func (c *Config) expertsFromGGUF(k *ggufKeys, inter int, normalize bool) {
	n := k.int("expert_count", 0)
	if n == 0 {
		return
	}
	used := k.int("expert_used_count", 0)
	if inter == 0 && used > 0 {
		inter = c.IntermediateSize / used
	}
	c.Experts = &Experts{Count: n, PerToken: used, IntermediateSize: inter, Normalize: normalize}
	c.IntermediateSize = inter // there is no other
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

// need returns key. A file without it is refused.
func (k *ggufKeys) need(key string) string {
	if _, given := k.look(key); !given && k.err == nil {
		k.err = fmt.Errorf("%w: the key %s.%s is missing", ErrModel, k.family, key)
	}
	return key
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
	if family == "" {
		return nil, fmt.Errorf("%w: the key general.architecture is missing", ErrModel)
	}
	if kind := g.Meta["general.type"].String(); kind == "adapter" {
		return nil, fmt.Errorf("%w: the file is an adapter (LoRA), and adapters are not applied; merge it into its base model "+
			"(llama.cpp's llama-export-lora) and give the merged file", ErrModel)
	}
	special, ok := ggufFamilies[family]
	if !ok {
		return nil, fmt.Errorf("%w: general.architecture is %q; supported in GGUF are %s", ErrModel, family,
			strings.Join(slices.Sorted(maps.Keys(ggufFamilies)), ", "))
	}
	k := &ggufKeys{family: family, meta: g.Meta}
	has := func(tensor string) bool { return g.Get("blk.0."+tensor) != nil }
	heads := k.int(k.need("attention.head_count"), 0)
	c := &Config{
		Family: family, HiddenSize: k.int(k.need("embedding_length"), 0), NumLayers: k.int(k.need("block_count"), 0),
		NumHeads: heads, NumKVHeads: k.int("attention.head_count_kv", heads),
		IntermediateSize: k.int("feed_forward_length", 0), MaxModelLen: k.int(k.need("context_length"), 0),
		Activation: SiLU, TieEmbeddings: g.Get("output.weight") == nil,
		QKVBias: strings.HasPrefix(family, "qwen2") || has("attn_q.bias") || has("attn_k.bias") || has("attn_v.bias") ||
			has("attn_qkv.bias"),
		OutBias: has("attn_output.bias"),
		MLPBias: has("ffn_gate.bias") || has("ffn_up.bias") || has("ffn_down.bias"),
		NormEps: k.float(k.need("attention.layer_norm_rms_epsilon"), 0),
	}
	if k.err != nil {
		return nil, k.err
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
	if err := c.ropeFromGGUF(k, g); err != nil {
		return nil, err
	}
	special(c, k)
	if c.IntermediateSize == 0 {
		k.need("feed_forward_length")
	}
	if !slices.Contains(k.read, "attention.sliding_window") {
		if n := k.int("attention.sliding_window", 0); n < c.MaxModelLen {
			c.UnusedWindow = max(0, n)
		}
	}
	if l := c.LocalRope; l != nil {
		l.Interleaved, l.Dim = c.Rope.Interleaved, c.Rope.Dim
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	return c, c.check()
}

// ropeFactors is the tensor by which Llama 3.1 stretches frequencies; the others are those of longrope.
const (
	ropeFactors = "rope_freqs.weight"
	ropeShort   = "rope_factors_short.weight"
	ropeLong    = "rope_factors_long.weight"
)

// ropeFromGGUF reads rope scaling as llama.cpp does: without a type it is linear, and scale_linear is an
// older name of the factor, where 0 is 1.
func (c *Config) ropeFromGGUF(k *ggufKeys, g *weights.GGUF) error {
	r := &Rope{Theta: k.float("rope.freq_base", 10000), Attention: k.float("rope.scaling.attn_factor", 0)}
	c.Rope = r
	if n := k.int("rope.dimension_count", c.HeadDim); n != c.HeadDim {
		if c.Family == "llama" {
			return fmt.Errorf("%w: %d of %d elements of a head are rotated; all is supported", ErrModel, n, c.HeadDim)
		}
		r.Dim = n
	}
	factor := k.float("rope.scaling.factor", k.float("rope.scale_linear", 0))
	original := k.int("rope.scaling.original_context_length", c.MaxModelLen)
	switch kind := k.text("rope.scaling.type"); kind {
	case "", "linear":
		r.Linear = factor
	case "none", "longrope":
	case "yarn":
		factor = max(factor, 1)
		r.Yarn = &Yarn{Factor: factor, OriginalLength: float64(original), BetaFast: 32, BetaSlow: 1}
		r.Attention = yarnAttention(factor, 1) * cmp.Or(r.Attention, 1)
	default:
		return fmt.Errorf("%w: rope scaling of type %q; linear, yarn and longrope are supported", ErrModel, kind)
	}
	if t := g.Get(ropeFactors); t != nil && (c.Family == "llama" || c.Family == "granite") { // else it is not used
		r.Factors = factorsOf(t)
	}
	if c.Family != "llama" && c.Family != "granite" && c.Family != "phi3" {
		return nil
	}
	short, long := g.Get(ropeShort), g.Get(ropeLong)
	missing := func(tensor, has string) error {
		return fmt.Errorf("%w: the tensor %q is missing; the file has %s", ErrModel, tensor, has)
	}
	switch {
	case short != nil && long != nil:
		r.Long = &LongRope{Short: factorsOf(short), Long: factorsOf(long), OriginalLength: original}
	case short != nil:
		return missing(ropeLong, strconv.Quote(ropeShort))
	case long != nil:
		return missing(ropeShort, strconv.Quote(ropeLong))
	case c.Family == "phi3" && r.Yarn == nil && r.Attention != 0 && r.Attention != 1:
		return missing(ropeLong, "phi3.rope.scaling.attn_factor")
	}
	return nil
}

func factorsOf(t *weights.Tensor) (factors []float64) {
	for _, f := range t.Vector() {
		factors = append(factors, float64(f))
	}
	return factors
}
