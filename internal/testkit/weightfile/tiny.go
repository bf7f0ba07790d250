package weightfile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// A Tiny is a GGUF model of one of the supported families, with a few thousand random weights in F32.
type Tiny struct {
	Name    string
	Meta    map[string]any
	Tensors []Tensor
}

// The shape of all Tinies. It is chosen so that windows and experts affect the results within some 50 tokens.
const (
	TinyHidden, TinyHeads, TinyKVHeads, TinyDim   = 64, 4, 2, 16
	TinyInter, TinyVocab, TinyLayers, TinyContext = 96, 300, 4, 256
	TinyExperts, TinyUsed, TinyShared, TinyWindow = 5, 2, 32, 9
)

// Tinies returns models of all families that GGUF files can have, and with several kinds of rope scaling.
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
	norm := func(name string, n int) { add(name+".weight", 0.15, 1, n) }
	bias := func(name string, shape ...int) { add(name+".bias", 0.3, 0, shape...) }
	const query, kv = TinyHeads * TinyDim, TinyKVHeads * TinyDim
	matrix("token_embd", TinyVocab, TinyHidden)
	if arch != "gemma2" && arch != "smollm3" {
		matrix("output", TinyVocab, TinyHidden)
	}
	norm("output_norm", TinyHidden)
	for i := range TinyLayers {
		at := fmt.Sprintf("blk.%d.", i)
		if arch != "olmo2" {
			norm(at+"attn_norm", TinyHidden)
		}
		if arch != "olmo2" && arch != "gpt-oss" {
			norm(at+"ffn_norm", TinyHidden)
		}
		if arch == "olmo2" || arch == "gpt-oss" || strings.HasPrefix(arch, "gemma") {
			norm(at+"post_attention_norm", TinyHidden)
		}
		if arch == "olmo2" || strings.HasPrefix(arch, "gemma") {
			norm(at+"post_ffw_norm", TinyHidden)
		}
		switch arch {
		case "olmo2":
			norm(at+"attn_q_norm", query)
			norm(at+"attn_k_norm", kv)
		case "qwen3", "qwen3moe", "gemma3":
			norm(at+"attn_q_norm", TinyDim)
			norm(at+"attn_k_norm", TinyDim)
		}
		if arch == "phi3" {
			matrix(at+"attn_qkv", query+2*kv, TinyHidden)
		} else {
			matrix(at+"attn_q", query, TinyHidden)
			matrix(at+"attn_k", kv, TinyHidden)
			matrix(at+"attn_v", kv, TinyHidden)
		}
		if arch == "qwen2moe" || arch == "gpt-oss" {
			bias(at+"attn_q", query)
			bias(at+"attn_k", kv)
			bias(at+"attn_v", kv)
		}
		matrix(at+"attn_output", TinyHidden, query)
		if arch == "gpt-oss" {
			bias(at+"attn_output", TinyHidden)
			add(at+"attn_sinks.weight", 1, 1, TinyHeads)
		}
		switch {
		case more["expert_count"] != nil:
			matrix(at+"ffn_gate_inp", TinyExperts, TinyHidden)
			matrix(at+"ffn_gate_exps", TinyExperts, TinyInter, TinyHidden)
			matrix(at+"ffn_up_exps", TinyExperts, TinyInter, TinyHidden)
			matrix(at+"ffn_down_exps", TinyExperts, TinyHidden, TinyInter)
		case arch == "phi3":
			matrix(at+"ffn_up", 2*TinyInter, TinyHidden)
			matrix(at+"ffn_down", TinyHidden, TinyInter)
		default:
			matrix(at+"ffn_gate", TinyInter, TinyHidden)
			matrix(at+"ffn_up", TinyInter, TinyHidden)
			matrix(at+"ffn_down", TinyHidden, TinyInter)
		}
		switch arch {
		case "gpt-oss":
			bias(at+"ffn_gate_inp", TinyExperts)
			bias(at+"ffn_gate_exps", TinyExperts, TinyInter)
			bias(at+"ffn_up_exps", TinyExperts, TinyInter)
			bias(at+"ffn_down_exps", TinyExperts, TinyHidden)
		case "qwen2moe":
			add(at+"ffn_gate_inp_shexp.weight", 0.15, 0, TinyHidden)
			matrix(at+"ffn_gate_shexp", TinyShared, TinyHidden)
			matrix(at+"ffn_up_shexp", TinyShared, TinyHidden)
			matrix(at+"ffn_down_shexp", TinyHidden, TinyShared)
		}
	}
	if strings.Contains(name, "longrope") {
		add("rope_factors_short.weight", 0.1, 1.5, TinyDim/2)
		add("rope_factors_long.weight", 0.3, 4, TinyDim/2)
	}
	return t
}

// mxfp4 returns a tensor of random MXFP4: blocks of 32 numbers of 4 bits, with an exponent whose bias is 127.
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
