package weightfile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// A Tiny is a GGUF model of one of the supported families. It has a few thousand random weights in F32.
type Tiny struct {
	Name    string
	Meta    map[string]any
	Tensors []Tensor
}

// The sizes of all Tinies. They were chosen so that windows and experts affect the results within some 50 tokens.
const (
	TinyHidden, TinyHeads, TinyKVHeads, TinyDim   = 64, 4, 2, 16
	TinyInter, TinyVocab, TinyLayers, TinyContext = 96, 300, 4, 256
	TinyExperts, TinyUsed, TinyShared, TinyWindow = 5, 2, 32, 9
)

// Tinies returns a model of each family that GGUF files can have, and models with several kinds of rope scaling.
func Tinies() []Tiny {
	mixture := map[string]any{"expert_count": uint32(TinyExperts), "expert_used_count": uint32(TinyUsed)}
	experts := maps.Clone(mixture)
	experts["expert_feed_forward_length"] = uint32(TinyInter)
	shared := maps.Clone(experts)
	shared["expert_shared_feed_forward_length"] = uint32(TinyShared)
	window := func(more map[string]any) map[string]any {
		all := map[string]any{"attention.sliding_window": uint32(TinyWindow)}
		maps.Copy(all, more)
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
	}
}

// GGUF returns the model as a file.
func (t *Tiny) GGUF() []byte { return GGUF(t.Meta, t.Tensors...) }

func tiny(name, arch string, more map[string]any) Tiny {
	l := Llama{Hidden: TinyHidden, Layers: TinyLayers, Heads: TinyHeads, KVHeads: TinyKVHeads, Inter: TinyInter,
		Vocab: TinyVocab, Context: TinyContext}
	t := Tiny{Name: name, Meta: map[string]any{}}
	for key, value := range l.meta() {
		if rest, ok := strings.CutPrefix(key, "llama."); ok {
			key = arch + "." + rest
		}
		t.Meta[key] = value
	}
	t.Meta["general.architecture"], t.Meta[arch+".rope.freq_base"] = arch, float32(1000)
	for key, value := range more {
		t.Meta[arch+"."+key] = value
	}
	rnd := rand.New(rand.NewPCG(3, 5))
	add := func(name string, size, middle float64, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(middle + rnd.NormFloat64()*size)
		}
		t.Tensors = append(t.Tensors, F32(name, values, shape...))
	}
	matrix := func(tensor string, shape ...int) {
		if strings.Contains(name, "MXFP4") && strings.HasSuffix(tensor, "_exps") {
			t.Tensors = append(t.Tensors, mxfp4(rnd, tensor+".weight", shape...))
			return
		}
		add(tensor+".weight", 0.15, 0, shape...)
	}
	norm := func(name string, shape ...int) { add(name+".weight", 0.15, 1, shape...) }
	sinks := func(name string, shape ...int) { add(name+".weight", 1, 1, shape...) }
	bias := func(name string, shape ...int) { add(name+".bias", 0.3, 0, shape...) }
	const query, kv, hidden, inter = TinyHeads * TinyDim, TinyKVHeads * TinyDim, TinyHidden, TinyInter
	olmo2, phi3, gptOSS, gemma := arch == "olmo2", arch == "phi3", arch == "gpt-oss", strings.HasPrefix(arch, "gemma")
	experts, shared := more["expert_count"] != nil, arch == "qwen2moe"
	matrix("token_embd", TinyVocab, hidden)
	if arch != "gemma2" && arch != "smollm3" {
		matrix("output", TinyVocab, hidden)
	}
	norm("output_norm", hidden)
	ofHeads := map[string][2]int{"olmo2": {query, kv}, "qwen3": {TinyDim, TinyDim}, "qwen3moe": {TinyDim, TinyDim},
		"gemma3": {TinyDim, TinyDim}}[arch]
	for i := range TinyLayers {
		for _, t := range []struct {
			there bool
			name  string
			add   func(name string, shape ...int)
			shape []int
		}{
			{!olmo2, "attn_norm", norm, []int{hidden}},
			{!olmo2 && !gptOSS, "ffn_norm", norm, []int{hidden}},
			{olmo2 || gptOSS || gemma, "post_attention_norm", norm, []int{hidden}},
			{olmo2 || gemma, "post_ffw_norm", norm, []int{hidden}},
			{ofHeads[0] > 0, "attn_q_norm", norm, []int{ofHeads[0]}},
			{ofHeads[0] > 0, "attn_k_norm", norm, []int{ofHeads[1]}},
			{phi3, "attn_qkv", matrix, []int{query + 2*kv, hidden}},
			{!phi3, "attn_q", matrix, []int{query, hidden}},
			{!phi3, "attn_k", matrix, []int{kv, hidden}},
			{!phi3, "attn_v", matrix, []int{kv, hidden}},
			{shared || gptOSS, "attn_q", bias, []int{query}},
			{shared || gptOSS, "attn_k", bias, []int{kv}},
			{shared || gptOSS, "attn_v", bias, []int{kv}},
			{true, "attn_output", matrix, []int{hidden, query}},
			{gptOSS, "attn_output", bias, []int{hidden}},
			{gptOSS, "attn_sinks", sinks, []int{TinyHeads}},
			{experts, "ffn_gate_inp", matrix, []int{TinyExperts, hidden}},
			{experts, "ffn_gate_exps", matrix, []int{TinyExperts, inter, hidden}},
			{experts, "ffn_up_exps", matrix, []int{TinyExperts, inter, hidden}},
			{experts, "ffn_down_exps", matrix, []int{TinyExperts, hidden, inter}},
			{phi3, "ffn_up", matrix, []int{2 * inter, hidden}},
			{!experts && !phi3, "ffn_gate", matrix, []int{inter, hidden}},
			{!experts && !phi3, "ffn_up", matrix, []int{inter, hidden}},
			{!experts, "ffn_down", matrix, []int{hidden, inter}},
			{gptOSS, "ffn_gate_inp", bias, []int{TinyExperts}},
			{gptOSS, "ffn_gate_exps", bias, []int{TinyExperts, inter}},
			{gptOSS, "ffn_up_exps", bias, []int{TinyExperts, inter}},
			{gptOSS, "ffn_down_exps", bias, []int{TinyExperts, hidden}},
			{shared, "ffn_gate_inp_shexp", matrix, []int{hidden}},
			{shared, "ffn_gate_shexp", matrix, []int{TinyShared, hidden}},
			{shared, "ffn_up_shexp", matrix, []int{TinyShared, hidden}},
			{shared, "ffn_down_shexp", matrix, []int{hidden, TinyShared}},
		} {
			if t.there {
				t.add(fmt.Sprintf("blk.%d.%s", i, t.name), t.shape...)
			}
		}
	}
	if strings.Contains(name, "longrope") {
		add("rope_factors_short.weight", 0.1, 1.5, TinyDim/2)
		add("rope_factors_long.weight", 0.3, 4, TinyDim/2)
	}
	return t
}

// mxfp4 returns a tensor of random MXFP4: blocks of 32 numbers of 4 bits, each with an exponent whose bias is 127.
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
