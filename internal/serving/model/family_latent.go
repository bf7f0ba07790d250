package model

import (
	"cmp"
	"math"
	"slices"
)

// The families with latent attention. As in vLLM, the latent norms have the epsilon rms_norm_eps, the weights of V2's
// experts are normalized if norm_topk_prob says so, and the scale of V2's attention depends on mscale_all_dim too.

var deepSeekV2 = family{
	rules: Config{Latent: &Latent{}, Experts: &Experts{}},
	folder: inFolder{name: "deepseek_v2", fixedBiases: true, names: deepSeekNames, prepare: prepareLatent,
		finish: func(c *Config, p *published) error { return readDeepSeek(c, p, "greedy", "softmax") }},
	gguf: inGGUF{architecture: "deepseek2", interleaved: true, expertSize: "expert_feed_forward_length", routed: true,
		finish: readDeepSeekGGUF},
}

// readDeepSeekGGUF reads the settings of DeepSeek V2, V3, Kimi K2 and GLM-4.7-Flash. The key yarn_log_multiplier is
// mscale_all_dim / 10, and mscale is the same number.
func readDeepSeekGGUF(c *Config, k *ggufKeys) {
	if all := k.float("rope.scaling.yarn_log_multiplier", 0); all != 0 && c.Rope.Yarn != nil && c.HeadDim > 0 {
		factor := yarnAttention(c.Rope.Yarn.Factor, 10*all)
		c.AttentionScale, c.Rope.Attention = factor*factor/math.Sqrt(float64(c.HeadDim)), k.float("rope.scaling.attn_factor", 1)
	}
}

var deepSeekV3 = family{
	rules: Config{Latent: &Latent{}, Experts: &Experts{}},
	folder: inFolder{name: "deepseek_v3", fixedBiases: true, names: deepSeekNames, prepare: prepareLatent,
		finish: func(c *Config, p *published) error { return readDeepSeek(c, p, "noaux_tc", "sigmoid") }},
}

// kimiK2 has the form of DeepSeek V3.
var kimiK2 = family{
	rules: deepSeekV3.rules,
	folder: inFolder{name: "kimi_k2", fixedBiases: true, names: deepSeekNames, prepare: prepareLatent,
		finish: deepSeekV3.folder.finish},
}

// glmFlash is GLM-4.7-Flash, which has the form of DeepSeek V3. Its values are longer than the part of keys that is not
// rotated.
var glmFlash = family{
	rules: deepSeekV3.rules,
	folder: inFolder{name: "glm4_moe_lite", eps: 1e-5, fixedBiases: true, names: deepSeekNames, prepare: prepareLatent,
		finish: deepSeekV3.folder.finish},
}

func deepSeekNames(n *names) {
	n.sharedGate, n.sharedUp = "layers.%d.mlp.shared_experts.gate_proj", "layers.%d.mlp.shared_experts.up_proj"
	n.sharedDown = "layers.%d.mlp.shared_experts.down_proj"
}

// prepareLatent sets the sizes of heads. head_dim in config.json may be the number of rotated elements, and
// num_key_value_heads the number of heads.
func prepareLatent(p *published) error {
	s := cmp.Or(p.RopeParams, p.Scaling, &scaling{})
	kind := cmp.Or(s.Rope, s.Type, "default")
	switch {
	case p.AttentionBias:
		return refused("attention_bias is true; latent attention has no biases here")
	case p.KVRank == 0:
		return refused("kv_lora_rank is missing; only models with latent attention are supported")
	case kind != "default" && kind != "yarn":
		return refused("rope scaling of type %q; of latent attention, only yarn is supported", kind)
	case s.Partial != 0 && s.Partial != 1 || p.Partial != 0 && p.Partial != 1:
		return refused("partial_rotary_factor beside qk_rope_head_dim")
	case p.Interleaved != nil && !*p.Interleaved:
		return refused("rope_interleave is false; true is supported")
	}
	p.HeadDim, p.KVHeads, p.Partial = p.NopeDim+p.RopeDim, 1, 0
	return nil
}

// readLatent reads the settings of latent attention.
func readLatent(c *Config, p *published) {
	a := &Latent{KVRank: p.KVRank, NopeDim: p.NopeDim, RopeDim: p.RopeDim, ValueDim: p.ValueDim}
	if p.QueryRank != nil {
		a.QueryRank = *p.QueryRank
	}
	c.Latent = a
	c.Rope.Dim, c.Rope.Interleaved = a.RopeDim, true
	s := cmp.Or(p.RopeParams, p.Scaling, &scaling{})
	if c.Rope.Yarn == nil {
		return
	}
	all := yarnAttention(s.Factor, s.ScaleAllDims)
	if s.Attention == nil {
		c.Rope.Attention = yarnAttention(s.Factor, cmp.Or(s.Scale, 1)) / all
	}
	if c.HeadDim > 0 {
		c.AttentionScale = all * all / math.Sqrt(float64(c.HeadDim))
	}
}

// readDeepSeek reads a configuration of DeepSeek. method and scoring are the defaults of topk_method and scoring_func.
func readDeepSeek(c *Config, p *published, method, scoring string) error {
	readLatent(c, p)
	return readRoutedExperts(c, p, cmp.Or(p.ChoiceMethod, method), cmp.Or(p.Scoring, scoring))
}

// readRoutedExperts reads the settings of experts with DeepSeek's names.
func readRoutedExperts(c *Config, p *published, method, scoring string) error {
	if p.RoutedExperts == nil {
		c.Experts = nil
		return nil
	}
	e := c.Experts
	e.Count, e.PerToken, e.IntermediateSize = *p.RoutedExperts, p.ExpertsPerToken, p.ExpertIntermediate
	e.Normalize, e.Scale = p.Normalize, p.RoutedScale
	if p.SharedExperts != nil {
		e.SharedSize = *p.SharedExperts * p.ExpertIntermediate
	}
	switch {
	case method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc":
		return refused("topk_method is %q; greedy, group_limited_greedy and noaux_tc are supported", method)
	case scoring != "softmax" && scoring != "sigmoid":
		return refused("scoring_func is %q; softmax and sigmoid are supported", scoring)
	}
	e.Sigmoid, e.Correction = scoring == "sigmoid", method == "noaux_tc"
	if method != "greedy" && p.Groups != nil && p.ChosenGroups != nil {
		e.Groups, e.Chosen = *p.Groups, *p.ChosenGroups
	}
	if p.MLPLayerTypes != nil {
		var err error
		e.Dense, err = layersOf("mlp_layer_types", p.MLPLayerTypes, "dense", "sparse")
		return err
	}
	every := max(1, p.MixtureEvery)
	e.denseLayers(c.NumLayers, func(i int) bool { return i < p.FirstDense || i%every != 0 })
	return nil
}

// denseLayers sets Dense to the layers for which dense returns true.
func (e *Experts) denseLayers(layers int, dense func(layer int) bool) {
	e.Dense = make([]bool, max(0, min(layers, 1<<24)))
	for i := range e.Dense {
		e.Dense[i] = dense(i)
	}
	if !slices.Contains(e.Dense, true) {
		e.Dense = nil
	}
}
