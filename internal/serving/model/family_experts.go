package model

import (
	"cmp"
	"slices"
)

var mixtral = family{
	rules: Config{Experts: &Experts{Normalize: true}}, window: &window{},
	folder: inFolder{name: "mixtral", eps: 1e-5, names: func(n *names) {
		const expert = "layers.%d.block_sparse_moe.experts.%d."
		n.router = "layers.%d.block_sparse_moe.gate"
		n.expertGate, n.expertUp, n.expertDown = expert+"w1", expert+"w3", expert+"w2"
	}, finish: func(c *Config, p *published) error {
		e := c.Experts
		e.Count, e.PerToken, e.IntermediateSize = p.LocalExperts, p.ExpertsPerToken, p.Intermediate
		return nil
	}},
	gguf: inGGUF{architecture: "llama", interleaved: true, wholeHeads: true, factors: true, longFactors: true,
		expertSize: "feed_forward_length"},
}

var qwen2Mixture = family{
	rules: Config{QKVBias: true, Experts: &Experts{SharedGate: true}}, window: &window{size: 4096, optional: true, upperLayers: true},
	folder: inFolder{name: "qwen2_moe", fixedBiases: true, finish: readQwenExperts},
	gguf:   inGGUF{architecture: "qwen2moe", expertSize: "expert_feed_forward_length"},
}

var qwen3Mixture = family{
	rules: Config{QKNorm: HeadNorm, Experts: &Experts{Normalize: true}}, window: &window{size: 4096, optional: true},
	folder: inFolder{name: "qwen3_moe", finish: readQwenExperts},
	gguf:   inGGUF{architecture: "qwen3moe", expertSize: "expert_feed_forward_length"},
}

func readQwenExperts(c *Config, p *published) error {
	e := c.Experts
	e.Count, e.PerToken, e.IntermediateSize = p.NumExperts, p.ExpertsPerToken, p.ExpertIntermediate
	e.Normalize = p.Normalize
	if e.SharedGate {
		e.SharedSize = p.SharedIntermediate
	}
	step := cmp.Or(p.SparseStep, 1)
	e.Dense = make([]bool, max(0, min(c.NumLayers, 1<<24)))
	for i := range e.Dense {
		e.Dense[i] = (i+1)%step != 0 || slices.Contains(p.DenseLayers, i)
	}
	return nil
}

// gptOSS uses the defaults of transformers' configuration.
var gptOSS = family{
	rules: Config{Activation: ClampedSwiGLU, Sinks: true, QKVBias: true, OutBias: true,
		Experts: &Experts{Normalize: true, Bias: true, RouterBias: true}},
	window: &window{period: 2, size: 128},
	folder: inFolder{name: "gpt_oss", eps: 1e-5, theta: 150000, headDim: 64, fixedBiases: true, names: func(n *names) {
		n.router, n.sinks, n.paired = "layers.%d.mlp.router", "layers.%d.self_attn.sinks", true
		n.expertGate, n.expertUp = "", "layers.%d.mlp.experts.gate_up_proj"
		n.expertDown = "layers.%d.mlp.experts.down_proj"
	}, prepare: prepareGPTOSS, finish: func(c *Config, p *published) error {
		e := c.Experts
		e.Count, e.PerToken = cmp.Or(p.LocalExperts, 128), cmp.Or(p.ExpertsPerToken, 4)
		e.IntermediateSize = p.Intermediate
		return nil
	}},
	gguf: inGGUF{architecture: "gpt-oss", expertSize: "expert_feed_forward_length",
		names:  func(n *names) { n.mlpNorm = n.attnPost },
		finish: func(_ *Config, k *ggufKeys) { k.need("attention.sliding_window") }},
}

func prepareGPTOSS(p *published) error {
	for _, v := range []struct {
		name  string
		value *float64
		want  float64
	}{{"swiglu_limit", p.SwigluLimit, 7}, {"swiglu_alpha", p.SwigluAlpha, 1.702}} {
		if v.value != nil && *v.value != v.want {
			return refused("%s is %v; %v is supported", v.name, *v.value, v.want)
		}
	}
	if cmp.Or(p.RopeParams, p.Scaling) == nil {
		exact := false
		p.Scaling = &scaling{Rope: "yarn", Factor: 32, Truncate: &exact}
		p.Scaling.OriginalLength = 4096
	}
	return nil
}
