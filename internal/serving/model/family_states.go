package model

import (
	"cmp"
	"slices"
)

// lfm2 uses the defaults of transformers' configuration. In GGUF, a layer without key heads is a convolution.
var lfm2 = family{
	rules: Config{QKNorm: HeadNorm, Recurrence: &Recurrence{Kind: ShortConv}},
	folder: inFolder{name: "lfm2", eps: 1e-5, theta: 1000000, tied: true, names: func(n *names) {
		n.norm, n.attnNorm, n.mlpNorm = "embedding_norm", "layers.%d.operator_norm", "layers.%d.ffn_norm"
		n.out, n.qNorm, n.kNorm = "layers.%d.self_attn.out_proj", "layers.%d.self_attn.q_layernorm", "layers.%d.self_attn.k_layernorm"
		const mlp, conv = "layers.%d.feed_forward.", "layers.%d.conv."
		n.gate, n.upProj, n.downProj = mlp+"w1", mlp+"w3", mlp+"w2"
		n.recurrentIn, n.recurrentOut, n.conv = conv+"in_proj", conv+"out_proj", conv+"conv"
	}, prepare: prepareLFM2, finish: func(c *Config, p *published) error {
		r := c.Recurrence
		r.Kernel, r.ConvBias, r.Bias = *cmp.Or(p.ConvTokens, integer(3)), p.ConvBias, p.ConvBias
		return p.recurrentLayers(r, "full_attention", "conv")
	}},
	gguf: inGGUF{architecture: "lfm2", names: func(n *names) {
		const conv = "blk.%d.shortconv."
		n.norm = "token_embd_norm"
		n.recurrentIn, n.recurrentOut, n.conv = conv+"in_proj", conv+"out_proj", conv+"conv"
	}, finish: func(c *Config, k *ggufKeys) {
		c.Recurrence.Kernel = k.int(k.need("shortconv.l_cache"), 0)
	}},
}

func prepareLFM2(p *published) error {
	p.RMSEps, p.Tie = p.NormEps, cmp.Or(p.TieEmbedding, p.Tie)
	p.Intermediate = cmp.Or(p.BlockFF, p.Intermediate, 12288)
	if p.BlockFFAdjusts != nil && !*p.BlockFFAdjusts {
		return nil
	}
	multiple, factor := *cmp.Or(p.BlockMultiple, integer(256)), *cmp.Or(p.BlockFFFactor, number(1))
	if multiple < 1 {
		return refused("block_multiple_of is %d", multiple)
	}
	n := int(float64(2*p.Intermediate/3) * factor)
	p.Intermediate = (n + multiple - 1) / multiple * multiple
	return nil
}

// recurrentLayers sets r.Layers from layer_types, which has the two given names. Older files list the layers with
// attention in full_attn_idxs; if they lack it, all layers have attention.
func (p *published) recurrentLayers(r *Recurrence, attention, recurrent string) error {
	for i := range max(0, min(p.Layers, 1<<24)) {
		switch {
		case p.LayerTypes == nil:
			r.Layers = append(r.Layers, p.AttentionAt != nil && !slices.Contains(p.AttentionAt, i))
		case p.LayerTypes[i] == attention || p.LayerTypes[i] == recurrent:
			r.Layers = append(r.Layers, p.LayerTypes[i] == recurrent)
		default:
			return refused("layer_types has %q; %s and %s are supported", p.LayerTypes[i], attention, recurrent)
		}
	}
	return nil
}

func integer(n int) *int { return &n }
