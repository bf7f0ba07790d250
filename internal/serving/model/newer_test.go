package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

func init() { level.CollectLess() }

type makeFamily func(name, kind string, heads, kvHeads, dim int, fields map[string]any) family

func newerFamilies(llama makeFamily) []family {
	make := func(name, kind string, heads, kvHeads, dim int, shape layerShape, extra map[string]any) family {
		f := llama(name, kind, heads, kvHeads, dim, extra)
		f.ref.shape = shape
		if window, ok := extra["sliding_window"].(int); ok {
			f.ref.window = window
		}
		if layers, ok := extra["num_hidden_layers"].(int); ok {
			f.ref.layers = layers
		}
		return f
	}
	last := func(n int) func(int) bool { return func(l int) bool { return l%n == n-1 } }
	gemma := layerShape{offset: 1, embed: math.Sqrt(48), attention: 1 / math.Sqrt(24), postNorm: true, preNorm: true, gelu: true,
		full: last(2), cap: 5, logitCap: 3}
	gemma2 := make("Gemma 2", "gemma2", 4, 2, 16, gemma, map[string]any{"hidden_activation": "gelu_pytorch_tanh", "hidden_act": nil,
		"sliding_window": 9, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
		"tie_word_embeddings": true})
	gemma.cap, gemma.logitCap, gemma.headNorm, gemma.full, gemma.localTheta = 0, 0, true, last(3), 100
	gemma3 := make("Gemma 3", "gemma3_text", 4, 1, 32, gemma, map[string]any{"hidden_activation": "gelu_pytorch_tanh",
		"hidden_act": nil, "sliding_window": 9, "sliding_window_pattern": 3, "num_hidden_layers": 3, "query_pre_attn_scalar": 24, "rope_local_base_freq": 100.0,
		"rope_scaling": map[string]any{"rope_type": "linear", "factor": 2.0}, "tie_word_embeddings": true})
	gemma3.ref.scale = func(f float64) float64 { return f / 2 }

	partial := make("Phi-4-mini, partly rotated", "phi3", 4, 2, 16, layerShape{}, map[string]any{"partial_rotary_factor": 0.75,
		"sliding_window": 9})
	partial.ref.rotated = 12
	short, long := []float64{1, 1, 1.5, 2, 2, 2.5, 3, 3}, []float64{1, 2, 3, 4, 5, 6, 7, 8}
	longrope := make("Phi-3, longrope", "phi3", 4, 4, 16, layerShape{}, map[string]any{"original_max_position_embeddings": 32,
		"rope_scaling": map[string]any{"type": "su", "short_factor": short, "long_factor": long}})
	longrope.ref.stretch = func(i int) float64 { return 1 / long[i] }
	longrope.ref.ropeFactor = math.Sqrt(1 + math.Log(length/32)/math.Log(32))

	yarn := make("Qwen3, yarn", "qwen3", 4, 2, 32, layerShape{}, map[string]any{"rope_scaling": map[string]any{
		"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0}})
	yarn.ref.ropeFactor = 0.1*math.Log(4) + 1
	yarn.ref.stretch = func(i int) float64 { // over 64 tokens, the first pair makes 8 turns, the seventh less than one
		ramp := min(1, float64(i)/6)
		return (1 - ramp) + ramp/4
	}
	olmo3 := make("OLMo 3", "olmo3", 4, 2, 32, layerShape{postNorm: true, widthNorm: true, full: last(4), localTheta: 1000},
		map[string]any{"num_hidden_layers": 4, "sliding_window": 9, "rope_scaling": map[string]any{"rope_type": "yarn",
			"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0}})
	olmo3.ref.ropeFactor, olmo3.ref.stretch = yarn.ref.ropeFactor, yarn.ref.stretch
	dynamic := make("Llama, dynamic", "llama", 4, 2, 16, layerShape{}, map[string]any{"rope_scaling": map[string]any{
		"type": "dynamic", "factor": 2.0}})
	dynamic.ref.theta = 1000 * math.Pow(3, 16.0/14)

	granite := make("Granite 3", "granite", 4, 2, 16, layerShape{embed: 3, residual: 0.3, attention: 0.1, logits: 1.0 / 4},
		map[string]any{"embedding_multiplier": 3.0, "residual_multiplier": 0.3, "attention_multiplier": 0.1, "logits_scaling": 4.0})
	mixture := layerShape{experts: 5, perToken: 2, expertInter: 40, router: "mlp.gate", expertNames: "mlp.experts.%d.",
		expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"}}
	qwen2, qwen3, mixtral := mixture, mixture, mixture
	qwen2.sharedInter = 56
	qwen3.normalize, qwen3.headNorm = true, true
	mixtral.normalize, mixtral.router, mixtral.expertNames, mixtral.expertInter = true, "block_sparse_moe.gate",
		"block_sparse_moe.experts.%d.", 80
	mixtral.expertMLP = [3]string{"w1", "w3", "w2"}
	gptOSS := make("gpt-oss", "gpt_oss", 4, 2, 32, gptOSSShape(80), gptOSSConfig(80))
	gptOSS.ref.bias, gptOSS.ref.ropeFactor, gptOSS.ref.stretch = true, yarn.ref.ropeFactor, exactYarn
	experts := map[string]any{"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
		"shared_expert_intermediate_size": 56, "norm_topk_prob": false}
	normalized := maps.Clone(experts)
	normalized["norm_topk_prob"] = true
	return append(latentFamilies(make), []family{
		gemma2, gemma3, make("Phi-3", "phi3", 4, 2, 16, layerShape{}, nil), partial, longrope, yarn, olmo3, dynamic, granite,
		make("SmolLM3", "smollm3", 4, 2, 16, layerShape{noRope: last(4)}, map[string]any{"num_hidden_layers": 4, "tie_word_embeddings": true}),
		make("OLMo 2", "olmo2", 4, 4, 16, layerShape{postNorm: true, widthNorm: true}, nil),
		make("Mixtral", "mixtral", 4, 2, 16, mixtral, map[string]any{"num_local_experts": 5, "num_experts_per_tok": 2}),
		make("Qwen2-MoE", "qwen2_moe", 4, 2, 16, qwen2, experts),
		make("Qwen3-MoE", "qwen3_moe", 4, 4, 16, qwen3, normalized), gptOSS,
	}...)
}

func tinyReference(g *weights.GGUF, t *weightfile.Tiny) *reference {
	arch := t.Meta["general.architecture"].(string)
	const scale = float64(float32(0.3)) // as the file has it
	r := &reference{family: arch, layers: weightfile.TinyLayers, heads: weightfile.TinyHeads, kvHeads: weightfile.TinyKVHeads,
		dim: weightfile.TinyDim, hidden: weightfile.TinyHidden, inter: weightfile.TinyInter, vocab: weightfile.TinyVocab,
		eps: float64(float32(1e-5)), theta: 1000, w: tinyWeights(g, arch)}
	if t.Meta[arch+".rope.scaling.type"] == "yarn" { // original length 64, of 8 pairs: the first turns 10 times
		r.ropeFactor = 0.1*math.Log(4) + 1
		r.stretch = func(i int) float64 {
			ramp := min(1, float64(i)/3)
			return (1 - ramp) + ramp/4
		}
	}
	last := func(n int) func(int) bool { return func(l int) bool { return l%n == n-1 } }
	if t.Meta[arch+".attention.sliding_window"] != nil {
		r.window = weightfile.TinyWindow
	}
	if t.Meta[arch+".expert_count"] != nil {
		r.shape = layerShape{experts: weightfile.TinyExperts, perToken: weightfile.TinyUsed, expertInter: weightfile.TinyInter,
			router: "mlp.gate", expertNames: "mlp.experts.%d.", expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"},
			normalize: arch != "qwen2moe"}
	}
	p := &r.shape
	switch t.Name {
	case "qwen2moe":
		p.sharedInter = weightfile.TinyShared
	case "qwen3, yarn", "qwen3moe":
		p.headNorm = true
	case "phi3, partly rotated":
		r.rotated = 12
	case "phi3, longrope":
		long := g.Get("rope_factors_long.weight").Vector()
		r.stretch = func(i int) float64 { return 1 / float64(long[i]) }
		r.ropeFactor = float64(float32(1.2))
	case "smollm3":
		p.noRope = last(4)
	case "olmo2", "olmo2, windows and yarn":
		*p = layerShape{postNorm: true, widthNorm: true, full: last(4), localTheta: 1000}
	case "granite":
		*p = layerShape{embed: 3, residual: scale, attention: float64(float32(0.1)), logits: 4}
	case "gemma2":
		*p = layerShape{embed: 8, postNorm: true, preNorm: true, gelu: true, full: last(2), cap: 5, logitCap: 3}
	case "gemma3":
		*p = layerShape{embed: 8, postNorm: true, preNorm: true, gelu: true, full: last(3), headNorm: true, localTheta: 100}
		r.scale = func(f float64) float64 { return f / 2 }
	case "deepseek2", "deepseek2, V3":
		tinyLatent(r, t.Name == "deepseek2, V3")
	case "glm4":
		p.postNorm, p.preNorm, r.pairs, r.rotated = true, true, true, 8
	case "glm4moe":
		*p, r.rotated = tinyRouted(&routerShape{scale: 1.5, sigmoid: true, correction: true}), 8
		p.normalize, p.headNorm = true, true
	case "llama4":
		*p = tinyRouted(&routerShape{sigmoid: true, inputs: true})
		p.experts, p.sharedInter, p.rotatedNorm, p.floor = weightfile.TinyExperts, weightfile.TinyShared, true, 8192
		p.noRope, p.dense = last(4), func(l int) bool { return l%2 == 0 }
	case "ernie4_5-moe":
		*p = tinyRouted(&routerShape{scale: 1, correction: true})
		p.normalize = true
	case "gpt-oss", "gpt-oss, MXFP4":
		p.clamped, p.full = true, last(2)
	}
	return r
}

// interleavedGGUF lists the architectures whose GGUF files have the rows of queries and keys in another order than
// folders.
var interleavedGGUF = []string{"llama", "smollm3", "granite", "ernie4_5", "ernie4_5-moe", "llama4"}

// tinyWeights returns the tensors of a GGUF file under the names that they have in a model folder.
func tinyWeights(g *weights.GGUF, arch string) map[string][]float32 {
	w := published(g, slices.Contains(interleavedGGUF, arch), weightfile.TinyDim)
	parts := map[string]string{"attn_qkv": "self_attn.qkv_proj", "attn_sinks": "self_attn.sinks",
		"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
		"ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
		"ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj"}
	if arch == "phi3" || arch == "glm4" {
		parts["ffn_up"] = "mlp.gate_up_proj"
	}
	if strings.HasPrefix(arch, "gemma") || arch == "glm4" {
		parts["ffn_norm"] = "pre_feedforward_layernorm"
	}
	maps.Copy(parts, routedParts(g, arch))
	for l := range weightfile.TinyLayers {
		if bias := g.Get(fmt.Sprintf("blk.%d.exp_probs_b.bias", l)); bias != nil {
			w[fmt.Sprintf("model.layers.%d.%s", l, correctionBias)] = bias.Vector()
		}
		if arch == "deepseek2" {
			w[fmt.Sprintf("model.layers.%d.self_attn.kv_b_proj.weight", l)] = joined(g, l)
		}
		for _, kind := range []string{".weight", ".bias"} {
			for source, target := range parts {
				if t := g.Get(fmt.Sprintf("blk.%d.%s%s", l, source, kind)); t != nil {
					w[fmt.Sprintf("model.layers.%d.%s%s", l, target, kind)] = t.Vector()
				}
			}
			for _, name := range []string{"gate", "up", "down"} {
				t := g.Get(fmt.Sprintf("blk.%d.ffn_%s_exps%s", l, name, kind))
				if t == nil {
					continue
				}
				count, _ := g.Meta[arch+".expert_count"].Int()
				for e, all := 0, t.Vector(); e < int(count); e++ {
					n := len(all) / int(count)
					w[fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s_proj%s", l, e, name, kind)] = all[e*n : (e+1)*n]
				}
			}
		}
	}
	return w
}

// internal/bench/llamacpp.sh compares the same files with llama.cpp.
func TestTinyGGUFLogitsAreThoseOfTheReference(t *testing.T) {
	for _, tiny := range tinies() {
		t.Run(tiny.Name, func(t *testing.T) {
			data := tiny.GGUF()
			maxError, _, size := logitErrors(t, ggufBench(t, data), tinyReference(openGGUF(t, data), &tiny))
			require.Less(t, maxError, 2e-5*max(1, size))
			require.Greater(t, size, 0.5, "the logits are too small to show anything")
		})
	}
}

// Ensure that older GGUF files of Mixtral can be read. They have one tensor for each expert.
func TestExpertsInTensorsOfTheirOwn(t *testing.T) {
	tiny := tinyOf(t, "mixtral")
	want := ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)})
	var tensors []weightfile.Tensor
	for _, w := range tiny.Tensors {
		name, stacked := strings.CutSuffix(w.Name, "_exps.weight")
		if !stacked {
			tensors = append(tensors, w)
			continue
		}
		for e, n := 0, len(w.Data)/w.Shape[0]; e < w.Shape[0]; e++ {
			tensors = append(tensors, weightfile.Tensor{Name: fmt.Sprintf("%s.%d.weight", name, e), Shape: w.Shape[1:],
				Data: w.Data[e*n:][:n]})
		}
	}
	tiny.Tensors = tensors
	require.Equal(t, want, ggufBench(t, tiny.GGUF()).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)}))
}

// Without prefixes, a model was saved without its head.
func TestThePrefixesOfTensorsAreRead(t *testing.T) {
	f := newerFamily(t, "Gemma 3")
	want := newBench(t, f.write(t), 1).step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)})
	config, err := json.Marshal(map[string]any{"model_type": "gemma3", "text_config": f.config, "eos_token_id": []int{5}})
	require.NoError(t, err)
	for _, prefix := range []string{"language_model.model.", "model.language_model.", ""} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
		f.save(t, dir, func(name string, shape []int) []weightfile.Tensor {
			all := []weightfile.Tensor{weightfile.F32(strings.Replace(name, "model.", prefix, 1), f.ref.w[name], shape...)}
			if name == "model.norm.weight" {
				all = append(all, weightfile.F32("vision_tower.x.weight", []float32{1}, 1))
			}
			return all
		})
		b := newBench(t, dir, 1)
		require.Equal(t, want, b.step(t, part{tokens: randomTokens(1, 20), table: randomTable(1, 0, 8)}))
		require.Equal(t, []int32{5}, b.m.End)
		require.Empty(t, b.m.Unused())
	}
}

func newerFamily(t *testing.T, name string) *family {
	all := families()
	i := slices.IndexFunc(all, func(f family) bool { return f.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return &all[i]
}

// Ensure that longrope uses the short factors if the maximum sequence length is not above the original length.
func TestLongRopeDependsOnTheLongestSequence(t *testing.T) {
	f := newerFamily(t, "Phi-3, longrope")
	b := newBench(t, f.write(t), 1)
	b.runner.Limit(32)
	short := []float64{1, 1, 1.5, 2, 2, 2.5, 3, 3}
	f.ref.stretch = func(i int) float64 { return 1 / short[i] }
	maxError, _, _ := logitErrors(t, b, &f.ref)
	require.Less(t, maxError, 2e-4)
	require.Equal(t, "short factors", b.m.RopeFor(32))
	require.Equal(t, "long factors", b.m.RopeFor(33))
}

func TestTinyGGUFWithMoreOrLessIsRefused(t *testing.T) {
	for _, tiny := range tinies() {
		t.Run(tiny.Name, func(t *testing.T) {
			tiny := tinyOf(t, tiny.Name)
			all, arch := tiny.Tensors, tiny.Meta["general.architecture"].(string)
			tiny.Tensors = append(slices.Clone(all), weightfile.F32("blk.1.attn_sub_norm.weight", make([]float32, 64), 64))
			err := openError(t, tiny.GGUF())
			require.ErrorContains(t, err, fmt.Sprintf("%q is not supported in models of the architecture %q", "blk.1.attn_sub_norm.weight", arch))
			tiny.Tensors = slices.Clone(all[:len(all)-1])
			err = openError(t, tiny.GGUF())
			require.ErrorContains(t, err, fmt.Sprintf("%q is missing", all[len(all)-1].Name))
			tiny.Tensors = all
			tiny.Meta[arch+".attention.temperature_length"] = uint32(1)
			err = openError(t, tiny.GGUF())
			require.ErrorContains(t, err, arch+".attention.temperature_length")
		})
	}
}

func TestQuantizedExperts(t *testing.T) {
	for _, kind := range []string{"Q8_0", "Q4_0", "BF16"} {
		t.Run(kind, func(t *testing.T) {
			tiny := tinyOf(t, "qwen3moe")
			rnd := rand.New(rand.NewPCG(2, 4))
			for i, one := range tiny.Tensors {
				if s := one.Shape; len(s) == 3 {
					tiny.Tensors[i] = randomTensor(rnd, one.Name, kind, s[0]*s[1], s[2])
					tiny.Tensors[i].Shape = s
				}
			}
			data := tiny.GGUF()
			maxError, _, size := logitErrors(t, ggufBench(t, data), tinyReference(openGGUF(t, data), tiny))
			require.Less(t, maxError, 2e-5*size)
			if kind == "BF16" {
				return
			}
			_, mean, size := logitErrors(t, ggufBench(t, data, model.Int8Activations), tinyReference(openGGUF(t, data), tiny))
			require.Less(t, mean, 0.05*size)
			require.NotZero(t, mean)
		})
	}
}

var tinies = sync.OnceValue(weightfile.Tinies)

func tinyOf(t *testing.T, name string) *weightfile.Tiny {
	i := slices.IndexFunc(tinies(), func(tiny weightfile.Tiny) bool { return tiny.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	tiny := tinies()[i]
	tiny.Meta, tiny.Tensors = maps.Clone(tiny.Meta), slices.Clone(tiny.Tensors)
	return &tiny
}
