package weightfile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// A Tiny is a GGUF model with the architecture of a supported family. It has a few thousand random weights in F32.
type Tiny struct {
	Name    string
	Meta    map[string]any
	Tensors []Tensor
}

// The sizes of all Tinies. In models with a window, attention has a window of 9 tokens. In models with experts, each
// token uses 2 of 5. So a test with about 50 tokens shows whether the window and the choice of experts are right.
const (
	TinyHidden, TinyHeads, TinyKVHeads, TinyDim   = 64, 4, 2, 16
	TinyInter, TinyVocab, TinyLayers, TinyContext = 96, 300, 4, 256
	TinyExperts, TinyUsed, TinyShared, TinyWindow = 5, 2, 32, 9
)

// Tinies returns a model of each family that can be in a GGUF file, and models with several kinds of rope scaling.
func Tinies() []Tiny {
	mixture := map[string]any{"expert_count": uint32(TinyExperts), "expert_used_count": uint32(TinyUsed)}
	experts := maps.Clone(mixture)
	experts["expert_feed_forward_length"] = uint32(TinyInter)
	shared := maps.Clone(experts)
	shared["expert_shared_feed_forward_length"] = uint32(TinyShared)
	window := func(extra map[string]any) map[string]any {
		all := map[string]any{"attention.sliding_window": uint32(TinyWindow)}
		maps.Copy(all, extra)
		return all
	}
	yarn := map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(4),
		"rope.scaling.original_context_length": uint32(64)}
	partial := map[string]any{"rope.dimension_count": uint32(TinyDim * 3 / 4)}
	long := map[string]any{"rope.scaling.attn_factor": float32(1.2), "rope.scaling.original_context_length": uint32(64)}
	cap := map[string]any{"attn_logit_softcapping": float32(5), "final_logit_softcapping": float32(3)}
	gptOSS := window(experts)
	maps.Copy(gptOSS, yarn)
	return []Tiny{
		tiny("llama", "llama", nil), tiny("llama, yarn", "llama", yarn), tiny("mixtral", "llama", mixture),
		tiny("qwen3, yarn", "qwen3", yarn), tiny("qwen2moe", "qwen2moe", shared), tiny("qwen3moe", "qwen3moe", experts),
		tiny("phi3", "phi3", nil), tiny("phi3, partly rotated", "phi3", partial), tiny("phi3, longrope", "phi3", long),
		tiny("smollm3", "smollm3", nil), tiny("olmo2", "olmo2", nil), tiny("olmo2, windows and yarn", "olmo2", window(yarn)),
		tiny("granite", "granite", map[string]any{"embedding_scale": float32(3), "residual_scale": float32(0.3),
			"attention.scale": float32(0.1), "logit_scale": float32(0.25)}),
		tiny("gemma2", "gemma2", window(cap)), tiny("gemma3", "gemma3", window(map[string]any{
			"rope.freq_base_swa": float32(100), "attention.sliding_window_pattern": uint32(3), "rope.scaling.type": "linear",
			"rope.scaling.factor": float32(2)})),
		tiny("gpt-oss", "gpt-oss", gptOSS), tiny("gpt-oss, MXFP4", "gpt-oss", gptOSS),
		tiny("deepseek2", "deepseek2", latentMeta(false)), tiny("deepseek2, V3", "deepseek2", latentMeta(true)),
		tiny("glm4", "glm4", map[string]any{"rope.dimension_count": uint32(TinyDim / 2)}),
		tiny("glm4moe", "glm4moe", routedMeta(map[string]any{"rope.dimension_count": uint32(TinyDim / 2), "expert_gating_func": uint32(2),
			"expert_weights_norm": true, "expert_group_count": uint32(1), "expert_group_used_count": uint32(1)})),
		tiny("llama4", "llama4", llama4Meta()), tiny("ernie4_5", "ernie4_5", nil), tiny("ernie4_5-moe", "ernie4_5-moe", routedMeta(map[string]any{
			"expert_shared_feed_forward_length": uint32(2 * TinyShared), "interleave_moe_layer_step": uint32(1)})),
	}
}

// GGUF returns the model as a file.
func (t *Tiny) GGUF() []byte { return GGUF(t.Meta, t.Tensors...) }

func tiny(name, arch string, extra map[string]any) Tiny {
	b := builder{Tiny: Tiny{Name: name, Meta: tinyMeta(arch, extra)}, arch: arch, experts: extra["expert_count"] != nil,
		rnd: rand.New(rand.NewPCG(3, 5))}
	b.matrix("token_embd", TinyVocab, TinyHidden)
	if arch != "gemma2" && arch != "smollm3" && arch != "ernie4_5" {
		b.matrix("output", TinyVocab, TinyHidden)
	}
	b.norm("output_norm", TinyHidden)
	for i := range TinyLayers {
		b.dense = i < lead(extra) || arch == "llama4" && i%2 == 0
		for _, t := range slices.Concat(b.norms(), b.attention(), b.feedForward()) {
			if t.present {
				t.add(fmt.Sprintf("blk.%d.%s", i, t.name), t.shape...)
			}
		}
	}
	if strings.Contains(name, "longrope") {
		b.random("rope_factors_short.weight", 0.1, 1.5, TinyDim/2)
		b.random("rope_factors_long.weight", 0.3, 4, TinyDim/2)
	}
	return b.Tiny
}

func tinyMeta(arch string, extra map[string]any) map[string]any {
	l := Llama{Hidden: TinyHidden, Layers: TinyLayers, Heads: TinyHeads, KVHeads: TinyKVHeads, Inter: TinyInter,
		Vocab: TinyVocab, Context: TinyContext}
	all := map[string]any{}
	for key, value := range l.meta() {
		if rest, ok := strings.CutPrefix(key, "llama."); ok {
			key = arch + "." + rest
		}
		all[key] = value
	}
	all["general.architecture"], all[arch+".rope.freq_base"] = arch, float32(1000)
	for key, value := range extra {
		all[arch+"."+key] = value
	}
	return all
}

// A builder adds tensors of random numbers to a Tiny.
type builder struct {
	Tiny
	arch    string
	experts bool
	dense   bool // the layer has an MLP and no experts
	rnd     *rand.Rand
}

func (b *builder) random(name string, size, middle float64, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(middle + b.rnd.NormFloat64()*size)
	}
	b.Tensors = append(b.Tensors, F32(name, values, shape...))
}

func (b *builder) matrix(tensor string, shape ...int) {
	if strings.Contains(b.Name, "MXFP4") && strings.HasSuffix(tensor, "_exps") {
		b.Tensors = append(b.Tensors, mxfp4(b.rnd, tensor+".weight", shape...))
		return
	}
	b.random(tensor+".weight", 0.15, 0, shape...)
}

func (b *builder) norm(name string, shape ...int)  { b.random(name+".weight", 0.15, 1, shape...) }
func (b *builder) sinks(name string, shape ...int) { b.random(name+".weight", 1, 1, shape...) }
func (b *builder) bias(name string, shape ...int)  { b.random(name+".bias", 0.3, 0, shape...) }

// A layerTensor is a tensor that is part of each layer in some families.
type layerTensor struct {
	present bool // in the layers of this family
	name    string
	add     func(name string, shape ...int)
	shape   []int
}

const tinyQuery, tinyKV = TinyHeads * TinyDim, TinyKVHeads * TinyDim

func (b *builder) norms() []layerTensor {
	olmo2, gptOSS, gemma := b.arch == "olmo2", b.arch == "gpt-oss", strings.HasPrefix(b.arch, "gemma")
	glm, mixedGLM := b.arch == "glm4", b.arch == "glm4moe"
	ofHeads := map[string][2]int{"glm4moe": {TinyDim, TinyDim}, "olmo2": {tinyQuery, tinyKV}, "qwen3": {TinyDim, TinyDim}, "qwen3moe": {TinyDim, TinyDim},
		"gemma3": {TinyDim, TinyDim}}[b.arch]
	return []layerTensor{
		{!olmo2, "attn_norm", b.norm, []int{TinyHidden}},
		{!olmo2 && !gptOSS && !mixedGLM, "ffn_norm", b.norm, []int{TinyHidden}},
		{olmo2 || gptOSS || gemma || glm || mixedGLM, "post_attention_norm", b.norm, []int{TinyHidden}},
		{olmo2 || gemma || glm, "post_ffw_norm", b.norm, []int{TinyHidden}},
		{ofHeads[0] > 0, "attn_q_norm", b.norm, []int{ofHeads[0]}},
		{ofHeads[0] > 0, "attn_k_norm", b.norm, []int{ofHeads[1]}},
	}
}

func (b *builder) attention() []layerTensor {
	if b.arch == "deepseek2" {
		return b.latent()
	}
	phi3, gptOSS := b.arch == "phi3", b.arch == "gpt-oss"
	biases := gptOSS || b.arch == "qwen2moe" || b.arch == "glm4" || b.arch == "glm4moe"
	return []layerTensor{
		{phi3, "attn_qkv", b.matrix, []int{tinyQuery + 2*tinyKV, TinyHidden}},
		{!phi3, "attn_q", b.matrix, []int{tinyQuery, TinyHidden}},
		{!phi3, "attn_k", b.matrix, []int{tinyKV, TinyHidden}},
		{!phi3, "attn_v", b.matrix, []int{tinyKV, TinyHidden}},
		{biases, "attn_q", b.bias, []int{tinyQuery}},
		{biases, "attn_k", b.bias, []int{tinyKV}},
		{biases, "attn_v", b.bias, []int{tinyKV}},
		{true, "attn_output", b.matrix, []int{TinyHidden, tinyQuery}},
		{gptOSS, "attn_output", b.bias, []int{TinyHidden}},
		{gptOSS, "attn_sinks", b.sinks, []int{TinyHeads}},
	}
}

func (b *builder) feedForward() []layerTensor {
	const hidden, inter = TinyHidden, TinyInter
	if b.arch == "llama4" {
		return b.llama4()
	}
	if b.Meta[b.arch+".expert_shared_count"] != nil {
		return b.routed()
	}
	phi3, gptOSS, shared := b.arch == "phi3" || b.arch == "glm4", b.arch == "gpt-oss", b.arch == "qwen2moe"
	return []layerTensor{
		{b.experts, "ffn_gate_inp", b.matrix, []int{TinyExperts, hidden}},
		{b.experts, "ffn_gate_exps", b.matrix, []int{TinyExperts, inter, hidden}},
		{b.experts, "ffn_up_exps", b.matrix, []int{TinyExperts, inter, hidden}},
		{b.experts, "ffn_down_exps", b.matrix, []int{TinyExperts, hidden, inter}},
		{phi3, "ffn_up", b.matrix, []int{2 * inter, hidden}},
		{!b.experts && !phi3, "ffn_gate", b.matrix, []int{inter, hidden}},
		{!b.experts && !phi3, "ffn_up", b.matrix, []int{inter, hidden}},
		{!b.experts, "ffn_down", b.matrix, []int{hidden, inter}},
		{gptOSS, "ffn_gate_inp", b.bias, []int{TinyExperts}},
		{gptOSS, "ffn_gate_exps", b.bias, []int{TinyExperts, inter}},
		{gptOSS, "ffn_up_exps", b.bias, []int{TinyExperts, inter}},
		{gptOSS, "ffn_down_exps", b.bias, []int{TinyExperts, hidden}},
		{shared, "ffn_gate_inp_shexp", b.matrix, []int{hidden}},
		{shared, "ffn_gate_shexp", b.matrix, []int{TinyShared, hidden}},
		{shared, "ffn_up_shexp", b.matrix, []int{TinyShared, hidden}},
		{shared, "ffn_down_shexp", b.matrix, []int{hidden, TinyShared}},
	}
}

// mxfp4 returns a tensor of random numbers in MXFP4: blocks of 32 numbers of 4 bits, each block with an exponent whose
// bias is 127.
func mxfp4(rnd *rand.Rand, name string, shape ...int) Tensor {
	t := Tensor{Name: name, Type: 39, Shape: shape}
	for range shape[0] * shape[1] * shape[2] / 32 {
		t.Data = append(t.Data, byte(120+rnd.IntN(3)))
		for range 16 {
			t.Data = append(t.Data, byte(rnd.Uint32()))
		}
	}
	return t
}
