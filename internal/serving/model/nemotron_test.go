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
)

// nemotronH returns a model whose layers have one half each: Mamba 2, experts, attention, an MLP.
func nemotronH() family {
	return family{name: "Nemotron-H", config: map[string]any{
		"model_type": "nemotron_h", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 64, "intermediate_size": 80, "max_position_embeddings": length, "layer_norm_epsilon": 1e-5, "rope_theta": 10000, "mlp_hidden_act": "relu2",
		"hybrid_override_pattern": "ME*M-E", "mamba_num_heads": 6, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
		"use_conv_bias": true, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 40,
		"moe_shared_expert_intermediate_size": 56, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
		"time_step_limit": []float64{0, 1.5}, "expand": 2, "tie_word_embeddings": false,
	}, ref: reference{family: "nemotron_h", layers: 6, heads: 4, kvHeads: 2, dim: 64, hidden: 48, inter: 80, vocab: 97, eps: 1e-5,
		hybrid: &hybrid{norm: "backbone.norm_f", embed: "backbone.embeddings", kernel: 4, convBias: true, heads: 6, columns: 16, keyHeads: 2, rows: 16,
			maxStep: 1.5, recurrent: []bool{true, false, false, true, false, false}, layer: (*reference).nemotronLayer, tensors: nemotronTensors}}}
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
	for l, kind := range "ME*M-E" {
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
	switch "ME*M-E"[l] {
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
	f := nemotronH()
	want, err := model.ParseConfig(toJSON(t, f.config))
	require.NoError(t, err)
	require.Equal(t, 1.5, want.Recurrence.MaxStep)
	types := maps.Clone(f.config)
	delete(types, "hybrid_override_pattern")
	types["layers_block_type"] = []string{"mamba", "moe", "attention", "mamba", "mlp", "moe"}
	got, err := model.ParseConfig(toJSON(t, types))
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, limit := range []string{`[0.0, Infinity]`, `[0.0, {"__float__": "Infinity"}]`} {
		types["time_step_limit"], types["name"] = "LIMIT", `"Infinity\"`
		text := strings.Replace(string(toJSON(t, types)), `"LIMIT"`, limit, 1)
		got, err = model.ParseConfig([]byte(text))
		require.NoError(t, err, text)
		require.Zero(t, got.Recurrence.MaxStep)
	}
	for _, test := range []struct {
		change map[string]any
		want   string
	}{
		{map[string]any{"hybrid_override_pattern": "MX*M-E"}, "layer 1 of hybrid_override_pattern is none of M, *, - and E"},
		{map[string]any{"hybrid_override_pattern": "M*"}, "hybrid_override_pattern has 2 layers; num_hidden_layers is 6"},
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
