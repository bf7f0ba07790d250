package model

import (
	"cmp"
)

var granite = family{
	folder: inFolder{name: "granite", before: func(p *published) error {
		if p.LogitsScaling != nil && *p.LogitsScaling == 0 {
			return refused("logits_scaling is 0")
		}
		return nil
	}, after: func(c *Config, p *published) error {
		c.EmbeddingScale, c.ResidualScale = p.EmbeddingMultiplier, p.ResidualMultiplier
		c.AttentionScale = cmp.Or(p.AttentionMultiplier, 1)
		if p.LogitsScaling != nil {
			c.LogitScale = 1 / *p.LogitsScaling
		}
		return nil
	}},
	gguf: inGGUF{name: "granite", interleaved: true, factors: true, longFactors: true, after: func(c *Config, k *ggufKeys) {
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
	}},
}
