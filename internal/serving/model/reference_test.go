package model_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A reference computes a model in float64 with keys and values in contiguous memory, one token after the other. It
// uses the tensors and the configuration in their published form.
type reference struct {
	family                      string
	layers, heads, kvHeads, dim int
	hidden, inter, vocab        int
	eps, theta                  float64
	window                      int
	scale                       func(frequency float64) float64 // of rope; nil: none
	stretch                     func(pair int) float64          // what the frequency of a pair is multiplied by; nil: 1
	rotated                     int                             // elements of a head; 0: all
	pairs                       bool                            // elements 2i and 2i+1 are rotated together
	ropeFactor                  float64                         // of cosines and sines; 0: 1
	bias                        bool                            // Llama with attention_bias
	shape                       layerShape
	w                           map[string][]float32
	rounds                      map[string]func([]float64) []float64 // of matrices, their activations
	keys, values                [][][]float64                        // layer, token
	adapter                     map[string]adapterMatrices           // by the name of a matrix
	state                       []float64                            // of the last token, after the last norm
	position                    int                                  // tokens before the next one
	hybrid                      *hybrid                              // of models with states, else nil
}

type layerShape struct {
	offset, embed, residual, attention, cap, logits, logitCap float64 // 0: none
	postNorm, preNorm, headNorm, widthNorm, gelu, clamped     bool
	full, noRope                                              func(layer int) bool // nil: no layer
	localTheta                                                float64              // of layers with a window
	experts, perToken, expertInter, sharedInter               int
	normalize                                                 bool
	expertNames, router                                       string // in a layer
	expertMLP                                                 [3]string
	latent                                                    *latentShape         // nil: none
	routing                                                   *routerShape         // nil: a softmax over all experts
	dense                                                     func(layer int) bool // layers without experts; nil: none
	renamed                                                   map[string]string    // other names of norms
	rotatedNorm                                               bool                 // Llama 4
	floor, tuning                                             float64              // Llama 4: of the temperature
	chunk                                                     int                  // of attention
	gemma4                                                    *gemma4Shape
}

// times returns the product of x and a matrix of the shape [out, in] (in GPT-2 [in, out]), plus the bias if there is
// one.
func (r *reference) times(name string, x []float64, outputs int) []float64 {
	w, ok := r.w[name+".weight"]
	if !ok {
		panic(name)
	}
	bias := r.w[name+".bias"]
	y := make([]float64, outputs)
	if round := r.rounds[name]; round != nil {
		x = round(x)
	}
	if r.family == "gpt2" && name != "transformer.wte" {
		for i, v := range x {
			for o, weight := range w[i*outputs:][:outputs] {
				y[o] += float64(weight) * v
			}
		}
	} else {
		for o := range y {
			var sums [4]float64 // that do not wait for each other
			for i, weight := range w[o*len(x):][:len(x)] {
				sums[i%4] += float64(weight) * x[i]
			}
			y[o] = sums[0] + sums[1] + sums[2] + sums[3]
		}
	}
	for o, b := range bias {
		y[o] += float64(b)
	}
	r.adapter[name].add(y, x)
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
		y[i] = (v - mean) / math.Sqrt(square+r.eps) * (float64(w[i]) + r.shape.offset)
		if b != nil {
			y[i] += float64(b[i])
		}
	}
	return y
}

func (r *reference) rope(x []float64, position int, theta float64, scaled bool) {
	n := r.dim
	if r.rotated != 0 {
		n = r.rotated
	}
	for h := 0; h < len(x); h += r.dim {
		if r.pairs {
			copy(x[h:], r.rotatePairs(x[h:h+n], position))
			continue
		}
		for i := range n / 2 {
			f := 1 / math.Pow(theta, float64(2*i)/float64(n))
			if r.scale != nil && scaled {
				f = r.scale(f)
			}
			if r.stretch != nil && scaled {
				f *= r.stretch(i)
			}
			s, c := math.Sincos(float64(position) * f)
			if r.ropeFactor != 0 && scaled {
				s, c = s*r.ropeFactor, c*r.ropeFactor
			}
			a, b := x[h+i], x[h+i+n/2]
			x[h+i], x[h+i+n/2] = a*c-b*s, a*s+b*c
		}
	}
}

func (r *reference) next(token int32) []float64 {
	if r.keys == nil {
		r.keys, r.values, r.position = make([][][]float64, r.layers), make([][][]float64, r.layers), 0
		if r.hybrid != nil {
			r.hybrid.inputs, r.hybrid.states = make([][][]float64, r.layers), map[int][][][]float64{}
		}
	}
	position := r.position
	r.position++
	embed := map[string]string{"gpt2": "transformer.wte", "opt": "model.decoder.embed_tokens"}[r.family]
	if embed == "" {
		embed = "model.embed_tokens"
	}
	if r.hybrid != nil && r.hybrid.embed != "" {
		embed = r.hybrid.embed
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
		if r.shape.embed != 0 {
			x[i] *= r.shape.embed
		}
	}
	embedding := x
	for l := range r.layers {
		switch {
		case r.hybrid != nil:
			x = r.hybridLayer(l, x, position)
		case r.family == "gpt2":
			x = r.gpt2Layer(l, x)
		case r.family == "opt":
			x = r.optLayer(l, x)
		case r.family == "gemma4_text":
			x = r.gemma4Layer(l, x, position, token, embedding)
		default:
			x = r.llamaLayer(l, x, position)
		}
	}
	final := map[string]string{"gpt2": "transformer.ln_f", "opt": "model.decoder.final_layer_norm"}[r.family]
	if final == "" {
		final = "model.norm"
	}
	if r.hybrid != nil {
		final = r.hybrid.norm
	}
	head := "lm_head"
	if r.w["lm_head.weight"] == nil {
		head = embed
	}
	r.state = r.norm(final, x)
	logits := r.times(head, r.state, r.vocab)
	for i := range logits {
		if r.shape.logits != 0 {
			logits[i] *= r.shape.logits
		}
		if limit := r.shape.logitCap; limit != 0 {
			logits[i] = limit * math.Tanh(logits[i]/limit)
		}
	}
	return logits
}

func (r *reference) attend(l int, q, k, v []float64) []float64 {
	r.keys[l], r.values[l] = append(r.keys[l], k), append(r.values[l], v)
	out := make([]float64, len(q))
	first := 0
	if r.window > 0 && (r.shape.full == nil || !r.shape.full(l)) {
		first = max(0, len(r.keys[l])-r.window)
	}
	if p := &r.shape; p.chunk > 0 && !p.full(l) {
		first = (len(r.keys[l]) - 1) / p.chunk * p.chunk
	}
	for h := range r.heads {
		start := h / (r.heads / r.kvHeads) * r.dim
		var weights []float64
		sum := 0.0
		if sinks := r.w[fmt.Sprintf("model.layers.%d.self_attn.sinks.weight", l)]; sinks != nil {
			sum = math.Exp(float64(sinks[h]))
		}
		for t := first; t < len(r.keys[l]); t++ {
			dot := 0.0
			for i := range r.dim {
				dot += q[h*r.dim+i] * r.keys[l][t][start+i]
			}
			if r.shape.attention != 0 {
				dot *= r.shape.attention
			} else {
				dot /= math.Sqrt(float64(r.dim))
			}
			if limit := r.shape.cap; limit != 0 {
				dot = limit * math.Tanh(dot/limit)
			}
			weights = append(weights, math.Exp(dot))
			sum += weights[len(weights)-1]
		}
		for i, p := range weights {
			for j := range r.dim {
				out[h*r.dim+j] += p / sum * r.values[l][first+i][start+j]
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

// attention returns the inputs of the last matrix of attention.
func (r *reference) attention(l int, n []float64, position int) []float64 {
	named := func(name string) string { return fmt.Sprintf("model.layers.%d.%s", l, name) }
	p := &r.shape
	if p.latent != nil {
		return r.latentAttention(l, n, position)
	}
	var q, k, v []float64
	if query, kv := r.heads*r.dim, r.kvHeads*r.dim; r.w[named("self_attn.qkv_proj.weight")] != nil {
		all := r.times(named("self_attn.qkv_proj"), n, query+2*kv)
		q, k, v = all[:query], all[query:query+kv], all[query+kv:]
	} else {
		q, k, v = r.times(named("self_attn.q_proj"), n, query), r.times(named("self_attn.k_proj"), n, kv), r.times(named("self_attn.v_proj"), n, kv)
	}
	if r.family == "qwen3" || p.headNorm {
		for h := range r.heads {
			copy(q[h*r.dim:], r.norm(named("self_attn.q_norm"), q[h*r.dim:(h+1)*r.dim]))
		}
		for h := range r.kvHeads {
			copy(k[h*r.dim:], r.norm(named("self_attn.k_norm"), k[h*r.dim:(h+1)*r.dim]))
		}
	}
	if p.widthNorm {
		q, k = r.norm(named("self_attn.q_norm"), q), r.norm(named("self_attn.k_norm"), k)
	}
	if p.noRope == nil || !p.noRope(l) {
		theta, scaled := r.theta, true
		if p.localTheta != 0 && !p.full(l) {
			theta, scaled = p.localTheta, false
		}
		r.rope(q, position, theta, scaled)
		r.rope(k, position, theta, scaled)
		if p.rotatedNorm {
			q, k = r.bareNorms(q), r.bareNorms(k)
		}
	} else if p.floor != 0 {
		q = p.tuned(q, position)
	}
	return r.attend(l, q, k, v)
}

func (r *reference) llamaLayer(l int, x []float64, position int) []float64 {
	p := &r.shape
	named := func(name string) string { return p.named(fmt.Sprintf("model.layers.%d.", l), name) }
	n, second, secondPost := x, "post_attention_layernorm", "post_feedforward_layernorm"
	if p.postNorm && p.preNorm {
		second = "pre_feedforward_layernorm"
	}
	if !p.postNorm || p.preNorm {
		n = r.norm(named("input_layernorm"), x)
	}
	add := func(x, y []float64, norm string) []float64 {
		if p.postNorm {
			y = r.norm(named(norm), y)
		}
		if p.residual != 0 {
			for i := range y {
				y[i] *= p.residual
			}
		}
		return plus(x, y)
	}
	x = add(x, r.times(named("self_attn.o_proj"), r.attention(l, n, position), r.hidden), "post_attention_layernorm")
	n = x
	if !p.postNorm || p.preNorm {
		n = r.norm(named(second), x)
	}
	if p.experts > 0 && (p.dense == nil || !p.dense(l)) {
		return plus(x, r.mixture(l, n))
	}
	return add(x, r.mlp(n, r.inter, named("mlp.gate_proj"), named("mlp.up_proj"), named("mlp.down_proj")), secondPost)
}

// mlp returns the output of an MLP or of an expert. names are the tensors of gate, up and down projection; gate and
// up may also be in one tensor.
func (r *reference) mlp(x []float64, inter int, names ...string) []float64 {
	var gate, upProj []float64
	if both := strings.Replace(names[1], ".up_proj", ".gate_up_proj", 1); both != names[1] && r.w[both+".weight"] != nil {
		all := r.times(both, x, 2*inter)
		gate, upProj = all[:inter], all[inter:]
	} else {
		gate, upProj = r.times(names[0], x, inter), r.times(names[1], x, inter)
	}
	for i, g := range gate {
		switch {
		case r.shape.gelu:
			upProj[i] *= g / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g)))
		case r.shape.clamped:
			g = min(g, 7)
			upProj[i] = (max(-7, min(upProj[i], 7)) + 1) * g / (1 + math.Exp(-1.702*g))
		default:
			upProj[i] *= g / (1 + math.Exp(-g))
		}
	}
	return r.times(names[2], upProj, r.hidden)
}

// mixture returns the output of a layer's experts, including the shared expert if there is one.
func (r *reference) mixture(l int, x []float64) []float64 {
	p, sum, taken := &r.shape, 0.0, 0.0
	prefix := fmt.Sprintf("model.layers.%d.", l)
	probability := r.times(prefix+p.router, x, p.experts)
	if p.routing != nil {
		return r.routedMixture(l, x, probability)
	}
	order := make([]int, p.experts)
	for i := range order {
		order[i] = i
		probability[i] = math.Exp(probability[i])
		sum += probability[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(probability[b], probability[a]) })
	for _, e := range order[:p.perToken] {
		taken += probability[e]
	}
	if p.normalize {
		sum = taken
	}
	all := make([]float64, r.hidden)
	for _, e := range order[:p.perToken] {
		name := prefix + fmt.Sprintf(p.expertNames, e)
		y := r.mlp(x, p.expertInter, name+p.expertMLP[0], name+p.expertMLP[1], name+p.expertMLP[2])
		for i, v := range y {
			all[i] += probability[e] / sum * v
		}
	}
	if p.sharedInter > 0 {
		shared := prefix + "mlp.shared_expert"
		gate := r.times(shared+"_gate", x, 1)[0]
		for i, v := range r.mlp(x, p.sharedInter, shared+".gate_proj", shared+".up_proj", shared+".down_proj") {
			all[i] += v / (1 + math.Exp(-gate))
		}
	}
	return all
}
