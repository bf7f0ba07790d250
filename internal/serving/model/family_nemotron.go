package model

import "cmp"

// nemotronH has the defaults of the configuration that its folders come with. A layer has one half: Mamba 2, attention
// without positions, an MLP, or experts. Time steps are not raised to time_step_min, as in vLLM.
var nemotronH = family{
	rules: Config{Activation: ReLU2, Experts: &Experts{Sigmoid: true, Correction: true}, Recurrence: &Recurrence{Kind: Mamba2}},
	folder: inFolder{name: "nemotron_h", eps: 1e-5, headDim: 128, names: func(n *names) {
		const mixer = "layers.%d.mixer."
		n.embed, n.norm, n.attnNorm, n.mlpNorm = "embeddings", "norm_f", "layers.%d.norm", "layers.%d.norm"
		n.q, n.k, n.v, n.out = mixer+"q_proj", mixer+"k_proj", mixer+"v_proj", mixer+"o_proj"
		n.recurrentIn, n.recurrentOut, n.conv, n.recurrentNorm = mixer+"in_proj", mixer+"out_proj", mixer+"conv1d", mixer+"norm"
		n.decay, n.stepBias, n.skip = mixer+"A_log", mixer+"dt_bias", mixer+"D"
		n.gate, n.upProj, n.downProj = "", mixer+"up_proj", mixer+"down_proj"
		n.router, n.correction = mixer+"gate", mixer+"gate.e_score_correction_bias"
		n.expertGate, n.expertUp, n.expertDown = "", mixer+"experts.%d.up_proj", mixer+"experts.%d.down_proj"
		n.sharedGate, n.sharedUp, n.sharedDown = "", mixer+"shared_experts.up_proj", mixer+"shared_experts.down_proj"
	}, prepare: prepareNemotronH, finish: finishNemotronH},
	gguf: inGGUF{architecture: "nemotron_h", halves: true, names: func(n *names) {
		ssmNames(n)
		n.mlpNorm, n.gate = n.attnNorm, ""
	}, finish: func(c *Config, k *ggufKeys) {
		c.NoRope = everyFrom(c.NumLayers, 1)
		k.mamba2(c.Recurrence)
	}},
}

func prepareNemotronH(p *published) error {
	p.RMSEps, p.HeadDim = cmp.Or(p.LayerEps, p.RMSEps), cmp.Or(p.HeadDim, p.AttentionDim)
	switch {
	case p.MLPAct != "" && p.MLPAct != "relu2":
		return refused("mlp_hidden_act is %q; relu2 is supported", p.MLPAct)
	case p.MambaAct != "" && p.MambaAct != "silu":
		return refused("mamba_hidden_act is %q; silu is supported", p.MambaAct)
	case p.MoELatent != nil:
		return refused("experts with a latent (moe_latent_size) are not supported")
	}
	if p.Pattern != nil {
		p.BlockTypes = nil
		for _, kind := range *p.Pattern {
			p.BlockTypes = append(p.BlockTypes, map[rune]string{'M': "mamba", '*': "attention", '-': "mlp", 'E': "moe"}[kind])
		}
	}
	p.Layers = cmp.Or(p.Layers, len(p.BlockTypes))
	p.LayerTypes = nil // of caches
	return nil
}

func finishNemotronH(c *Config, p *published) error {
	c.NoRope = everyFrom(c.NumLayers, 1)
	field, kinds := "layers_block_type", "mamba, attention, mlp and moe"
	if p.Pattern != nil {
		field, kinds = "hybrid_override_pattern", "M, *, - and E"
	}
	if len(p.BlockTypes) != c.NumLayers {
		return refused("%s has %d layers; num_hidden_layers is %d", field, len(p.BlockTypes), c.NumLayers)
	}
	r, dense, experts := c.Recurrence, []bool(nil), false
	for i, kind := range p.BlockTypes {
		half, ok := map[string]Half{"mamba": Mixer, "attention": Mixer, "mlp": FeedForward, "moe": FeedForward}[kind]
		if !ok {
			return refused("layer %d of %s is none of %s", i, field, kinds)
		}
		experts = experts || kind == "moe"
		c.Halves, r.Layers, dense = append(c.Halves, half), append(r.Layers, kind == "mamba"), append(dense, kind != "moe")
	}
	if err := finishNemotronExperts(c, p, dense, experts); err != nil {
		return err
	}
	r.Heads, r.HeadDim = *cmp.Or(p.StateHeads, integer(128)), *cmp.Or(p.StateHeadDim, integer(64))
	r.KeyHeads, r.KeyDim = *cmp.Or(p.StateGroups, integer(8)), *cmp.Or(p.StateSize, integer(128))
	r.Kernel, r.ConvBias = *cmp.Or(p.ConvKernel, integer(4)), p.UseConvBias == nil || *p.UseConvBias
	r.Bias = p.Bias || p.MambaBias
	return r.limitSteps(p.StepLimit)
}

func finishNemotronExperts(c *Config, p *published, dense []bool, experts bool) error {
	if !experts {
		c.Experts = nil
		return nil
	}
	if err := readRoutedExperts(c, p, "noaux_tc", "sigmoid"); err != nil {
		return err
	}
	e := c.Experts
	if e == nil {
		return refused("n_routed_experts is missing")
	}
	e.Dense, e.SharedSize = dense, *cmp.Or(p.SharedExpertMLP, integer(7688))
	if p.SharedExperts != nil && *p.SharedExperts != 1 {
		return refused("n_shared_experts is %d; 1 is supported", *p.SharedExperts)
	}
	return nil
}
