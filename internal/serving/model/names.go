package model

// names has the names of a family's tensors, without .weight. %d is the number of the layer. If queries, keys and
// values are in one tensor, its name is in q. If gate and up projection are in one tensor, its name is in upProj.
type names struct {
	embed, positions, norm, head         string
	attnNorm, q, k, v, out, qNorm, kNorm string
	sinks                                string // the complete name, including .weight if it has it
	attnPost, mlpPost                    string // norms after attention and after the MLP
	mlpNorm, gate, upProj, downProj      string
	router                               string
	correction                           string // the complete name
	queryDown, queryNorm, queryUp        string // latent attention: queryDown, queryNorm and queryUp instead of q
	latent, latentNorm, keysAndValues    string
	layerScale                           string // the complete name (Gemma 4)
	perLayerGate, perLayerOut            string
	perLayerPost, perLayerNorm           string
	perLayerEmbed, perLayerIn            string
	keyUp, valueUp                       string // instead of keysAndValues, if not ""
	expertGate, expertUp, expertDown     string // a second %d is the expert; without it, a tensor has all experts
	sharedGate, sharedUp, sharedDown     string
	sharedRouter                         string
	recurrentIn, recurrentOut, conv      string // of layers with a state
	recurrentZ, recurrentB, recurrentA   string // of DeltaNet; without recurrentZ, recurrentB also has a
	recurrentNorm                        string
	decay, stepBias, skip                string // the complete names
	negative                             bool   // decay is negated and not a logarithm
	transposed                           bool   // matrices are [inputs, outputs] (GPT-2)
	outputsFirst                         bool   // stacked experts are [experts, outputs, inputs], not [experts, inputs, outputs] (Qwen3.5)
	paired                               bool   // rows of gate and up projection alternate in a tensor (gpt-oss)
}

func folderNames(c *Config) *names {
	n := llamaNames
	if f := familyOf(func(f *family) bool { return f.folder.name == c.Family }); f != nil && f.folder.names != nil {
		f.folder.names(&n)
	}
	if c.NormPlace != NormBefore && n.attnPost == "" {
		n.attnPost, n.mlpPost = n.mlpNorm, "layers.%d.post_feedforward_layernorm"
		n.mlpNorm = "layers.%d.pre_feedforward_layernorm"
	}
	return &n
}

// namesInGGUF returns the names of the tensors of a GGUF file. hasTensor reports whether the file has a tensor.
// namesInGGUF needs it because some files have queries, keys and values in one tensor, or a tensor for each expert, or
// the parts of keysAndValues in two tensors.
func namesInGGUF(c *Config, hasTensor func(tensor string) bool) *names {
	n := ggufNames
	if hasTensor("blk.0.attn_qkv.weight") {
		n.q, n.k, n.v = "blk.%d.attn_qkv", "", ""
	}
	if hasTensor("blk.0.attn_k_b.weight") {
		n.keyUp, n.valueUp = "blk.%d.attn_k_b", "blk.%d.attn_v_b"
	}
	if hasTensor("blk.0.ffn_gate.0.weight") { // Mixtral, before its experts were stacked
		n.expertGate, n.expertUp, n.expertDown = "blk.%d.ffn_gate.%d", "blk.%d.ffn_up.%d", "blk.%d.ffn_down.%d"
	}
	if f := familyOf(func(f *family) bool { return f.gguf.architecture == c.Family }); f != nil && f.gguf.names != nil {
		f.gguf.names(&n)
	}
	return &n
}

var llamaNames = names{
	embed: "embed_tokens", norm: "norm", head: "lm_head",
	attnNorm: "layers.%d.input_layernorm",
	q:        "layers.%d.self_attn.q_proj", k: "layers.%d.self_attn.k_proj",
	v: "layers.%d.self_attn.v_proj", out: "layers.%d.self_attn.o_proj",
	qNorm: "layers.%d.self_attn.q_norm", kNorm: "layers.%d.self_attn.k_norm",
	mlpNorm: "layers.%d.post_attention_layernorm",
	gate:    "layers.%d.mlp.gate_proj", upProj: "layers.%d.mlp.up_proj", downProj: "layers.%d.mlp.down_proj",
	queryDown: "layers.%d.self_attn.q_a_proj", queryNorm: "layers.%d.self_attn.q_a_layernorm",
	queryUp: "layers.%d.self_attn.q_b_proj", latent: "layers.%d.self_attn.kv_a_proj_with_mqa",
	latentNorm: "layers.%d.self_attn.kv_a_layernorm", keysAndValues: "layers.%d.self_attn.kv_b_proj",
	router: "layers.%d.mlp.gate", correction: "layers.%d.mlp.gate.e_score_correction_bias",
	expertGate: "layers.%d.mlp.experts.%d.gate_proj", expertUp: "layers.%d.mlp.experts.%d.up_proj",
	expertDown: "layers.%d.mlp.experts.%d.down_proj",
	sharedGate: "layers.%d.mlp.shared_expert.gate_proj", sharedUp: "layers.%d.mlp.shared_expert.up_proj",
	sharedDown: "layers.%d.mlp.shared_expert.down_proj", sharedRouter: "layers.%d.mlp.shared_expert_gate",
}

var ggufNames = names{
	embed: "token_embd", norm: "output_norm", head: "output",
	attnNorm: "blk.%d.attn_norm", q: "blk.%d.attn_q", k: "blk.%d.attn_k", v: "blk.%d.attn_v", out: "blk.%d.attn_output",
	qNorm: "blk.%d.attn_q_norm", kNorm: "blk.%d.attn_k_norm",
	mlpNorm: "blk.%d.ffn_norm", gate: "blk.%d.ffn_gate", upProj: "blk.%d.ffn_up", downProj: "blk.%d.ffn_down",
	queryDown: "blk.%d.attn_q_a", queryNorm: "blk.%d.attn_q_a_norm", queryUp: "blk.%d.attn_q_b",
	latent: "blk.%d.attn_kv_a_mqa", latentNorm: "blk.%d.attn_kv_a_norm", keysAndValues: "blk.%d.attn_kv_b",
	correction: "blk.%d.exp_probs_b.bias", sinks: "blk.%d.attn_sinks.weight", attnPost: "blk.%d.post_attention_norm", mlpPost: "blk.%d.post_ffw_norm",
	router: "blk.%d.ffn_gate_inp", expertGate: "blk.%d.ffn_gate_exps", expertUp: "blk.%d.ffn_up_exps",
	expertDown: "blk.%d.ffn_down_exps", sharedGate: "blk.%d.ffn_gate_shexp", sharedUp: "blk.%d.ffn_up_shexp",
	sharedDown: "blk.%d.ffn_down_shexp", sharedRouter: "blk.%d.ffn_gate_inp_shexp",
}

// prefixes lists what may precede the names of all tensors except the head. Which prefix a folder has depends on the
// class that saved the model. If a folder has no embeddings, errors name tensors with the first prefix.
var prefixes = []string{"model.", "transformer.", "language_model.model.", "model.language_model.", "backbone.", ""}
