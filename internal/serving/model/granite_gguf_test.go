package model_test

import (
	"math"
	"strings"

	"llmmemory/internal/testkit/weightfile"
)

var graniteGGUF = map[string]any{
	"general.architecture": "granitehybrid", "granitehybrid.block_count": uint32(5), "granitehybrid.context_length": uint32(length),
	"granitehybrid.embedding_length": uint32(48), "granitehybrid.feed_forward_length": uint32(40), "granitehybrid.attention.head_count": uint32(4),
	"granitehybrid.attention.head_count_kv": []int32{0, 0, 2, 0, 2}, "granitehybrid.attention.layer_norm_rms_epsilon": float32(1e-5),
	"granitehybrid.attention.key_length": uint32(64), "granitehybrid.attention.value_length": uint32(64), "granitehybrid.rope.dimension_count": uint32(64),
	"granitehybrid.embedding_scale": float32(3), "granitehybrid.residual_scale": float32(0.3), "granitehybrid.attention.scale": float32(0.1),
	"granitehybrid.logit_scale": float32(4), "granitehybrid.expert_count": uint32(5), "granitehybrid.expert_used_count": uint32(2),
	"granitehybrid.expert_shared_feed_forward_length": uint32(30), "granitehybrid.rope.scaling.finetuned": false,
	"granitehybrid.ssm.conv_kernel": uint32(4), "granitehybrid.ssm.state_size": uint32(16), "granitehybrid.ssm.group_count": uint32(1),
	"granitehybrid.ssm.inner_size": uint32(96), "granitehybrid.ssm.time_step_rank": uint32(6),
}

var graniteParts = map[string]string{
	"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
	"post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
	"self_attn.o_proj": "attn_output", "mamba.in_proj": "ssm_in", "mamba.out_proj": "ssm_out", "mamba.conv1d": "ssm_conv1d",
	"mamba.norm": "ssm_norm", "block_sparse_moe.router.layer": "ffn_gate_inp", "block_sparse_moe.input_linear": "exps",
	"block_sparse_moe.output_linear": "ffn_down_exps", "shared_mlp.input_linear": "shexp", "shared_mlp.output_linear": "ffn_down_shexp",
}

// convertGranite does what llama.cpp's converter does with the tensors of Granite 4: it splits gate and up projections,
// and makes rates from the logarithms of decays.
func convertGranite(name string, values []float32, shape []int) []weightfile.Tensor {
	layer, part, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	layer = "blk." + layer + "."
	one := func(name string, shape ...int) []weightfile.Tensor {
		return []weightfile.Tensor{weightfile.F32(layer+name, values, shape...)}
	}
	switch part {
	case "mamba.A_log":
		negated := make([]float32, len(values))
		for i, v := range values {
			negated[i] = -float32(math.Exp(float64(v)))
		}
		return []weightfile.Tensor{weightfile.F32(layer+"ssm_a", negated, len(values), 1)}
	case "mamba.D":
		return one("ssm_d", len(values), 1)
	case "mamba.dt_bias":
		return one("ssm_dt.bias", len(values))
	case "ssm_norm.weight":
		return one(part, 1, len(values))
	case "exps.weight", "shexp.weight":
		suffix, experts, rows, cols := strings.TrimSuffix(part, ".weight"), 1, shape[len(shape)-2]/2, shape[len(shape)-1]
		shape := []int{rows, cols}
		if len(values) > 2*rows*cols {
			experts = len(values) / (2 * rows * cols)
			shape = []int{experts, rows, cols}
		}
		var gate, upProj []float32
		for e := range experts {
			both := values[2*e*rows*cols:]
			gate, upProj = append(gate, both[:rows*cols]...), append(upProj, both[rows*cols:2*rows*cols]...)
		}
		return []weightfile.Tensor{weightfile.F32(layer+"ffn_gate_"+suffix+".weight", gate, shape...), weightfile.F32(layer+"ffn_up_"+suffix+".weight", upProj, shape...)}
	}
	return []weightfile.Tensor{weightfile.F32(name, values, shape...)}
}
