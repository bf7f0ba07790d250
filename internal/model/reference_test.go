package model_test

import (
	"fmt"
	"math"
)

// A reference computes a model in float64 over contiguous memory, from the
// tensors and the configuration as they are published, one token after the other.
type reference struct {
	family                      string
	layers, heads, kvHeads, dim int
	hidden, inter, vocab        int
	eps, theta                  float64
	window                      int
	scale                       func(frequency float64) float64 // of rope; nil: none
	bias                        bool                            // Llama with attention_bias
	w                           map[string][]float32
	rounds                      map[string]bool // matrices whose activations are rounded to 8 bits
	keys, values                [][][]float64   // layer, token
}

// times is the product with a matrix [out, in] (GPT-2: [in, out]) and its bias,
// if it has one.
func (r *reference) times(name string, x []float64, out int) []float64 {
	w, ok := r.w[name+".weight"]
	if !ok {
		panic(name)
	}
	bias := r.w[name+".bias"]
	y := make([]float64, out)
	if r.rounds[name] {
		x = rounded(x)
	}
	for o := range y {
		for i, v := range x {
			if r.family == "gpt2" && name != "transformer.wte" {
				y[o] += float64(w[i*out+o]) * v
			} else {
				y[o] += float64(w[o*len(x)+i]) * v
			}
		}
		if bias != nil {
			y[o] += float64(bias[o])
		}
	}
	return y
}

// rounded is a row in blocks of 32, each in 255 steps of its largest magnitude divided by 127.
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

func (r *reference) norm(name string, x []float64) []float64 {
	w, b := r.w[name+".weight"], r.w[name+".bias"]
	mean, square := 0.0, 0.0
	if b != nil {
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = (v - mean) / math.Sqrt(square+r.eps) * float64(w[i])
		if b != nil {
			y[i] += float64(b[i])
		}
	}
	return y
}

func (r *reference) rope(x []float64, position int) {
	for h := 0; h < len(x); h += r.dim {
		for i := range r.dim / 2 {
			f := 1 / math.Pow(r.theta, float64(2*i)/float64(r.dim))
			if r.scale != nil {
				f = r.scale(f)
			}
			s, c := math.Sincos(float64(position) * f)
			a, b := x[h+i], x[h+i+r.dim/2]
			x[h+i], x[h+i+r.dim/2] = a*c-b*s, a*s+b*c
		}
	}
}

// next computes one more token and returns its logits.
func (r *reference) next(token int32) []float64 {
	if r.keys == nil {
		r.keys, r.values = make([][][]float64, r.layers), make([][][]float64, r.layers)
	}
	position := len(r.keys[0])
	embed := map[string]string{"gpt2": "transformer.wte", "opt": "model.decoder.embed_tokens"}[r.family]
	if embed == "" {
		embed = "model.embed_tokens"
	}
	x := make([]float64, r.hidden)
	for i := range x {
		x[i] = float64(r.w[embed+".weight"][int(token)*r.hidden+i])
		switch r.family {
		case "gpt2":
			x[i] += float64(r.w["transformer.wpe.weight"][position*r.hidden+i])
		case "opt":
			x[i] += float64(r.w["model.decoder.embed_positions.weight"][(position+2)*r.hidden+i])
		}
	}
	for l := range r.layers {
		switch r.family {
		case "gpt2":
			x = r.gpt2Layer(l, x)
		case "opt":
			x = r.optLayer(l, x)
		default:
			x = r.llamaLayer(l, x, position)
		}
	}
	final := map[string]string{"gpt2": "transformer.ln_f", "opt": "model.decoder.final_layer_norm"}[r.family]
	if final == "" {
		final = "model.norm"
	}
	head := "lm_head"
	if r.w["lm_head.weight"] == nil {
		head = embed
	}
	return r.times(head, r.norm(final, x), r.vocab)
}

func (r *reference) attend(l int, q, k, v []float64) []float64 {
	r.keys[l], r.values[l] = append(r.keys[l], k), append(r.values[l], v)
	out := make([]float64, len(q))
	first := 0
	if r.window > 0 {
		first = max(0, len(r.keys[l])-r.window)
	}
	for h := range r.heads {
		at := h / (r.heads / r.kvHeads) * r.dim
		var weights []float64
		sum := 0.0
		for t := first; t < len(r.keys[l]); t++ {
			dot := 0.0
			for i := range r.dim {
				dot += q[h*r.dim+i] * r.keys[l][t][at+i]
			}
			weights = append(weights, math.Exp(dot/math.Sqrt(float64(r.dim))))
			sum += weights[len(weights)-1]
		}
		for i, p := range weights {
			for j := range r.dim {
				out[h*r.dim+j] += p / sum * r.values[l][first+i][at+j]
			}
		}
	}
	return out
}

func plus(a, b []float64) []float64 {
	sum := make([]float64, len(a))
	for i := range a {
		sum[i] = a[i] + b[i]
	}
	return sum
}

func (r *reference) llamaLayer(l int, x []float64, position int) []float64 {
	at := func(name string) string { return fmt.Sprintf("model.layers.%d.%s", l, name) }
	n := r.norm(at("input_layernorm"), x)
	q := r.times(at("self_attn.q_proj"), n, r.heads*r.dim)
	k := r.times(at("self_attn.k_proj"), n, r.kvHeads*r.dim)
	v := r.times(at("self_attn.v_proj"), n, r.kvHeads*r.dim)
	if r.family == "qwen3" {
		for h := range r.heads {
			copy(q[h*r.dim:], r.norm(at("self_attn.q_norm"), q[h*r.dim:(h+1)*r.dim]))
		}
		for h := range r.kvHeads {
			copy(k[h*r.dim:], r.norm(at("self_attn.k_norm"), k[h*r.dim:(h+1)*r.dim]))
		}
	}
	r.rope(q, position)
	r.rope(k, position)
	x = plus(x, r.times(at("self_attn.o_proj"), r.attend(l, q, k, v), r.hidden))
	n = r.norm(at("post_attention_layernorm"), x)
	gate, up := r.times(at("mlp.gate_proj"), n, r.inter), r.times(at("mlp.up_proj"), n, r.inter)
	for i, g := range gate {
		up[i] *= g / (1 + math.Exp(-g))
	}
	return plus(x, r.times(at("mlp.down_proj"), up, r.hidden))
}

func (r *reference) gpt2Layer(l int, x []float64) []float64 {
	at := func(name string) string { return fmt.Sprintf("transformer.h.%d.%s", l, name) }
	qkv := r.times(at("attn.c_attn"), r.norm(at("ln_1"), x), 3*r.hidden)
	a := r.attend(l, qkv[:r.hidden], qkv[r.hidden:2*r.hidden], qkv[2*r.hidden:])
	x = plus(x, r.times(at("attn.c_proj"), a, r.hidden))
	up := r.times(at("mlp.c_fc"), r.norm(at("ln_2"), x), r.inter)
	for i, v := range up {
		up[i] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
	return plus(x, r.times(at("mlp.c_proj"), up, r.hidden))
}

func (r *reference) optLayer(l int, x []float64) []float64 {
	at := func(name string) string { return fmt.Sprintf("model.decoder.layers.%d.%s", l, name) }
	n := r.norm(at("self_attn_layer_norm"), x)
	q, k, v := r.times(at("self_attn.q_proj"), n, r.hidden), r.times(at("self_attn.k_proj"), n, r.hidden),
		r.times(at("self_attn.v_proj"), n, r.hidden)
	x = plus(x, r.times(at("self_attn.out_proj"), r.attend(l, q, k, v), r.hidden))
	up := r.times(at("fc1"), r.norm(at("final_layer_norm"), x), r.inter)
	for i, v := range up {
		up[i] = max(v, 0)
	}
	return plus(x, r.times(at("fc2"), up, r.hidden))
}
