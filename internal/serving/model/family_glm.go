package model

import "cmp"

var glm4 = family{
	rules: Config{NormPlace: NormAround},
	folder: inFolder{name: "glm4", eps: 1.5625e-07, headDim: 128, names: func(n *names) {
		n.attnPost, n.mlpPost = "layers.%d.post_self_attn_layernorm", "layers.%d.post_mlp_layernorm"
		n.gate, n.upProj = "", "layers.%d.mlp.gate_up_proj"
	}, prepare: halfRotated, finish: func(c *Config, _ *published) error {
		c.OutBias, c.Rope.Interleaved = false, true
		return nil
	}},
	gguf: inGGUF{architecture: "glm4", interleaved: true, names: func(n *names) { n.gate = "" }},
}

// halfRotated sets the default of GLM's partial_rotary_factor.
func halfRotated(p *published) error {
	p.Partial = cmp.Or(p.Partial, 0.5)
	return nil
}

// glm4Mixture has the experts of DeepSeek V3, and rotates halves of the rotated part of a head. glm4 rotates pairs.
var glm4Mixture = family{
	rules: Config{Experts: &Experts{}},
	folder: inFolder{name: "glm4_moe", eps: 1e-5, names: deepSeekNames, prepare: halfRotated,
		finish: func(c *Config, p *published) error {
			if c.OutBias = false; p.HeadNorms != nil && *p.HeadNorms {
				c.QKNorm = HeadNorm
			}
			return readRoutedExperts(c, p, "noaux_tc", "sigmoid")
		}},
	gguf: inGGUF{architecture: "glm4moe", expertSize: "expert_feed_forward_length", routed: true,
		names: func(n *names) { n.mlpNorm = n.attnPost },
		finish: func(c *Config, k *ggufKeys) {
			if k.has("blk.0.attn_q_norm.weight") {
				c.QKNorm = HeadNorm
			}
		}},
}

// The families of ERNIE 4.5.

var ernie = family{
	folder: inFolder{name: "ernie4_5", eps: 1e-5, theta: 500000, headDim: 128, tied: true, prepare: withoutBias,
		finish: rotatePairs},
	gguf: inGGUF{architecture: "ernie4_5", interleaved: true},
}

func withoutBias(p *published) error {
	if p.Bias {
		return refused("use_bias is true; false is supported")
	}
	return nil
}

func rotatePairs(c *Config, _ *published) error {
	c.Rope.Interleaved = true
	return nil
}

// ernieMixture chooses experts by a softmax with a correction, and normalizes their weights.
var ernieMixture = family{
	rules: Config{Experts: &Experts{Correction: true, Normalize: true}},
	folder: inFolder{name: "ernie4_5_moe", eps: 1e-5, theta: 500000, tied: true, prepare: withoutBias, names: func(n *names) {
		deepSeekNames(n)
		n.correction = "layers.%d.mlp.moe_statics.e_score_correction_bias"
	}, finish: func(c *Config, p *published) error {
		e := c.Experts
		e.Count, e.PerToken = cmp.Or(p.MoECount, p.NumExperts), cmp.Or(p.MoEPerToken, p.ExpertsPerToken)
		e.IntermediateSize, e.SharedSize = p.ExpertIntermediate, p.MoEShared*p.ExpertIntermediate
		first, last := 1, c.NumLayers-1 // transformers' defaults
		if p.MoEFirst != nil {
			first = *p.MoEFirst
		}
		if p.MoELast != nil && *p.MoELast >= 0 {
			last = *p.MoELast
		}
		every := max(1, p.MoEInterval)
		e.denseLayers(c.NumLayers, func(i int) bool { return i < first || i > last || (i+1)%every != 0 })
		return rotatePairs(c, p)
	}},
	gguf: inGGUF{architecture: "ernie4_5-moe", interleaved: true, expertSize: "expert_feed_forward_length", routed: true,
		finish: func(c *Config, k *ggufKeys) {
			e := c.Experts
			if e == nil {
				return
			}
			e.Normalize, e.Sigmoid, e.Scale = true, false, 0 // as in llama.cpp, which does not read them
			e.SharedSize = k.int("expert_shared_feed_forward_length", e.SharedSize)
			first, every := k.int("leading_dense_block_count", 0), max(1, k.int("interleave_moe_layer_step", 1))
			e.denseLayers(c.NumLayers, func(i int) bool { return i < first || (i+1)%every != 0 })
		}},
}
