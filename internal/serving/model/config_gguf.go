package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/serving/model/weights"
)

// ggufWithoutEffect lists keys that the check for unread keys accepts, because they do not change the logits. Granite
// reads rope.scaling.finetuned; for the other architectures, llama.cpp does not read it either.
var ggufWithoutEffect = []string{
	"vocab_size", "tensor_data_layout", "pooling_type", "classifier.output_labels", "attention.layer_norm_epsilon", "rope.scaling.finetuned",
}

// ggufNeutral has keys that this package does not read, or reads only for some architectures. It maps each key to the
// value that does not change the model's computation. A file with another value of a key that was not read is refused.
var ggufNeutral = map[string]float64{
	"expert_count": 0, "expert_used_count": 0, "expert_shared_count": 0, "expert_group_count": 0,
	"expert_group_used_count": 0, "leading_dense_block_count": 0, "nextn_predict_layers": 0,
	"attention.causal": 1, "attention.clamp_kqv": 0, "attention.max_alibi_bias": 0, "attention.scale": 0, "attn_logit_softcapping": 0, "final_logit_softcapping": 0,
	"logit_scale": 1, "embedding_scale": 1, "residual_scale": 1, "expert_weights_scale": 1,
	"rope.scaling.yarn_beta_fast": 32, "rope.scaling.yarn_beta_slow": 1,
}

// ggufKeys reads the metadata keys that begin with an architecture's name. err is the first error: a missing key or
// a value that is not supported.
type ggufKeys struct {
	family string
	meta   map[string]weights.Value
	read   []string
	has    func(tensor string) bool
	err    error
}

func (k *ggufKeys) look(key string) (weights.Value, bool) {
	k.read = append(k.read, key)
	v, ok := k.meta[k.family+"."+key]
	return v, ok
}

// need returns key, and sets err if the file lacks it.
func (k *ggufKeys) need(key string) string {
	if _, given := k.look(key); !given && k.err == nil {
		k.err = refused("the key %s.%s is missing", k.family, key)
	}
	return key
}

func (k *ggufKeys) refuse(key, want string) {
	if k.err == nil {
		k.err = refused("%s.%s is not %s", k.family, key, want)
	}
}

func (k *ggufKeys) int(key string, otherwise int) int {
	v, given := k.look(key)
	if !given {
		return otherwise
	}
	n, ok := v.Int()
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		k.refuse(key, "an integer of 32 bits for all layers")
	}
	return int(n)
}

// layersWithKeys reads the number of key heads of each layer. Layers without key heads have a state.
func (k *ggufKeys) layersWithKeys(c *Config) {
	const key = "attention.head_count_kv"
	v, _ := k.look(k.need(key))
	heads := v.Floats()
	if len(heads) != c.NumLayers {
		k.refuse(key, "a list with a number for each layer")
		return
	}
	for _, n := range heads {
		c.Recurrence.Layers = append(c.Recurrence.Layers, n == 0)
		if n != 0 && c.NumKVHeads != 0 && int(n) != c.NumKVHeads {
			k.refuse(key, "the same number in all layers with attention")
		}
		if n != 0 {
			c.NumKVHeads = int(min(max(n, 0), math.MaxInt32))
		}
	}
}

// layersWithMLP reads the size of the MLP of each layer of a model whose layers have one half. Other layers with no key
// heads have a state. layersWithKeys must have been called.
func (k *ggufKeys) layersWithMLP(c *Config) {
	const key = "feed_forward_length"
	v, _ := k.look(k.need(key))
	sizes := v.Floats()
	if len(sizes) != len(c.Recurrence.Layers) {
		k.refuse(key, "a list with a number for each layer")
		return
	}
	for i, n := range sizes {
		if n == 0 {
			c.Halves = append(c.Halves, Mixer)
			continue
		}
		if c.IntermediateSize != 0 && int(n) != c.IntermediateSize || !c.Recurrence.Layers[i] {
			k.refuse(key, "the same number in all layers with an MLP, and 0 in those with attention")
		}
		c.Halves, c.Recurrence.Layers[i] = append(c.Halves, FeedForward), false
		c.IntermediateSize = int(min(max(n, 0), math.MaxInt32))
	}
}

func (k *ggufKeys) float(key string, otherwise float64) float64 {
	v, given := k.look(key)
	if !given {
		return otherwise
	}
	f, ok := v.Float()
	if !ok {
		k.refuse(key, "a number")
	}
	return f
}

func (k *ggufKeys) text(key string) string {
	v, given := k.look(key)
	if given && v.String() == "" {
		k.refuse(key, "a text")
	}
	return v.String()
}

// check returns err, or an error for the first key that was not read and may change the logits.
func (k *ggufKeys) check() error {
	if k.err != nil {
		return k.err
	}
	for _, full := range slices.Sorted(maps.Keys(k.meta)) {
		key, ok := strings.CutPrefix(full, k.family+".")
		if !ok || slices.Contains(k.read, key) || slices.Contains(ggufWithoutEffect, key) {
			continue
		}
		neutral, known := ggufNeutral[key]
		if !known {
			return refused("the key %q is not supported in GGUF", full)
		}
		if v, ok := k.meta[full].Float(); !ok || v != neutral {
			return refused("the key %q is supported only with the value %v, which changes nothing", full, neutral)
		}
	}
	return nil
}

// ConfigFromGGUF reads the metadata of a GGUF file.
func ConfigFromGGUF(g *weights.GGUF) (*Config, error) {
	f, err := ggufFamily(g)
	if err != nil {
		return nil, err
	}
	k := &ggufKeys{family: f.gguf.architecture, meta: g.Meta, has: func(tensor string) bool { return g.Get(tensor) != nil }}
	c, err := f.fromGGUF(k, g)
	if err == nil {
		err = k.check()
	}
	if err != nil {
		return nil, err
	}
	return c, c.check()
}

func ggufFamily(g *weights.GGUF) (*family, error) {
	name := g.Meta["general.architecture"].String()
	if name == "" {
		return nil, refused("the key general.architecture is missing")
	}
	if kind := g.Meta["general.type"].String(); kind == "adapter" {
		return nil, refused("the file is an adapter (LoRA) and not a model; give its base model, and the adapter with " +
			"--lora-modules NAME=FILE")
	}
	var known []string
	for _, f := range families {
		switch f.gguf.architecture {
		case name:
			return f, nil
		case "":
		default:
			known = append(known, f.gguf.architecture)
		}
	}
	slices.Sort(known)
	return nil, refused("general.architecture is %q; supported in GGUF are %s", name, strings.Join(known, ", "))
}

// fromGGUF reads the configuration of a model of the family. Projections of attention have biases if the family's rules
// or the file's tensors of layer 0 have them; those of an MLP, if these tensors have them.
func (f *family) fromGGUF(k *ggufKeys, g *weights.GGUF) (*Config, error) {
	c := f.config()
	c.Family = f.gguf.architecture
	c.NumHeads = k.int(k.need("attention.head_count"), 0)
	c.HiddenSize, c.NumLayers = k.int(k.need("embedding_length"), 0), k.int(k.need("block_count"), 0)
	if f.gguf.routed {
		c.DraftLayers = k.int("nextn_predict_layers", 0)
		c.NumLayers -= c.DraftLayers
	}
	if c.Recurrence != nil {
		k.layersWithKeys(c)
	} else {
		c.NumKVHeads = k.int("attention.head_count_kv", c.NumHeads)
	}
	if f.gguf.halves {
		k.layersWithMLP(c)
	} else {
		c.IntermediateSize = k.int("feed_forward_length", 0)
	}
	c.MaxModelLen = k.int(k.need("context_length"), 0)
	c.NormEps = k.float(k.need("attention.layer_norm_rms_epsilon"), 0)
	if k.err != nil {
		return nil, k.err
	}
	if err := c.headsFromGGUF(k); err != nil {
		return nil, err
	}
	hasTensor := func(tensor string) bool { return k.has("blk.0." + tensor) }
	c.QKVBias = c.QKVBias || slices.ContainsFunc([]string{"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"}, hasTensor)
	c.OutBias = c.OutBias || hasTensor("attn_output.bias")
	c.MLPBias = slices.ContainsFunc([]string{"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"}, hasTensor)
	c.TieEmbeddings = g.Get("output.weight") == nil
	if t := g.Get("token_embd.weight"); t != nil {
		c.VocabSize = t.Rows
	}
	if f.rootEmbedding {
		c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	}
	if err := f.ropeFromGGUF(c, k, g); err != nil {
		return nil, err
	}
	f.layersFromGGUF(c, k)
	c.dropUnusedRecurrence()
	return c, nil
}

// headsFromGGUF reads the sizes of heads. Files with latent attention have those of the cache's keys and values in
// key_length and value_length; older files have those of the heads.
func (c *Config) headsFromGGUF(k *ggufKeys) error {
	if c.NumHeads > 0 {
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	c.HeadDim = k.int("attention.key_length", c.HeadDim)
	value := k.int("attention.value_length", c.HeadDim)
	if c.Latent == nil {
		if value != c.HeadDim {
			return refused("values of %d elements beside keys of %d", value, c.HeadDim)
		}
		return nil
	}
	c.HeadDim = k.int("attention.key_length_mla", c.HeadDim)
	a := &Latent{QueryRank: k.int("attention.q_lora_rank", 0), KVRank: k.int(k.need("attention.kv_lora_rank"), 0),
		RopeDim: k.int(k.need("rope.dimension_count"), 0), ValueDim: k.int("attention.value_length_mla", value)}
	a.NopeDim = c.HeadDim - a.RopeDim
	c.Latent, c.NumKVHeads = a, 1
	return k.err
}

func (f *family) layersFromGGUF(c *Config, k *ggufKeys) {
	if f.noRopeEvery > 0 {
		c.NoRope = everyFrom(c.NumLayers, f.noRopeEvery)
	}
	if f.window != nil && f.window.period > 0 {
		c.SlidingWindow = k.int("attention.sliding_window", f.window.ggufSize)
		if period := k.int("attention.sliding_window_pattern", f.window.period); period > 0 {
			c.Full = everyFrom(c.NumLayers, period)
		}
	} else if n := k.int("attention.sliding_window", 0); n < c.MaxModelLen {
		c.UnusedWindow = max(0, n)
	}
	if f.localRope {
		c.LocalRope = &Rope{Theta: k.float("rope.freq_base_swa", cmp.Or(f.localTheta, c.Rope.Theta)),
			Interleaved: c.Rope.Interleaved, Dim: c.Rope.Dim}
	}
	if c.Experts != nil {
		f.expertsFromGGUF(c, k)
	}
	if f.gguf.finish != nil {
		f.gguf.finish(c, k)
	}
	if c.IntermediateSize == 0 {
		k.need("feed_forward_length")
	}
}

// expertsFromGGUF reads the keys of a mixture of experts. It sets c.Experts to nil if expert_count is missing or 0.
func (f *family) expertsFromGGUF(c *Config, k *ggufKeys) {
	e := c.Experts
	if e.SharedGate {
		e.SharedSize = k.int("expert_shared_feed_forward_length", c.IntermediateSize)
	}
	e.IntermediateSize, e.Count = k.int(f.gguf.expertSize, 0), k.int("expert_count", 0)
	if e.Count == 0 {
		c.Experts = nil
		return
	}
	e.PerToken = k.int("expert_used_count", 0)
	if e.IntermediateSize == 0 && e.PerToken > 0 {
		e.IntermediateSize = c.IntermediateSize / e.PerToken
	}
	if f.gguf.routed {
		e.routedFromGGUF(c.NumLayers, k)
		return
	}
	c.IntermediateSize = e.IntermediateSize // no layer has a dense MLP
}

// routedFromGGUF reads how experts are chosen in DeepSeek and GLM. Files that do not say so have a softmax, or sigmoids
// if they have a correction, as in llama.cpp.
func (e *Experts) routedFromGGUF(layers int, k *ggufKeys) {
	first := k.int("leading_dense_block_count", 0)
	e.SharedSize = k.int("expert_shared_count", 0) * e.IntermediateSize
	e.Scale, e.Normalize = k.float("expert_weights_scale", 0), k.float("expert_weights_norm", 0) != 0
	e.Groups, e.Chosen = k.int("expert_group_count", 0), k.int("expert_group_used_count", 0)
	e.Correction = k.has(fmt.Sprintf("blk.%d.exp_probs_b.bias", first))
	const none, softmax, sigmoid = 0, 1, 2
	switch function := k.int("expert_gating_func", none); function {
	case none:
		e.Sigmoid = e.Correction
	case softmax, sigmoid:
		e.Sigmoid = function == sigmoid
	default:
		k.refuse("expert_gating_func", "1 (softmax) or 2 (sigmoid)")
	}
	e.denseLayers(layers, func(i int) bool { return i < first })
}

// Tensors with factors of frequencies: Llama 3.1's, and those of longrope.
const (
	ropeFactors = "rope_freqs.weight"
	ropeShort   = "rope_factors_short.weight"
	ropeLong    = "rope_factors_long.weight"
)

// ropeFromGGUF reads the scaling of the rotary embedding as llama.cpp does. The scaling is linear if the file does
// not name its type. rope.scale_linear is an older name of rope.scaling.factor. A factor of 0 means 1.
func (f *family) ropeFromGGUF(c *Config, k *ggufKeys, g *weights.GGUF) error {
	r := &Rope{Theta: k.float("rope.freq_base", 10000), Attention: k.float("rope.scaling.attn_factor", 0),
		Interleaved: f.gguf.interleaved}
	c.Rope = r
	if n := k.int("rope.dimension_count", c.HeadDim); n != c.HeadDim {
		if f.gguf.wholeHeads {
			return refused("%d of %d elements of a head are rotated; all is supported", n, c.HeadDim)
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
		r.Yarn = &Yarn{Factor: factor, OriginalLength: float64(original), BetaFast: k.float("rope.scaling.yarn_beta_fast", 32),
			BetaSlow: k.float("rope.scaling.yarn_beta_slow", 1)}
		r.Attention = yarnAttention(factor, 1) * cmp.Or(r.Attention, 1)
	default:
		return refused("rope scaling of type %q; linear, yarn and longrope are supported", kind)
	}
	if t := g.Get(ropeFactors); t != nil && f.gguf.factors { // otherwise llama.cpp ignores it
		r.Factors = factorsOf(t)
	}
	if !f.gguf.longFactors {
		return nil
	}
	short, long := g.Get(ropeShort), g.Get(ropeLong)
	missing := func(tensor, found string) error {
		return refused("the tensor %q is missing; the file has %s", tensor, found)
	}
	switch {
	case short != nil && long != nil:
		r.Long = &LongRope{Short: factorsOf(short), Long: factorsOf(long), OriginalLength: original}
	case short != nil:
		return missing(ropeLong, strconv.Quote(ropeShort))
	case long != nil:
		return missing(ropeShort, strconv.Quote(ropeLong))
	case f.gguf.longScaled && r.Yarn == nil && r.Attention != 0 && r.Attention != 1:
		return missing(ropeLong, f.gguf.architecture+".rope.scaling.attn_factor")
	}
	return nil
}

func factorsOf(t *weights.Tensor) (factors []float64) {
	for _, f := range t.Vector() {
		factors = append(factors, float64(f))
	}
	return factors
}
