package weightfile

import (
	"maps"
	"strings"
)

// The sizes of Tinies with latent attention, and the number of experts of those with DeepSeek's router.
const (
	TinyQueryRank, TinyKVRank, TinyNope, TinyRope, TinyValue = 32, 32, 16, 8, 24
	TinyRouted                                               = 8
)

// latentMeta returns the metadata of a model with latent attention, in the form of DeepSeek V3 or of V2-Lite.
func latentMeta(v3 bool) map[string]any {
	all := routedMeta(map[string]any{"attention.head_count_kv": uint32(1), "attention.key_length": uint32(TinyKVRank + TinyRope),
		"attention.value_length": uint32(TinyKVRank), "attention.key_length_mla": uint32(TinyNope + TinyRope),
		"attention.value_length_mla": uint32(TinyValue), "attention.kv_lora_rank": uint32(TinyKVRank),
		"rope.dimension_count": uint32(TinyRope), "rope.scaling.type": "yarn", "rope.scaling.factor": float32(4),
		"rope.scaling.original_context_length": uint32(64), "rope.scaling.yarn_log_multiplier": float32(0.07)})
	if v3 {
		all["attention.q_lora_rank"], all["expert_gating_func"], all["expert_weights_norm"] = uint32(TinyQueryRank), uint32(2), true
		all["expert_group_count"], all["expert_group_used_count"] = uint32(4), uint32(2)
	}
	return all
}

// routedMeta returns extra, with the metadata of experts with DeepSeek's keys.
func routedMeta(extra map[string]any) map[string]any {
	all := map[string]any{"leading_dense_block_count": uint32(1), "expert_count": uint32(TinyRouted), "expert_used_count": uint32(TinyUsed),
		"expert_feed_forward_length": uint32(TinyShared), "expert_shared_count": uint32(2), "expert_weights_scale": float32(1.5)}
	maps.Copy(all, extra)
	return all
}

// llama4Meta returns the metadata of Llama 4. Experts are in every second layer.
func llama4Meta() map[string]any {
	return map[string]any{"expert_count": uint32(TinyExperts), "expert_used_count": uint32(TinyUsed),
		"expert_feed_forward_length": uint32(TinyShared), "interleave_moe_layer_step": uint32(2)}
}

// lead returns the number of layers without experts at the beginning.
func lead(extra map[string]any) int {
	n, _ := extra["leading_dense_block_count"].(uint32)
	return int(n)
}

func (b *builder) latent() []layerTensor {
	v3 := b.Meta["deepseek2.attention.q_lora_rank"] != nil
	const query = TinyHeads * (TinyNope + TinyRope)
	return []layerTensor{
		{!v3, "attn_q", b.matrix, []int{query, TinyHidden}},
		{v3, "attn_q_a", b.matrix, []int{TinyQueryRank, TinyHidden}},
		{v3, "attn_q_a_norm", b.norm, []int{TinyQueryRank}},
		{v3, "attn_q_b", b.matrix, []int{query, TinyQueryRank}},
		{true, "attn_kv_a_mqa", b.matrix, []int{TinyKVRank + TinyRope, TinyHidden}},
		{true, "attn_kv_a_norm", b.norm, []int{TinyKVRank}},
		{true, "attn_k_b", b.matrix, []int{TinyHeads, TinyKVRank, TinyNope}},
		{true, "attn_v_b", b.matrix, []int{TinyHeads, TinyValue, TinyKVRank}},
		{true, "attn_output", b.matrix, []int{TinyHidden, TinyHeads * TinyValue}},
	}
}

// routed returns the tensors of an MLP, or of experts with DeepSeek's and GLM's router.
func (b *builder) routed() []layerTensor {
	const hidden, inter = TinyHidden, TinyShared
	experts, corrected := !b.dense, !b.dense && (b.arch != "deepseek2" || strings.Contains(b.Name, "V3"))
	return []layerTensor{
		{b.dense, "ffn_gate", b.matrix, []int{TinyInter, hidden}},
		{b.dense, "ffn_up", b.matrix, []int{TinyInter, hidden}},
		{b.dense, "ffn_down", b.matrix, []int{hidden, TinyInter}},
		{experts, "ffn_gate_inp", b.matrix, []int{TinyRouted, hidden}},
		{corrected, "exp_probs_b", b.bias, []int{TinyRouted}},
		{experts, "ffn_gate_exps", b.matrix, []int{TinyRouted, inter, hidden}},
		{experts, "ffn_up_exps", b.matrix, []int{TinyRouted, inter, hidden}},
		{experts, "ffn_down_exps", b.matrix, []int{TinyRouted, hidden, inter}},
		{experts, "ffn_gate_shexp", b.matrix, []int{2 * inter, hidden}},
		{experts, "ffn_up_shexp", b.matrix, []int{2 * inter, hidden}},
		{experts, "ffn_down_shexp", b.matrix, []int{hidden, 2 * inter}},
	}
}

// llama4 returns the tensors of an MLP, or of Llama 4's experts.
func (b *builder) llama4() []layerTensor {
	const hidden, inter = TinyHidden, TinyShared
	return []layerTensor{
		{b.dense, "ffn_gate", b.matrix, []int{TinyInter, hidden}},
		{b.dense, "ffn_up", b.matrix, []int{TinyInter, hidden}},
		{b.dense, "ffn_down", b.matrix, []int{hidden, TinyInter}},
		{!b.dense, "ffn_gate_inp", b.matrix, []int{TinyExperts, hidden}},
		{!b.dense, "ffn_gate_exps", b.matrix, []int{TinyExperts, inter, hidden}},
		{!b.dense, "ffn_up_exps", b.matrix, []int{TinyExperts, inter, hidden}},
		{!b.dense, "ffn_down_exps", b.matrix, []int{TinyExperts, hidden, inter}},
		{!b.dense, "ffn_gate_shexp", b.matrix, []int{inter, hidden}},
		{!b.dense, "ffn_up_shexp", b.matrix, []int{inter, hidden}},
		{!b.dense, "ffn_down_shexp", b.matrix, []int{hidden, inter}},
	}
}
