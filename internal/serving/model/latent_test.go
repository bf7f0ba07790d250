package model_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model"
	pack "llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/weightfile"
)

// Ensure that the cache of a published model has 512 + 64 numbers a token.
func TestTheCacheOfDeepSeekHasOneLatentKeyPerToken(t *testing.T) {
	const published = `"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
		"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1,
		"n_routed_experts": 256, "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
		"v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
		"moe_layer_freq": 1, "first_k_dense_replace": 3, "norm_topk_prob": true, "num_nextn_predict_layers": 1,
		"max_position_embeddings": 163840, "rms_norm_eps": 1e-06, "rope_theta": 10000, "eos_token_id": 1, "hidden_act": "silu",
		"attention_bias": false, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
		"mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}}`
	c, err := model.ParseConfig([]byte(`{"model_type": "deepseek_v3", "scoring_func": "sigmoid", "topk_method": "noaux_tc", ` + published))
	require.NoError(t, err)
	require.Equal(t, attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 576, Latent: 512, DType: attention.BF16,
		Layout: attention.LayoutFlash}, c.KVShapeOf(model.Part{}, 16, attention.BF16))
	require.InDelta(t, 1.3688879454*1.3688879454/13.8564064606, c.AttentionFactor(), 1e-7)
	require.InDelta(t, 1, c.Rope.Attention, 1e-12)
	require.Equal(t, &model.Experts{Count: 256, PerToken: 8, IntermediateSize: 2048, SharedSize: 2048, Sigmoid: true, Correction: true,
		Groups: 8, Chosen: 4, Normalize: true, Scale: 2.5, Dense: c.Experts.Dense}, c.Experts)
	require.Equal(t, []bool{true, true, true, false}, c.Experts.Dense[:4])
	byDefault, err := model.ParseConfig([]byte(`{"model_type": "kimi_k2", ` + published))
	require.NoError(t, err)
	require.Equal(t, c.Experts, byDefault.Experts, "sigmoids with corrections are the default")
}

func TestLatentModelsThatAreNotSupportedAreRefused(t *testing.T) {
	for _, test := range []struct {
		want   string
		change map[string]any
	}{
		{"attention_bias is true", map[string]any{"attention_bias": true}},
		{"kv_lora_rank is missing", map[string]any{"kv_lora_rank": nil}},
		{`rope scaling of type "llama3"`, map[string]any{"rope_scaling": map[string]any{"type": "llama3", "factor": 2.0}}},
		{"rope_interleave is false", map[string]any{"rope_interleave": false}},
		{"kv_lora_rank is 36", map[string]any{"kv_lora_rank": 36}},
		{"kv_lora_rank is 576", map[string]any{"kv_lora_rank": 576}},
		{"q_lora_rank is -1", map[string]any{"q_lora_rank": -1}},
		{"v_head_dim is 0", map[string]any{"v_head_dim": 0}},
		{"qk_nope_head_dim is 0", map[string]any{"qk_nope_head_dim": 0}},
		{"qk_rope_head_dim 7", map[string]any{"qk_rope_head_dim": 7, "qk_nope_head_dim": 17}},
		{`topk_method is "best"`, map[string]any{"topk_method": "best"}},
		{`scoring_func is "sqrt"`, map[string]any{"scoring_func": "sqrt"}},
		{"3 of 8 experts for each token, in 1 of 4 groups", map[string]any{"topk_method": "group_limited_greedy", "n_group": 4}},
		{"in 5 of 4 groups", map[string]any{"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 5}},
		{"in 1 of 3 groups", map[string]any{"topk_method": "group_limited_greedy", "n_group": 3}},
		{"the weights of experts are multiplied by -1", map[string]any{"routed_scaling_factor": -1}},
	} {
		config := newerFamily(t, "DeepSeek V2-Lite").config
		maps.Copy(config, test.change)
		data, err := json.Marshal(config)
		require.NoError(t, err)
		_, err = model.ParseConfig(data)
		require.ErrorIs(t, err, model.ErrModel, test.want)
		require.ErrorContains(t, err, test.want)
	}
}

func TestAnAdapterOfTheMatrixThatMakesKeysAndValuesIsRefused(t *testing.T) {
	f := newerFamily(t, "DeepSeek V2-Lite")
	a := madeAdapter{seed: 1, rank: 4}
	path, _ := a.folder(t, map[string][2]int{"model.layers.0.self_attn.kv_b_proj": {160, 32}})
	_, err := model.OpenFolder(f.write(t), newPool(t, 1), model.Part{}, model.WithAdapters(openAdapters(t, path)...))
	require.ErrorContains(t, err, `changes "model.layers.0.self_attn.kv_b_proj", and adapters of the matrix that makes keys and values`)
}

// Ensure that layers for drafts change nothing, and that tensors of other layers after the last are reported or refused.
func TestLayersForDraftsAreNotUsed(t *testing.T) {
	f := newerFamily(t, "DeepSeek V3")
	f.config["num_nextn_predict_layers"] = 1
	want := newBench(t, f.write(t), 1).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)})
	dir := f.write(t)
	f.save(t, dir, func(name string, shape []int) []weightfile.Tensor {
		all := f.unchanged(name, shape)
		if name == "model.norm.weight" {
			all = append(all, weightfile.F32("model.layers.3.eh_proj.weight", []float32{1}, 1), weightfile.F32("model.layers.4.x.weight", []float32{1}, 1))
		}
		return all
	})
	b := newBench(t, dir, 1)
	require.Equal(t, want, b.step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)}))
	require.Equal(t, []string{"model.layers.4.x.weight"}, b.m.Unused())

	tiny := tinyOf(t, "deepseek2, V3")
	want = ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)})
	tiny.Tensors = append(tiny.Tensors, weightfile.F32("blk.4.nextn.eh_proj.weight", []float32{1}, 1))
	require.ErrorContains(t, openError(t, tiny.GGUF()), "tensors of layer 4")
	tiny.Meta["deepseek2.block_count"], tiny.Meta["deepseek2.nextn_predict_layers"] = uint32(5), uint32(1)
	require.Equal(t, want, ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)}))
}

// Ensure that older GGUF files are read, in which the matrix that makes keys and values is one tensor and the lengths
// of keys and values are those of the heads.
func TestOlderGGUFFilesWithLatentAttention(t *testing.T) {
	tiny := tinyOf(t, "deepseek2")
	want := ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)})
	g := openGGUF(t, tiny.GGUF())
	var tensors []weightfile.Tensor
	layer := 0
	for _, w := range tiny.Tensors {
		switch {
		case strings.HasSuffix(w.Name, "attn_k_b.weight"):
			both := joined(g, layer)
			w = weightfile.F32(strings.Replace(w.Name, "attn_k_b", "attn_kv_b", 1), both, len(both)/weightfile.TinyKVRank, weightfile.TinyKVRank)
			layer++
		case strings.HasSuffix(w.Name, "attn_v_b.weight"):
			continue
		}
		tensors = append(tensors, w)
	}
	tiny.Tensors = tensors
	delete(tiny.Meta, "deepseek2.attention.key_length_mla")
	delete(tiny.Meta, "deepseek2.attention.value_length_mla")
	tiny.Meta["deepseek2.attention.head_count_kv"] = uint32(weightfile.TinyHeads)
	tiny.Meta["deepseek2.attention.key_length"] = uint32(weightfile.TinyNope + weightfile.TinyRope)
	tiny.Meta["deepseek2.attention.value_length"] = uint32(weightfile.TinyValue)
	require.Equal(t, want, ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)}))
}

// Ensure that a GGUF file may lack expert_gating_func, which then depends on the correction, and that other values and
// keys are refused.
func TestHowExpertsAreChosenInGGUF(t *testing.T) {
	tiny := tinyOf(t, "deepseek2, V3")
	want := ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)})
	delete(tiny.Meta, "deepseek2.expert_gating_func")
	require.Equal(t, want, ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)}))
	tiny.Meta["deepseek2.expert_gating_func"] = uint32(3)
	require.ErrorContains(t, openError(t, tiny.GGUF()), "expert_gating_func is not 1 (softmax) or 2 (sigmoid)")
	tiny.Meta["deepseek2.expert_gating_func"] = uint32(2)
	delete(tiny.Meta, "deepseek2.attention.kv_lora_rank")
	require.ErrorContains(t, openError(t, tiny.GGUF()), "the key deepseek2.attention.kv_lora_rank is missing")
}

// Ensure that quantized weights are read, although the matrices of heads are parts of a tensor and are transposed. In
// FP8 the blocks of weights with a scale end within heads and within the latent key.
func TestQuantizedLatentAttention(t *testing.T) {
	f := newerFamily(t, "DeepSeek V3")
	config := map[string]any{"hidden_size": 64, "q_lora_rank": 32, "moe_intermediate_size": 32, "n_shared_experts": 2,
		"intermediate_size": 96, "v_head_dim": 24, "quantization_config": map[string]any{"quant_method": "fp8", "fmt": "e4m3",
			"weight_block_size": []int{32, 32}}}
	maps.Copy(f.config, config)
	f.ref.hidden, f.ref.inter, f.ref.shape.expertInter, f.ref.shape.sharedInter = 64, 96, 32, 64
	latent := *f.ref.shape.latent
	latent.queryRank = 32
	f.ref.shape.latent = &latent
	dir := f.write(t)
	rnd := rand.New(rand.NewPCG(8, 3))
	f.save(t, dir, func(name string, shape []int) []weightfile.Tensor {
		if !strings.HasSuffix(name, "_proj.weight") && !strings.HasSuffix(name, "with_mqa.weight") {
			return f.unchanged(name, shape)
		}
		return randomFP8Blocks(rnd, name, shape[0], shape[1], f.ref.w[name])
	})
	b := newBench(t, dir, 2)
	require.Empty(t, b.m.Unused())
	maxError, _, size := logitErrors(t, b, &f.ref)
	require.Less(t, maxError, 2e-4)
	require.Greater(t, size, 0.3)

	tiny := tinyOf(t, "deepseek2, V3")
	for i, one := range tiny.Tensors {
		if s := one.Shape; len(s) > 1 && s[len(s)-1]%32 == 0 {
			rows := s[0]
			if len(s) == 3 {
				rows *= s[1]
			}
			tiny.Tensors[i] = randomTensor(rnd, one.Name, "Q8_0", rows, s[len(s)-1])
			tiny.Tensors[i].Shape = s
		}
	}
	data := tiny.GGUF()
	maxError, _, size = logitErrors(t, ggufBench(t, data), tinyReference(openGGUF(t, data), tiny))
	require.Less(t, maxError, 2e-5*max(1, size))
	_, mean, _ := logitErrors(t, ggufBench(t, data, model.Int8Activations), tinyReference(openGGUF(t, data), tiny))
	require.NotZero(t, mean)
	require.Less(t, mean, 0.05*max(1, size))
}

// randomFP8Blocks makes a matrix in FP8 whose blocks of 32 × 32 weights have a scale. It stores the dequantized weights
// in weights.
func randomFP8Blocks(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor {
	n := (cols + 31) / 32
	data, scales := make([]byte, rows*cols), make([]float32, (rows+31)/32*n)
	for i := range scales {
		scales[i] = 0.0005 * (1 + rnd.Float32())
	}
	for i := range data {
		data[i] = byte(rnd.IntN(127) | rnd.IntN(2)<<7)
		weights[i] = pack.E4M3.Table()[data[i]] * scales[i/cols/32*n+i%cols/32]
	}
	return []weightfile.Tensor{{Name: name, DType: "F8_E4M3", Shape: []int{rows, cols}, Data: data},
		weightfile.F32(name+"_scale_inv", scales, len(scales)/n, n)}
}
