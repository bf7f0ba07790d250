package model_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/testkit/weightfile"
)

// nemotronH returns a model whose layers have one half each: M has Mamba 2, E experts, * attention, - an MLP.
func nemotronH(pattern string) family {
	return family{name: "Nemotron-H " + pattern, config: map[string]any{
		"model_type": "nemotron_h", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 64, "intermediate_size": 80, "max_position_embeddings": length, "layer_norm_epsilon": 1e-5, "rope_theta": 10000, "mlp_hidden_act": "relu2",
		"hybrid_override_pattern": pattern, "mamba_num_heads": 6, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
		"use_conv_bias": true, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 40,
		"moe_shared_expert_intermediate_size": 56, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
		"time_step_limit": []float64{0, 1.5}, "expand": 2, "tie_word_embeddings": false,
	}, ref: reference{family: "nemotron_h", layers: 6, heads: 4, kvHeads: 2, dim: 64, hidden: 48, inter: 80, vocab: 97, eps: 1e-5,
		hybrid: &hybrid{norm: "backbone.norm_f", embed: "backbone.embeddings", kernel: 4, convBias: true, heads: 6, columns: 16, keyHeads: 2, rows: 16,
			maxStep: 1.5, pattern: pattern, layer: (*reference).nemotronLayer, tensors: nemotronTensors}}}
}

func nemotronTensors(f *family, all map[string][]int) {
	r, h := &f.ref, f.ref.hybrid
	all["backbone.embeddings.weight"], all["lm_head.weight"] = []int{r.vocab, r.hidden}, []int{r.vocab, r.hidden}
	norm(all, "backbone.norm_f", r.hidden, false)
	inner, keys := h.heads*h.columns, h.keyHeads*h.rows
	pair := func(prefix string, inter int) {
		matrix(all, prefix+"up_proj", inter, r.hidden, false)
		matrix(all, prefix+"down_proj", r.hidden, inter, false)
	}
	for l, kind := range h.pattern {
		prefix := fmt.Sprintf("backbone.layers.%d.", l)
		norm(all, prefix+"norm", r.hidden, false)
		prefix += "mixer."
		switch kind {
		case 'M':
			all[prefix+"A_log"], all[prefix+"dt_bias"], all[prefix+"D"] = []int{h.heads}, []int{h.heads}, []int{h.heads}
			all[prefix+"conv1d.weight"], all[prefix+"conv1d.bias"] = []int{inner + 2*keys, 1, h.kernel}, []int{inner + 2*keys}
			matrix(all, prefix+"in_proj", 2*inner+2*keys+h.heads, r.hidden, false)
			matrix(all, prefix+"out_proj", r.hidden, inner, false)
			norm(all, prefix+"norm", inner, false)
		case '*':
			matrix(all, prefix+"q_proj", r.heads*r.dim, r.hidden, false)
			matrix(all, prefix+"k_proj", r.kvHeads*r.dim, r.hidden, false)
			matrix(all, prefix+"v_proj", r.kvHeads*r.dim, r.hidden, false)
			matrix(all, prefix+"o_proj", r.hidden, r.heads*r.dim, false)
		case '-':
			pair(prefix, r.inter)
		case 'E':
			matrix(all, prefix+"gate", 5, r.hidden, false)
			all[prefix+"gate.e_score_correction_bias"] = []int{5}
			for e := range 5 {
				pair(prefix+fmt.Sprintf("experts.%d.", e), 40)
			}
			pair(prefix+"shared_experts.", 56)
		}
	}
}

func (r *reference) nemotronLayer(l int, x []float64, _ int) []float64 {
	prefix := fmt.Sprintf("backbone.layers.%d.", l)
	n := r.norm(prefix+"norm", x)
	prefix += "mixer."
	switch r.hybrid.pattern[l] {
	case 'M':
		return plus(x, r.mamba2In(l, prefix, n))
	case '*':
		q, k, v := r.times(prefix+"q_proj", n, r.heads*r.dim), r.times(prefix+"k_proj", n, r.kvHeads*r.dim), r.times(prefix+"v_proj", n, r.kvHeads*r.dim)
		return plus(x, r.times(prefix+"o_proj", r.attend(l, q, k, v), r.hidden))
	case '-':
		return plus(x, r.squaredMLP(prefix, n, r.inter))
	}
	scores := r.times(prefix+"gate", n, 5)
	for e, v := range scores {
		scores[e] = 1 / (1 + math.Exp(-v))
	}
	bias := r.w[prefix+"gate.e_score_correction_bias"]
	order := []int{0, 1, 2, 3, 4}
	slices.SortStableFunc(order, func(a, b int) int {
		return map[bool]int{true: -1, false: 1}[scores[a]+float64(bias[a]) > scores[b]+float64(bias[b])]
	})
	y := r.squaredMLP(prefix+"shared_experts.", n, 56)
	for _, e := range order[:2] {
		for i, v := range r.squaredMLP(prefix+fmt.Sprintf("experts.%d.", e), n, 40) {
			y[i] += 2.5 * scores[e] / (scores[order[0]] + scores[order[1]]) * v
		}
	}
	return plus(x, y)
}

func (r *reference) squaredMLP(prefix string, x []float64, inter int) []float64 {
	y := r.times(prefix+"up_proj", x, inter)
	for i, v := range y {
		y[i] = max(v, 0) * max(v, 0)
	}
	return r.times(prefix+"down_proj", y, r.hidden)
}

func TestConfigsOfNemotronH(t *testing.T) {
	f := nemotronH("ME*M-E")
	want, err := model.ParseConfig(toJSON(t, f.config))
	require.NoError(t, err)
	require.Equal(t, 1.5, want.Recurrence.MaxStep)
	types := maps.Clone(f.config)
	delete(types, "hybrid_override_pattern")
	types["layers_block_type"] = []string{"mamba", "moe", "attention", "mamba", "mlp", "moe"}
	got, err := model.ParseConfig(toJSON(t, types))
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, limit := range []string{`[0.0, Infinity]`, `[-Infinity, Infinity]`, `[0.0, {"__float__": "Infinity"}]`, `null`} {
		types["time_step_limit"], types["name"] = "LIMIT", `"Infinity\"`
		text := strings.Replace(string(toJSON(t, types)), `"LIMIT"`, limit, 1)
		got, err = model.ParseConfig([]byte(text))
		require.NoError(t, err, text)
		require.Zero(t, got.Recurrence.MinStep)
		require.Zero(t, got.Recurrence.MaxStep)
	}
	for limit, says := range map[string]string{
		`[0.0, NaN]`:           "time_step_limit is from 0.0 to NaN",
		`[NaN, 1]`:             "time_step_limit is from NaN to 1",
		`[Infinity, Infinity]`: "time_step_limit is from Infinity to Infinity",
		`[0.0, -Infinity]`:     "time_step_limit is from 0.0 to -Infinity",
		`[0.5, 0.1]`:           "time_step_limit is from 0.5 to 0.1",
		`[0.5]`:                "time_step_limit has 1 numbers; 2 are needed",
		`[0, "x"]`:             `time_step_limit: "x" is not a number`,
		`Infinity`:             "time_step_limit",
	} {
		_, err := model.ParseConfig([]byte(strings.Replace(string(toJSON(t, types)), `"LIMIT"`, limit, 1)))
		require.ErrorContains(t, err, says)
	}
	for _, test := range []struct {
		change map[string]any
		want   string
	}{
		{map[string]any{"hybrid_override_pattern": "MX*M-E"}, "layer 1 of hybrid_override_pattern is none of M, *, - and E"},
		{map[string]any{"hybrid_override_pattern": "M*"}, "hybrid_override_pattern has 2 layers; num_hidden_layers is 6"},
		{map[string]any{"hybrid_override_pattern": nil, "layers_block_type": []string{"mamba", "M", "mlp", "mlp", "mlp", "mlp"}}, "layer 1 of layers_block_type is none of mamba, attention, mlp and moe"},
		{map[string]any{"hybrid_override_pattern": nil, "layers_block_type": []string{"mamba"}}, "layers_block_type has 1 layers; num_hidden_layers is 6"},
		{map[string]any{"hybrid_override_pattern": "MEMM-E"}, "no layer has attention"},
		{map[string]any{"mlp_hidden_act": "gelu"}, "relu2 is supported"},
		{map[string]any{"moe_latent_size": 8}, "moe_latent_size"},
		{map[string]any{"n_shared_experts": 2}, "n_shared_experts is 2"},
		{map[string]any{"n_groups": 4}, "6 heads of states on 4 key heads"},
	} {
		config := maps.Clone(f.config)
		maps.Copy(config, test.change)
		_, err := model.ParseConfig(toJSON(t, config))
		require.ErrorContains(t, err, test.want)
	}
}

// denseNemotronH returns a model without experts, which can also be a GGUF file.
func denseNemotronH() family {
	f := nemotronH("M-*M-*")
	h := f.ref.hybrid
	h.parts = map[string]string{"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "lm_head": "output"}
	h.gguf = map[string]any{
		"general.architecture": "nemotron_h", "nemotron_h.block_count": uint32(6), "nemotron_h.context_length": uint32(length),
		"nemotron_h.embedding_length": uint32(48), "nemotron_h.feed_forward_length": []int32{0, 80, 0, 0, 80, 0},
		"nemotron_h.attention.head_count": uint32(4), "nemotron_h.attention.head_count_kv": []int32{0, 0, 2, 0, 0, 2},
		"nemotron_h.attention.layer_norm_rms_epsilon": float32(1e-5), "nemotron_h.attention.key_length": uint32(64),
		"nemotron_h.attention.value_length": uint32(64), "nemotron_h.ssm.conv_kernel": uint32(4), "nemotron_h.ssm.state_size": uint32(16),
		"nemotron_h.ssm.group_count": uint32(2), "nemotron_h.ssm.inner_size": uint32(96), "nemotron_h.ssm.time_step_rank": uint32(6),
	}
	h.maxStep = 0
	delete(f.config, "time_step_limit")
	names := map[string]string{"norm.weight": "attn_norm.weight", "mixer.up_proj.weight": "ffn_up.weight", "mixer.down_proj.weight": "ffn_down.weight",
		"mixer.q_proj.weight": "attn_q.weight", "mixer.k_proj.weight": "attn_k.weight", "mixer.v_proj.weight": "attn_v.weight",
		"mixer.o_proj.weight": "attn_output.weight", "mixer.in_proj.weight": "ssm_in.weight", "mixer.out_proj.weight": "ssm_out.weight",
		"mixer.conv1d.weight": "ssm_conv1d.weight", "mixer.conv1d.bias": "ssm_conv1d.bias", "mixer.norm.weight": "ssm_norm.weight"}
	h.convert = func(name string, values []float32, shape []int) []weightfile.Tensor {
		var layer int
		if n, _ := fmt.Sscanf(name, "backbone.layers.%d.", &layer); n == 0 {
			return []weightfile.Tensor{weightfile.F32(name, values, shape...)}
		}
		part := strings.SplitN(name, ".", 4)[3]
		if renamed := names[part]; renamed != "" {
			return []weightfile.Tensor{weightfile.F32(fmt.Sprintf("blk.%d.%s", layer, renamed), values, shape...)}
		}
		return convertGranite(fmt.Sprintf("blk.%d.%s", layer, strings.Replace(part, "mixer.", "mamba.", 1)), values, shape)
	}
	return f
}

func TestListsOfNemotronHInGGUF(t *testing.T) {
	for _, lengths := range []any{uint32(80), []int32{0, 80, 80, 0, 80, 0}, []int32{0, 80, 0, 0, 40, 0}, []int32{80}} {
		f := denseNemotronH()
		f.write(t)
		f.ref.hybrid.gguf["nemotron_h.feed_forward_length"] = lengths
		require.ErrorContains(t, openError(t, hybridGGUF(&f)), "nemotron_h.feed_forward_length is not", "%v", lengths)
	}
}
