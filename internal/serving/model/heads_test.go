package model_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"strings"
)

// headFamilies returns models in which layers have a state for each of several heads.
func headFamilies() []family {
	recurrent := []bool{true, true, false, true, false}
	kinds := func(attention, other string) (all []string) {
		for _, r := range recurrent {
			all = append(all, map[bool]string{true: other, false: attention}[r])
		}
		return all
	}
	base := map[string]any{
		"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2,
		"max_position_embeddings": length, "rms_norm_eps": 1e-5, "rope_theta": 1000.0, "hidden_act": "silu", "tie_word_embeddings": false,
	}
	make := func(name, kind string, dim int, h hybrid, p layerShape, extra map[string]any) family {
		config := maps.Clone(base)
		maps.Copy(config, extra)
		config["model_type"] = kind
		h.norm, h.recurrent, h.kernel = "model.norm", recurrent, 4
		return family{name: name, config: config, ref: reference{family: kind, layers: 5, heads: 4, kvHeads: 2, dim: dim, hidden: 48,
			inter: 40, vocab: 97, eps: 1e-5, theta: 1000, shape: p, hybrid: &h}}
	}
	scales := layerShape{embed: 3, residual: 0.3, attention: 0.1, logits: 1.0 / 4}
	granite := map[string]any{"embedding_multiplier": 3.0, "residual_multiplier": 0.3, "attention_multiplier": 0.1, "logits_scaling": 4.0,
		"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "head_dim": 64, "mamba_d_conv": 4, "mamba_expand": 2,
		"num_local_experts": 0, "shared_intermediate_size": 40, "intermediate_size": 40, "layer_types": kinds("attention", "mamba")}
	dense := maps.Clone(granite)
	dense["position_embedding_type"], dense["mamba_n_groups"], dense["mamba_d_head"], dense["mamba_proj_bias"] = "rope", 2, "auto", false
	granite["position_embedding_type"], granite["num_local_experts"], granite["num_experts_per_tok"] = "nope", 5, 2
	granite["shared_intermediate_size"] = 30
	experts := scales
	experts.experts, experts.perToken, experts.expertInter, experts.sharedInter, experts.normalize = 5, 2, 40, 30, true
	experts.noRope = func(int) bool { return true }
	mamba := hybrid{convBias: true, heads: 6, columns: 16, keyHeads: 1, rows: 16}
	groups := mamba
	groups.keyHeads = 2
	next := layerShape{offset: 1, headNorm: true, experts: 5, perToken: 2, expertInter: 40, sharedInter: 56, normalize: true, router: "mlp.gate",
		expertNames: "mlp.experts.%d.", expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"}}
	qwen := map[string]any{"head_dim": 64, "partial_rotary_factor": 0.25, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
		"shared_expert_intermediate_size": 56, "norm_topk_prob": true, "intermediate_size": 80, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
		"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "layer_types": kinds("full_attention", "linear_attention")}
	qwen3Next := make("Qwen3-Next", "qwen3_next", 64, hybrid{heads: 6, columns: 16, keyHeads: 2, rows: 16}, next, qwen)
	qwen3Next.ref.rotated = 16
	newer := next
	newer.experts = 0
	text := maps.Clone(qwen)
	delete(text, "layer_types")
	text["full_attention_interval"], text["attn_output_gate"] = 4, true
	qwen35 := make("Qwen3.5", "qwen3_5_text", 64, hybrid{heads: 6, columns: 16, keyHeads: 2, rows: 16}, newer, text)
	qwen35.ref.rotated, qwen35.ref.inter, qwen35.ref.hybrid.recurrent = 16, 80, []bool{true, true, true, false, true}
	moe := make("Qwen3.5, experts", "qwen3_5_moe_text", 64, hybrid{heads: 6, columns: 16, keyHeads: 2, rows: 16}, next, qwen)
	moe.ref.rotated = 16
	asGGUF := mamba
	asGGUF.gguf, asGGUF.parts, asGGUF.convert = graniteGGUF, graniteParts, convertGranite
	return []family{
		make("Granite 4, experts", "granitemoehybrid", 64, asGGUF, experts, granite),
		make("Granite 4, dense, rope", "granitemoehybrid", 64, groups, scales, dense), qwen3Next, qwen35, moe,
	}
}

func (f *family) headTensors(all map[string][]int) {
	r, h, p := &f.ref, f.ref.hybrid, &f.ref.shape
	all["model.embed_tokens.weight"], all["lm_head.weight"] = []int{r.vocab, r.hidden}, []int{r.vocab, r.hidden}
	norm(all, "model.norm", r.hidden, false)
	inner, keys := h.heads*h.columns, h.keyHeads*h.rows
	for l := range r.layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		norm(all, prefix+"input_layernorm", r.hidden, false)
		norm(all, prefix+"post_attention_layernorm", r.hidden, false)
		switch {
		case r.family == "granitemoehybrid":
			shared := cmp.Or(p.sharedInter, r.inter)
			matrix(all, prefix+"shared_mlp.input_linear", 2*shared, r.hidden, false)
			matrix(all, prefix+"shared_mlp.output_linear", r.hidden, shared, false)
			if p.experts > 0 {
				matrix(all, prefix+"block_sparse_moe.router.layer", p.experts, r.hidden, false)
				all[prefix+"block_sparse_moe.input_linear.weight"] = []int{p.experts, 2 * p.expertInter, r.hidden}
				all[prefix+"block_sparse_moe.output_linear.weight"] = []int{p.experts, r.hidden, p.expertInter}
			}
		case p.experts == 0:
			mlpTensors(all, r.hidden, r.inter, prefix+"mlp.gate_proj", prefix+"mlp.up_proj", prefix+"mlp.down_proj")
		default:
			f.mixtureTensors(all, prefix)
			if r.family == "qwen3_5_moe_text" {
				maps.DeleteFunc(all, func(name string, _ []int) bool {
					return strings.Contains(name, ".experts.") && strings.HasSuffix(name, ".weight")
				})
				all[prefix+"mlp.experts.gate_up_proj"] = []int{p.experts, 2 * p.expertInter, r.hidden}
				all[prefix+"mlp.experts.down_proj"] = []int{p.experts, r.hidden, p.expertInter}
			}
		}
		mixer := "linear_attn."
		if r.family == "granitemoehybrid" {
			mixer = "mamba."
		}
		if h.recurrent[l] {
			prefix += mixer
			all[prefix+"A_log"], all[prefix+"dt_bias"] = []int{h.heads}, []int{h.heads}
			all[prefix+"conv1d.weight"] = []int{inner + 2*keys, 1, h.kernel}
			if h.convBias {
				all[prefix+"conv1d.bias"] = []int{inner + 2*keys}
			}
			matrix(all, prefix+"out_proj", r.hidden, inner, false)
			if strings.HasPrefix(r.family, "qwen3_5") {
				matrix(all, prefix+"in_proj_qkv", 2*keys+inner, r.hidden, false)
				matrix(all, prefix+"in_proj_z", inner, r.hidden, false)
				matrix(all, prefix+"in_proj_b", h.heads, r.hidden, false)
				matrix(all, prefix+"in_proj_a", h.heads, r.hidden, false)
				norm(all, prefix+"norm", h.columns, false)
			} else if r.family == "qwen3_next" {
				matrix(all, prefix+"in_proj_qkvz", 2*keys+2*inner, r.hidden, false)
				matrix(all, prefix+"in_proj_ba", 2*h.heads, r.hidden, false)
				norm(all, prefix+"norm", h.columns, false)
			} else {
				all[prefix+"D"] = []int{h.heads}
				matrix(all, prefix+"in_proj", 2*inner+2*keys+h.heads, r.hidden, false)
				norm(all, prefix+"norm", inner, false)
			}
			continue
		}
		queries := r.heads * r.dim
		if r.family != "granitemoehybrid" {
			queries *= 2
			norm(all, prefix+"self_attn.q_norm", r.dim, false)
			norm(all, prefix+"self_attn.k_norm", r.dim, false)
		}
		matrix(all, prefix+"self_attn.q_proj", queries, r.hidden, false)
		matrix(all, prefix+"self_attn.k_proj", r.kvHeads*r.dim, r.hidden, false)
		matrix(all, prefix+"self_attn.v_proj", r.kvHeads*r.dim, r.hidden, false)
		matrix(all, prefix+"self_attn.o_proj", r.hidden, r.heads*r.dim, false)
	}
}

func (r *reference) headLayer(l int, x []float64, position int) []float64 {
	prefix := fmt.Sprintf("model.layers.%d.", l)
	n := r.norm(prefix+"input_layernorm", x)
	add := func(x, y []float64) []float64 {
		for i := range y {
			if r.shape.residual != 0 {
				y[i] *= r.shape.residual
			}
		}
		return plus(x, y)
	}
	switch {
	case !r.hybrid.recurrent[l]:
		x = add(x, r.gatedAttention(l, n, position))
	case r.family != "granitemoehybrid":
		x = add(x, r.deltaNet(l, n))
	default:
		x = add(x, r.mamba2(l, n))
	}
	n = r.norm(prefix+"post_attention_layernorm", x)
	switch {
	case r.family != "granitemoehybrid" && r.shape.experts == 0:
		return add(x, r.mlp(n, r.inter, prefix+"mlp.gate_proj", prefix+"mlp.up_proj", prefix+"mlp.down_proj"))
	case r.family != "granitemoehybrid":
		r.splitStacked(prefix + "mlp.experts.")
		return add(x, r.mixture(l, n))
	case r.shape.experts == 0:
		return add(x, r.fusedMLP(prefix+"shared_mlp.", n, r.inter, 0))
	}
	return add(x, plus(r.fusedMLP(prefix+"shared_mlp.", n, r.shape.sharedInter, 0), r.graniteExperts(prefix+"block_sparse_moe.", n)))
}

// fusedMLP computes the MLP or expert number e of tensors with gate and up projection together.
func (r *reference) fusedMLP(prefix string, x []float64, inter, e int) []float64 {
	part := func(name string, rows, cols int) string {
		if len(r.w[prefix+name+".weight"]) == rows*cols {
			return prefix + name
		}
		full := fmt.Sprintf("%s%s.%d", prefix, name, e)
		r.w[full+".weight"] = r.w[prefix+name+".weight"][e*rows*cols:][:rows*cols]
		return full
	}
	both := r.times(part("input_linear", 2*inter, r.hidden), x, 2*inter)
	for i := range inter {
		both[i] = silu(both[i]) * both[inter+i]
	}
	return r.times(part("output_linear", r.hidden, inter), both[:inter], r.hidden)
}

func (r *reference) graniteExperts(prefix string, x []float64) []float64 {
	p := &r.shape
	logits, sum := r.times(prefix+"router.layer", x, p.experts), 0.0
	chosen := make([]int, 0, p.perToken)
	for range p.perToken {
		best := -1
		for e, v := range logits {
			if (best < 0 || v > logits[best]) && !containsInt(chosen, e) {
				best = e
			}
		}
		chosen = append(chosen, best)
		sum += math.Exp(logits[best])
	}
	all := make([]float64, r.hidden)
	for _, e := range chosen {
		for i, v := range r.fusedMLP(prefix, x, p.expertInter, e) {
			all[i] += math.Exp(logits[e]) / sum * v
		}
	}
	return all
}

func containsInt(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

// gatedAttention computes attention, in Qwen3-Next with a gate for each head, whose rows follow the head's query.
func (r *reference) gatedAttention(l int, x []float64, position int) []float64 {
	named := func(name string) string { return fmt.Sprintf("model.layers.%d.self_attn.%s", l, name) }
	k, v := r.times(named("k_proj"), x, r.kvHeads*r.dim), r.times(named("v_proj"), x, r.kvHeads*r.dim)
	var q, gate []float64
	if r.family != "granitemoehybrid" {
		both := r.times(named("q_proj"), x, 2*r.heads*r.dim)
		for h := range r.heads {
			q, gate = append(q, both[2*h*r.dim:][:r.dim]...), append(gate, both[(2*h+1)*r.dim:][:r.dim]...)
		}
		r.normHeads(named("q_norm"), q)
		r.normHeads(named("k_norm"), k)
	} else {
		q = r.times(named("q_proj"), x, r.heads*r.dim)
	}
	if r.shape.noRope == nil {
		r.rope(q, position, r.theta, true)
		r.rope(k, position, r.theta, true)
	}
	y := r.attend(l, q, k, v)
	for i, g := range gate {
		y[i] /= 1 + math.Exp(-g)
	}
	return r.times(named("o_proj"), y, r.hidden)
}

// stateOf returns the matrix of a head.
func (h *hybrid) stateOf(l, head int) [][]float64 {
	if h.states[l] == nil {
		h.states[l] = make([][][]float64, h.heads)
		for i := range h.states[l] {
			for range h.rows {
				h.states[l][i] = append(h.states[l][i], make([]float64, h.columns))
			}
		}
	}
	return h.states[l][head]
}

func softplus(x float64) float64 { return math.Log1p(math.Exp(x)) }

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func (r *reference) mamba2(l int, x []float64) []float64 {
	return r.mamba2In(l, fmt.Sprintf("model.layers.%d.mamba.", l), x)
}

func (r *reference) mamba2In(l int, prefix string, x []float64) []float64 {
	h := r.hybrid
	inner, keys := h.heads*h.columns, h.keyHeads*h.rows
	in := r.times(prefix+"in_proj", x, 2*inner+2*keys+h.heads)
	conv := r.convolve(l, prefix+"conv1d", in[inner:2*inner+2*keys])
	for i, v := range conv {
		conv[i] = silu(v)
	}
	y := make([]float64, inner)
	for head := range h.heads {
		dt := softplus(in[2*inner+2*keys+head] + float64(r.w[prefix+"dt_bias"][head]))
		if h.maxStep > 0 {
			dt = min(dt, h.maxStep)
		}
		decay := math.Exp(-dt * math.Exp(float64(r.w[prefix+"A_log"][head])))
		group := head / (h.heads / h.keyHeads) * h.rows
		state := h.stateOf(l, head)
		for c := range h.columns {
			v := conv[head*h.columns+c]
			out := float64(r.w[prefix+"D"][head]) * v
			for row := range h.rows {
				state[row][c] = decay*state[row][c] + dt*v*conv[inner+group+row]
				out += state[row][c] * conv[inner+keys+group+row]
			}
			y[head*h.columns+c] = out * silu(in[head*h.columns+c])
		}
	}
	size := inner / h.keyHeads
	for start := 0; start < inner; start += size {
		r.plainNorm(y[start:start+size], r.w[prefix+"norm.weight"][start:])
	}
	return r.times(prefix+"out_proj", y, r.hidden)
}

func (r *reference) plainNorm(x []float64, weights []float32) {
	square := 0.0
	for _, v := range x {
		square += v * v / float64(len(x))
	}
	for i := range x {
		x[i] *= float64(weights[i]) / math.Sqrt(square+r.eps)
	}
}

func (r *reference) deltaNet(l int, x []float64) []float64 {
	h, prefix := r.hybrid, fmt.Sprintf("model.layers.%d.linear_attn.", l)
	inner, keys, per := h.heads*h.columns, h.keyHeads*h.rows, h.heads/h.keyHeads
	var query, key, value, gate, beta, a []float64
	if strings.HasPrefix(r.family, "qwen3_5") {
		query, gate = r.times(prefix+"in_proj_qkv", x, 2*keys+inner), r.times(prefix+"in_proj_z", x, inner)
		beta, a = r.times(prefix+"in_proj_b", x, h.heads), r.times(prefix+"in_proj_a", x, h.heads)
	}
	for k := 0; k < h.keyHeads && r.family == "qwen3_next"; k++ {
		in, ba := r.times(prefix+"in_proj_qkvz", x, 2*inner+2*keys), r.times(prefix+"in_proj_ba", x, 2*h.heads)
		part := in[k*(2*h.rows+2*per*h.columns):]
		query, key = append(query, part[:h.rows]...), append(key, part[h.rows:2*h.rows]...)
		part = part[2*h.rows:]
		value, gate = append(value, part[:per*h.columns]...), append(gate, part[per*h.columns:2*per*h.columns]...)
		beta, a = append(beta, ba[2*k*per:][:per]...), append(a, ba[(2*k+1)*per:][:per]...)
	}
	conv := r.convolve(l, prefix+"conv1d", append(append(query, key...), value...))
	for i, v := range conv {
		conv[i] = silu(v)
	}
	unit := func(x []float64) []float64 {
		sum, y := 1e-6, make([]float64, len(x))
		for _, v := range x {
			sum += v * v
		}
		for i, v := range x {
			y[i] = v / math.Sqrt(sum)
		}
		return y
	}
	y := make([]float64, inner)
	for head := range h.heads {
		q, k := unit(conv[head/per*h.rows:][:h.rows]), unit(conv[keys+head/per*h.rows:][:h.rows])
		decay := math.Exp(-math.Exp(float64(r.w[prefix+"A_log"][head])) * softplus(a[head]+float64(r.w[prefix+"dt_bias"][head])))
		state, out := h.stateOf(l, head), y[head*h.columns:][:h.columns]
		for c := range out {
			known := 0.0
			for row := range h.rows {
				state[row][c] *= decay
				known += state[row][c] * k[row]
			}
			delta := (conv[2*keys+head*h.columns+c] - known) / (1 + math.Exp(-beta[head]))
			for row := range h.rows {
				state[row][c] += k[row] * delta
				out[c] += state[row][c] * q[row] / math.Sqrt(float64(h.rows))
			}
		}
		r.plainNorm(out, r.w[prefix+"norm.weight"])
		for c := range out {
			out[c] *= silu(gate[head*h.columns+c])
		}
	}
	return r.times(prefix+"out_proj", y, r.hidden)
}

// splitStacked gives each expert of two stacked tensors tensors of its own.
func (r *reference) splitStacked(prefix string) {
	both, p := r.w[prefix+"gate_up_proj"], &r.shape
	size := p.expertInter * r.hidden
	for e := 0; e < p.experts && both != nil; e++ {
		name := fmt.Sprintf("%s%d.", prefix, e)
		r.w[name+"gate_proj.weight"], r.w[name+"up_proj.weight"] = both[2*e*size:][:size], both[(2*e+1)*size:][:size]
		r.w[name+"down_proj.weight"] = r.w[prefix+"down_proj"][e*size:][:size]
	}
}
