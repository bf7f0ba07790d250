package model_test

import (
	"fmt"
	"math"
)

// The layers of the families whose positions are learned.

func (r *reference) gpt2Layer(l int, x []float64) []float64 {
	named := func(name string) string { return fmt.Sprintf("transformer.h.%d.%s", l, name) }
	qkv := r.times(named("attn.c_attn"), r.norm(named("ln_1"), x), 3*r.hidden)
	a := r.attend(l, qkv[:r.hidden], qkv[r.hidden:2*r.hidden], qkv[2*r.hidden:])
	x = plus(x, r.times(named("attn.c_proj"), a, r.hidden))
	upProj := r.times(named("mlp.c_fc"), r.norm(named("ln_2"), x), r.inter)
	for i, v := range upProj {
		upProj[i] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
	return plus(x, r.times(named("mlp.c_proj"), upProj, r.hidden))
}

func (r *reference) optLayer(l int, x []float64) []float64 {
	named := func(name string) string { return fmt.Sprintf("model.decoder.layers.%d.%s", l, name) }
	n := r.norm(named("self_attn_layer_norm"), x)
	q, k, v := r.times(named("self_attn.q_proj"), n, r.hidden), r.times(named("self_attn.k_proj"), n, r.hidden),
		r.times(named("self_attn.v_proj"), n, r.hidden)
	x = plus(x, r.times(named("self_attn.out_proj"), r.attend(l, q, k, v), r.hidden))
	upProj := r.times(named("fc1"), r.norm(named("final_layer_norm"), x), r.inter)
	for i, v := range upProj {
		upProj[i] = max(v, 0)
	}
	return plus(x, r.times(named("fc2"), upProj, r.hidden))
}
