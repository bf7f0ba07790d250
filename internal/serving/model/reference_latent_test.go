package model_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/weightfile"
)

// latentShape has the sizes of latent attention.
type latentShape struct{ queryRank, kvRank, nope, rope, value int }

// routerShape says how experts are chosen, where this differs from a softmax over all experts.
type routerShape struct {
	sigmoid, correction bool
	inputs              bool // weights multiply the inputs of experts
	groups, chosen      int
	scale               float64
	shared              string // the name of the shared expert without a gate, or ""
	bias                string // the name of the correction in a layer; "": correctionBias
}

const correctionBias = "mlp.gate.e_score_correction_bias"

// named returns the complete name of a norm.
func (p *layerShape) named(prefix, name string) string { return prefix + cmp.Or(p.renamed[name], name) }

// latentAttention returns the inputs of the last matrix of attention. It makes the keys and values of all heads from
// the latent keys, as the published code does, and so does not use absorbed products.
func (r *reference) latentAttention(l int, n []float64, position int) []float64 {
	named := func(name string) string { return fmt.Sprintf("model.layers.%d.self_attn.%s", l, name) }
	a := r.shape.latent
	size := a.nope + a.rope
	var q []float64
	if a.queryRank > 0 {
		lowered := r.norm(named("q_a_layernorm"), r.times(named("q_a_proj"), n, a.queryRank))
		q = r.times(named("q_b_proj"), lowered, r.heads*size)
	} else {
		q = r.times(named("q_proj"), n, r.heads*size)
	}
	latent := r.times(named("kv_a_proj_with_mqa"), n, a.kvRank+a.rope)
	rotated := r.rotatePairs(latent[a.kvRank:], position)
	both := r.times(named("kv_b_proj"), r.norm(named("kv_a_layernorm"), latent[:a.kvRank]), r.heads*(a.nope+a.value))
	var k, v []float64
	for h := range r.heads {
		copy(q[h*size+a.nope:], r.rotatePairs(q[h*size+a.nope:(h+1)*size], position))
		head := both[h*(a.nope+a.value):]
		k, v = append(append(k, head[:a.nope]...), rotated...), append(v, head[a.nope:a.nope+a.value]...)
	}
	r.keys[l], r.values[l] = append(r.keys[l], k), append(r.values[l], v)
	var out []float64
	for h := range r.heads {
		var logits []float64
		for _, key := range r.keys[l] {
			dot := 0.0
			for i := range size {
				dot += q[h*size+i] * key[h*size+i]
			}
			logits = append(logits, dot*r.shape.attention)
		}
		sum, o := 0.0, make([]float64, a.value)
		for t, logit := range logits {
			p := math.Exp(logit - slices.Max(logits))
			sum += p
			for i := range o {
				o[i] += p * r.values[l][t][h*a.value+i]
			}
		}
		for i := range o {
			o[i] /= sum
		}
		out = append(out, o...)
	}
	return out
}

// rotatePairs returns x with elements 2i and 2i+1 rotated together.
func (r *reference) rotatePairs(x []float64, position int) []float64 {
	y := make([]float64, len(x))
	for i := range len(x) / 2 {
		f := math.Pow(r.theta, -float64(2*i)/float64(len(x)))
		if r.stretch != nil {
			f *= r.stretch(i)
		}
		s, c := math.Sincos(float64(position) * f)
		factor := cmp.Or(r.ropeFactor, 1)
		y[2*i], y[2*i+1] = factor*(x[2*i]*c-x[2*i+1]*s), factor*(x[2*i]*s+x[2*i+1]*c)
	}
	return y
}

// routed returns the experts of a token and their weights, if the router is not a softmax over all experts.
func (r *reference) routed(l int, logits []float64) (chosen []int, weights []float64) {
	p, router := &r.shape, r.shape.routing
	scores := slices.Clone(logits)
	if router.sigmoid {
		for i, v := range scores {
			scores[i] = 1 / (1 + math.Exp(-v))
		}
	} else {
		sum := 0.0
		for i, v := range scores {
			scores[i] = math.Exp(v)
			sum += scores[i]
		}
		for i := range scores {
			scores[i] /= sum
		}
	}
	choice := slices.Clone(scores)
	if router.correction {
		for i, b := range r.w[fmt.Sprintf("model.layers.%d.%s", l, cmp.Or(router.bias, correctionBias))] {
			choice[i] += float64(b)
		}
	}
	allowed := make([]bool, p.experts)
	groups, size := max(1, router.groups), p.experts/max(1, router.groups)
	best := make([]float64, groups)
	order := make([]int, groups)
	for g := range groups {
		sorted := slices.Sorted(slices.Values(choice[g*size : (g+1)*size]))
		if best[g], order[g] = sorted[size-1], g; router.correction && groups > 1 {
			best[g] += sorted[size-2]
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(best[b], best[a]) })
	for _, g := range order[:max(1, router.chosen)] {
		for i := range size {
			allowed[g*size+i] = true
		}
	}
	var experts []int
	for i := range choice {
		if allowed[i] {
			experts = append(experts, i)
		}
	}
	slices.SortStableFunc(experts, func(a, b int) int { return cmp.Compare(choice[b], choice[a]) })
	chosen = experts[:p.perToken]
	sum := 0.0
	for _, e := range chosen {
		sum += scores[e]
	}
	if !p.normalize {
		sum = 1
	}
	for _, e := range chosen {
		weights = append(weights, scores[e]/sum*cmp.Or(router.scale, 1))
	}
	return chosen, weights
}

// routedMixture is mixture for a router that is not a softmax over all experts, with these logits.
func (r *reference) routedMixture(l int, x, logits []float64) []float64 {
	p, prefix := &r.shape, fmt.Sprintf("model.layers.%d.", l)
	chosen, weights := r.routed(l, logits)
	all := make([]float64, r.hidden)
	for k, e := range chosen {
		name := prefix + fmt.Sprintf(p.expertNames, e)
		input, weight := x, weights[k]
		if p.routing.inputs {
			input, weight = scaled(x, weights[k]), 1
		}
		for i, v := range r.mlp(input, p.expertInter, name+p.expertMLP[0], name+p.expertMLP[1], name+p.expertMLP[2]) {
			all[i] += weight * v
		}
	}
	if shared := prefix + p.routing.shared; p.routing.shared != "" {
		all = plus(all, r.mlp(x, p.sharedInter, shared+".gate_proj", shared+".up_proj", shared+".down_proj"))
	}
	return all
}

// latentTensors adds the tensors of latent attention.
func (f *family) latentTensors(all map[string][]int, prefix string) {
	r := &f.ref
	a := r.shape.latent
	query := r.heads * (a.nope + a.rope)
	if a.queryRank > 0 {
		matrix(all, prefix+"self_attn.q_a_proj", a.queryRank, r.hidden, false)
		norm(all, prefix+"self_attn.q_a_layernorm", a.queryRank, false)
		matrix(all, prefix+"self_attn.q_b_proj", query, a.queryRank, false)
	} else {
		matrix(all, prefix+"self_attn.q_proj", query, r.hidden, false)
	}
	matrix(all, prefix+"self_attn.kv_a_proj_with_mqa", a.kvRank+a.rope, r.hidden, false)
	norm(all, prefix+"self_attn.kv_a_layernorm", a.kvRank, false)
	matrix(all, prefix+"self_attn.kv_b_proj", r.heads*(a.nope+a.value), a.kvRank, false)
	matrix(all, prefix+"self_attn.o_proj", r.hidden, r.heads*a.value, false)
}

// latentFamilies are models with latent attention.
func latentFamilies(makeOf func(name, kind string, heads, kvHeads, dim int, shape layerShape, extra map[string]any) family) []family {
	config := map[string]any{"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "q_lora_rank": nil,
		"head_dim": 8, "num_hidden_layers": 3, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
		"moe_intermediate_size": 24, "first_k_dense_replace": 1, "moe_layer_freq": 1, "routed_scaling_factor": 1.5,
		"norm_topk_prob": false, "topk_method": "greedy", "scoring_func": "softmax", "n_group": 1, "topk_group": 1,
		"rope_scaling": map[string]any{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0,
			"beta_slow": 1.0, "mscale": 0.8, "mscale_all_dim": 0.5}}
	with := func(changes map[string]any) map[string]any {
		all := maps.Clone(config)
		maps.Copy(all, changes)
		return all
	}
	mscale := func(m float64) float64 { return 0.1*m*math.Log(4) + 1 }
	shape := layerShape{latent: &latentShape{kvRank: 32, nope: 16, rope: 8, value: 24}, attention: mscale(0.5) * mscale(0.5) / math.Sqrt(24),
		experts: 8, perToken: 3, expertInter: 24, router: "mlp.gate", expertNames: "mlp.experts.%d.",
		expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"}, sharedInter: 48,
		routing: &routerShape{scale: 1.5, shared: "mlp.shared_experts"}, dense: func(l int) bool { return l == 0 }}
	complete := func(f family) family {
		f.ref.dim = 24
		f.ref.ropeFactor = mscale(0.8) / mscale(0.5)
		f.ref.stretch = func(i int) float64 { // of 4 pairs, the first rotates more than 8 times in 64 tokens, the third less than once
			ramp := min(1, float64(i)/2)
			return (1 - ramp) + ramp/4
		}
		return f
	}
	lite := complete(makeOf("DeepSeek V2-Lite", "deepseek_v2", 4, 4, 8, shape, config))
	grouped, groups := shape, *shape.routing
	groups.groups, groups.chosen = 4, 2
	grouped.routing, grouped.latent = &groups, &latentShape{queryRank: 40, kvRank: 32, nope: 16, rope: 8, value: 24}
	v2 := complete(makeOf("DeepSeek V2", "deepseek_v2", 4, 4, 8, grouped, with(map[string]any{"topk_method": "group_limited_greedy",
		"n_group": 4, "topk_group": 2, "q_lora_rank": 40})))
	corrected, routing := grouped, groups
	routing.sigmoid, routing.correction = true, true
	corrected.routing, corrected.normalize = &routing, true
	v3 := complete(makeOf("DeepSeek V3", "deepseek_v3", 4, 4, 8, corrected, with(map[string]any{"topk_method": "noaux_tc",
		"scoring_func": "sigmoid", "n_group": 4, "topk_group": 2, "q_lora_rank": 40, "norm_topk_prob": true})))
	flat, one := corrected, routing
	one.groups, one.chosen = 1, 1
	flat.routing, flat.latent = &one, shape.latent
	kimi := complete(makeOf("Kimi K2", "kimi_k2", 4, 4, 8, flat, with(map[string]any{"topk_method": "noaux_tc",
		"scoring_func": "sigmoid", "norm_topk_prob": true, "rope_scaling": map[string]any{"type": "yarn", "factor": 4.0,
			"original_max_position_embeddings": 64, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}})))
	kimi.ref.shape.attention, kimi.ref.ropeFactor = mscale(1)*mscale(1)/math.Sqrt(24), 1
	kimi.ref.stretch = func(i int) float64 { // a step after the second pair
		if i < 2 {
			return 1
		}
		return 0.25
	}
	return append([]family{lite, v2, v3, kimi}, routedFamilies(makeOf, v3)...)
}

// routedFamilies are GLM and ERNIE. v3 is DeepSeek V3.
func routedFamilies(makeOf func(name, kind string, heads, kvHeads, dim int, shape layerShape, extra map[string]any) family, v3 family) []family {
	routed := layerShape{experts: 8, perToken: 3, expertInter: 24, router: "mlp.gate", expertNames: "mlp.experts.%d.",
		expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"}, sharedInter: 24, normalize: true, headNorm: true,
		dense: func(l int) bool { return l == 0 }}
	routed.routing = &routerShape{scale: 1.5, shared: "mlp.shared_experts", sigmoid: true, correction: true}
	glm := makeOf("GLM-4", "glm4", 4, 2, 16, layerShape{postNorm: true, preNorm: true, renamed: map[string]string{
		"post_attention_layernorm": "post_self_attn_layernorm", "pre_feedforward_layernorm": "post_attention_layernorm",
		"post_feedforward_layernorm": "post_mlp_layernorm"}}, map[string]any{"attention_bias": true, "partial_rotary_factor": 0.5})
	glm.ref.rotated, glm.ref.pairs, glm.ref.bias = 8, true, true
	mixture := makeOf("GLM-4 MoE", "glm4_moe", 4, 2, 24, routed, map[string]any{"attention_bias": true, "use_qk_norm": true,
		"num_hidden_layers": 3, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
		"first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": true, "n_group": 1, "topk_group": 1,
		"num_nextn_predict_layers": 1})
	mixture.ref.rotated, mixture.ref.bias = 12, true
	flash := v3
	flash.name, flash.config, flash.ref.family = "GLM-4.7-Flash", maps.Clone(v3.config), "glm4_moe_lite"
	flash.ref.shape.latent = &latentShape{queryRank: 40, kvRank: 32, nope: 16, rope: 8, value: 32}
	flash.ref.shape.attention, flash.ref.ropeFactor, flash.ref.stretch = 1/math.Sqrt(24), 0, nil
	maps.Copy(flash.config, map[string]any{"model_type": "glm4_moe_lite", "v_head_dim": 32, "rope_scaling": nil,
		"mlp_layer_types": []string{"dense", "sparse", "sparse"}})
	delete(flash.config, "first_k_dense_replace")
	ernie := makeOf("ERNIE 4.5", "ernie4_5", 4, 2, 16, layerShape{}, map[string]any{"use_bias": false, "tie_word_embeddings": true})
	ernie.ref.pairs = true
	softmax := routed
	softmax.headNorm, softmax.sharedInter = false, 48
	softmax.routing = &routerShape{shared: "mlp.shared_experts", correction: true, bias: "mlp.moe_statics.e_score_correction_bias"}
	softmax.dense = func(l int) bool { return l != 1 && l != 3 }
	mixed := makeOf("ERNIE 4.5 MoE", "ernie4_5_moe", 4, 2, 16, softmax, map[string]any{"num_hidden_layers": 6, "moe_num_experts": 8,
		"moe_k": 3, "moe_intermediate_size": 24, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 4,
		"moe_layer_interval": 2, "use_bias": false, "tie_word_embeddings": true})
	mixed.ref.pairs = true
	return append([]family{glm, mixture, flash, ernie, mixed, llama4Family(makeOf)}, gemma4Families(makeOf)...)
}

// tinyLatent completes the reference of a tiny model with latent attention.
func tinyLatent(r *reference, v3 bool) {
	const dim, factor = weightfile.TinyNope + weightfile.TinyRope, float64(float32(0.07))
	scale := factor*math.Log(4) + 1
	r.dim, r.ropeFactor = dim, 1
	r.shape = tinyRouted(&routerShape{scale: 1.5})
	r.shape.attention = scale * scale / math.Sqrt(dim)
	r.shape.latent = &latentShape{kvRank: weightfile.TinyKVRank, nope: weightfile.TinyNope, rope: weightfile.TinyRope, value: weightfile.TinyValue}
	r.stretch = func(i int) float64 {
		ramp := min(1, float64(i)/2)
		return (1 - ramp) + ramp/4
	}
	if v3 {
		r.shape.normalize, r.shape.latent.queryRank = true, weightfile.TinyQueryRank
		r.shape.routing = &routerShape{scale: 1.5, shared: "mlp.shared_experts", sigmoid: true, correction: true, groups: 4, chosen: 2}
	}
}

// tinyRouted returns the shape of a tiny model whose experts are chosen by the router.
func tinyRouted(router *routerShape) layerShape {
	router.shared = "mlp.shared_experts"
	return layerShape{experts: weightfile.TinyRouted, perToken: weightfile.TinyUsed, expertInter: weightfile.TinyShared, router: "mlp.gate",
		expertNames: "mlp.experts.%d.", expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"},
		sharedInter: 2 * weightfile.TinyShared, dense: func(l int) bool { return l == 0 }, routing: router}
}

// routedParts returns the names in a folder of the tensors of a layer that only some architectures have.
func routedParts(g *weights.GGUF, arch string) map[string]string {
	parts := map[string]string{}
	if g.Get("blk.1.ffn_gate_inp_shexp.weight") == nil {
		for _, name := range []string{"gate", "up", "down"} {
			parts["ffn_"+name+"_shexp"] = "mlp.shared_experts." + name + "_proj"
		}
	}
	if arch == "deepseek2" {
		maps.Copy(parts, map[string]string{"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
			"attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm"})
	}
	return parts
}

// joined returns the published matrix of a layer that makes keys and values. A GGUF file has the parts of keys,
// transposed, and of values in two tensors.
func joined(g *weights.GGUF, l int) (both []float32) {
	const rank, nope, value = weightfile.TinyKVRank, weightfile.TinyNope, weightfile.TinyValue
	keys, values := g.Get(fmt.Sprintf("blk.%d.attn_k_b.weight", l)).Vector(), g.Get(fmt.Sprintf("blk.%d.attn_v_b.weight", l)).Vector()
	for h := range weightfile.TinyHeads {
		for n := range nope {
			for i := range rank {
				both = append(both, keys[(h*rank+i)*nope+n])
			}
		}
		both = append(both, values[h*value*rank:(h+1)*value*rank]...)
	}
	return both
}

// rounded returns x, rounded in blocks of 32 values. The largest magnitude of a block, divided by 127, is the step of
// the block. Each value is rounded to a whole multiple of the step.
func rounded(x []float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		step := 0.0
		for _, v := range x[i/32*32:][:32] {
			step = max(step, math.Abs(v)/127)
		}
		y[i] = math.RoundToEven(x[i]/step) * step
	}
	return y
}
