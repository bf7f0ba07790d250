package model

// gpt2 and opt have different names in config.json, which before maps to Llama's.

var gpt2 = family{
	rules: Config{Norm: LayerNorm, Activation: GELU, QKVBias: true, OutBias: true, MLPBias: true}, learned: true,
	folder: inFolder{name: "gpt2", eps: 1e-5, tied: true, fixedBiases: true, names: func(n *names) {
		*n = names{
			embed: "wte", positions: "wpe", norm: "ln_f", head: "lm_head",
			attnNorm: "h.%d.ln_1", q: "h.%d.attn.c_attn", out: "h.%d.attn.c_proj",
			mlpNorm: "h.%d.ln_2", up: "h.%d.mlp.c_fc", down: "h.%d.mlp.c_proj",
			transposed: true,
		}
	}, before: func(p *published) error {
		if p.GPT2Act != "" && p.GPT2Act != "gelu_new" || p.ScaleByLoop {
			return refused("GPT-2 with the activation %q, scaling by layer %v; gelu_new without it is supported", p.GPT2Act,
				p.ScaleByLoop)
		}
		p.Hidden, p.Layers, p.Heads, p.KVHeads, p.HeadDim = p.NEmbd, p.NLayer, p.NHead, p.NHead, 0
		p.Intermediate, p.MaxPositions, p.RMSEps = orElse(p.NInner, 4*p.NEmbd), orElse(p.NPositions, 1024), p.LayerEps
		return nil
	}},
}

var opt = family{
	rules:   Config{Norm: LayerNorm, Activation: ReLU, PositionOffset: 2, QKVBias: true, OutBias: true, MLPBias: true},
	learned: true,
	folder: inFolder{name: "opt", eps: 1e-5, tied: true, fixedBiases: true, names: func(n *names) {
		const layer = "decoder.layers.%d."
		*n = names{
			embed: "decoder.embed_tokens", positions: "decoder.embed_positions", norm: "decoder.final_layer_norm",
			head: "lm_head", attnNorm: layer + "self_attn_layer_norm",
			q: layer + "self_attn.q_proj", k: layer + "self_attn.k_proj", v: layer + "self_attn.v_proj",
			out: layer + "self_attn.out_proj", mlpNorm: layer + "final_layer_norm", up: layer + "fc1", down: layer + "fc2",
		}
	}, before: func(p *published) error {
		switch {
		case p.NormBefore != nil && !*p.NormBefore || p.WordDim != 0 && p.WordDim != p.Hidden:
			return refused("OPT with norms after its layers or projected embeddings (OPT-350m) is not supported")
		case p.GPT2Act != "" && p.GPT2Act != "relu":
			return refused("OPT with the activation %q; relu is supported", p.GPT2Act)
		}
		p.KVHeads, p.HeadDim, p.Intermediate, p.RMSEps = p.Heads, 0, p.FFN, 0
		return nil
	}},
}
