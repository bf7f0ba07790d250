package model

// names say how the tensors of a family are called in its files. A %d stands for
// the layer. Where q, k and v are one tensor, q has its name.
type names struct {
	embed, positions, norm, head         string
	attnNorm, q, k, v, out, qNorm, kNorm string
	mlpNorm, gate, up, down              string
	transposed                           bool // matrices are [inputs, outputs] (GPT-2)
}

var llamaNames = names{
	embed: "model.embed_tokens", norm: "model.norm", head: "lm_head",
	attnNorm: "model.layers.%d.input_layernorm",
	q:        "model.layers.%d.self_attn.q_proj", k: "model.layers.%d.self_attn.k_proj",
	v: "model.layers.%d.self_attn.v_proj", out: "model.layers.%d.self_attn.o_proj",
	qNorm: "model.layers.%d.self_attn.q_norm", kNorm: "model.layers.%d.self_attn.k_norm",
	mlpNorm: "model.layers.%d.post_attention_layernorm",
	gate:    "model.layers.%d.mlp.gate_proj", up: "model.layers.%d.mlp.up_proj", down: "model.layers.%d.mlp.down_proj",
}

var gpt2Names = names{
	embed: "wte", positions: "wpe", norm: "ln_f", head: "lm_head",
	attnNorm: "h.%d.ln_1", q: "h.%d.attn.c_attn", out: "h.%d.attn.c_proj",
	mlpNorm: "h.%d.ln_2", up: "h.%d.mlp.c_fc", down: "h.%d.mlp.c_proj",
	transposed: true,
}

var optNames = names{
	embed: "decoder.embed_tokens", positions: "decoder.embed_positions", norm: "decoder.final_layer_norm", head: "lm_head",
	attnNorm: "decoder.layers.%d.self_attn_layer_norm",
	q:        "decoder.layers.%d.self_attn.q_proj", k: "decoder.layers.%d.self_attn.k_proj",
	v: "decoder.layers.%d.self_attn.v_proj", out: "decoder.layers.%d.self_attn.out_proj",
	mlpNorm: "decoder.layers.%d.final_layer_norm", up: "decoder.layers.%d.fc1", down: "decoder.layers.%d.fc2",
}

var ggufNames = names{
	embed: "token_embd", norm: "output_norm", head: "output",
	attnNorm: "blk.%d.attn_norm", q: "blk.%d.attn_q", k: "blk.%d.attn_k", v: "blk.%d.attn_v", out: "blk.%d.attn_output",
	qNorm: "blk.%d.attn_q_norm", kNorm: "blk.%d.attn_k_norm",
	mlpNorm: "blk.%d.ffn_norm", gate: "blk.%d.ffn_gate", up: "blk.%d.ffn_up", down: "blk.%d.ffn_down",
}

// prefixes may stand before all names but the head's: a model may have been
// saved with or without what was built on it.
var prefixes = []string{"", "transformer.", "model."}
