package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model"
)

// gemma4Shape has the sizes of Gemma 4 that differ between layers.
type gemma4Shape struct {
	fullDim, fullKV, shared, perLayer int
	keyIsValue, wide                  bool
	rotated                           int // pairs of a head of a full layer
}

// gemma4Families are a model in which full layers have values of their own and each layer has vectors of its own, and a
// model in which the values of full layers are keys.
func gemma4Families(makeOf func(name, kind string, heads, kvHeads, dim int, shape layerShape, extra map[string]any) family) []family {
	shape := layerShape{embed: math.Sqrt(48), attention: 1, postNorm: true, preNorm: true, headNorm: true, gelu: true, logitCap: 3,
		localTheta: 100, full: func(l int) bool { return l == 2 || l == 5 }, gemma4: &gemma4Shape{fullDim: 32, fullKV: 1, shared: 2,
			perLayer: 8, wide: true, rotated: 4}}
	config := map[string]any{"hidden_act": nil, "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 6, "global_head_dim": 32,
		"sliding_window": 9, "final_logit_softcapping": 3.0, "tie_word_embeddings": true, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
		"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97, "attention_k_eq_v": true, "num_global_key_value_heads": 1,
		"layer_types": []string{"sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
			"full_attention"}, "rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 100.0}}}
	small := maps.Clone(config)
	maps.Copy(small, map[string]any{"num_key_value_heads": 2, "attention_k_eq_v": true})
	shape.gemma4.keyIsValue = true
	first := makeOf("Gemma 4", "gemma4_text", 4, 2, 16, shape, small)
	first.ref.eps = 1e-5
	dense := maps.Clone(config)
	maps.Copy(dense, map[string]any{"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_k_eq_v": false,
		"num_global_key_value_heads": 4, "global_head_dim": 16})
	other := shape
	other.gemma4 = &gemma4Shape{fullDim: 16, fullKV: 2, rotated: 2}
	second := makeOf("Gemma 4, dense", "gemma4_text", 4, 2, 16, other, dense)
	return []family{first, second}
}

func (r *reference) gemma4Dims(l int) (dim, kv int) {
	if r.shape.full(l) {
		return r.shape.gemma4.fullDim, r.shape.gemma4.fullKV
	}
	return r.dim, r.kvHeads
}

// gemma4Source returns the layer whose keys and values a layer uses.
func (r *reference) gemma4Source(l int) int {
	first := r.layers - r.shape.gemma4.shared
	if l < first {
		return l
	}
	for l2 := first - 1; ; l2-- {
		if r.shape.full(l2) == r.shape.full(l) {
			return l2
		}
	}
}

func (f *family) gemma4Tensors(all map[string][]int) {
	r := &f.ref
	g := r.shape.gemma4
	all["model.embed_tokens.weight"] = []int{r.vocab, r.hidden}
	norm(all, "model.norm", r.hidden, false)
	if g.perLayer > 0 {
		all["model.embed_tokens_per_layer.weight"] = []int{r.vocab, r.layers * g.perLayer}
		matrix(all, "model.per_layer_model_projection", r.layers*g.perLayer, r.hidden, false)
		norm(all, "model.per_layer_projection_norm", g.perLayer, false)
	}
	for l := range r.layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		for _, name := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"} {
			norm(all, prefix+name, r.hidden, false)
		}
		dim, kv := r.gemma4Dims(l)
		matrix(all, prefix+"self_attn.q_proj", r.heads*dim, r.hidden, false)
		matrix(all, prefix+"self_attn.o_proj", r.hidden, r.heads*dim, false)
		norm(all, prefix+"self_attn.q_norm", dim, false)
		norm(all, prefix+"self_attn.k_norm", dim, false) // shared layers have unused ones, as in published files
		matrix(all, prefix+"self_attn.k_proj", kv*dim, r.hidden, false)
		if !r.shape.full(l) || !g.keyIsValue {
			matrix(all, prefix+"self_attn.v_proj", kv*dim, r.hidden, false)
		}
		inter := r.inter
		if g.wide && r.gemma4Source(l) != l {
			inter *= 2
		}
		mlpTensors(all, r.hidden, inter, prefix+"mlp.gate_proj", prefix+"mlp.up_proj", prefix+"mlp.down_proj")
		all[prefix+"layer_scalar"] = []int{1}
		if g.perLayer > 0 {
			matrix(all, prefix+"per_layer_input_gate", g.perLayer, r.hidden, false)
			matrix(all, prefix+"per_layer_projection", r.hidden, g.perLayer, false)
			norm(all, prefix+"post_per_layer_input_norm", r.hidden, false)
		}
	}
}

// gemma4Layer computes a layer of Gemma 4 for a token, whose embedding is given.
func (r *reference) gemma4Layer(l int, x []float64, position int, token int32, embedding []float64) []float64 {
	named := func(name string) string { return fmt.Sprintf("model.layers.%d.%s", l, name) }
	g, source := r.shape.gemma4, r.gemma4Source(l)
	dim, kv := r.gemma4Dims(l)
	heads := func(x []float64, norm func([]float64) []float64) (y []float64) {
		for h := 0; h < len(x); h += dim {
			y = append(y, norm(x[h:h+dim])...)
		}
		return y
	}
	rotate := func(x []float64) []float64 {
		y := append([]float64(nil), x...)
		pairs, theta := dim/2, r.shape.localTheta
		if r.shape.full(l) {
			pairs, theta = g.rotated, r.theta
		}
		for i := range pairs {
			s, c := math.Sincos(float64(position) * math.Pow(theta, -2*float64(i)/float64(dim)))
			y[i], y[i+dim/2] = x[i]*c-x[i+dim/2]*s, x[i]*s+x[i+dim/2]*c
		}
		return y
	}
	n := r.norm(named("input_layernorm"), x)
	q := heads(heads(r.times(named("self_attn.q_proj"), n, r.heads*dim), func(x []float64) []float64 { return r.norm(named("self_attn.q_norm"), x) }), rotate)
	if source == l {
		k := r.times(named("self_attn.k_proj"), n, kv*dim)
		v := k
		if !r.shape.full(l) || !g.keyIsValue {
			v = r.times(named("self_attn.v_proj"), n, kv*dim)
		}
		bare := func(x []float64) []float64 {
			square := 0.0
			for _, v := range x {
				square += v * v / float64(len(x))
			}
			return scaled(x, 1/math.Sqrt(square+r.eps))
		}
		r.values[l] = append(r.values[l], heads(v, bare))
		r.keys[l] = append(r.keys[l], heads(heads(k, func(x []float64) []float64 { return r.norm(named("self_attn.k_norm"), x) }), rotate))
	}
	first := 0
	if !r.shape.full(l) {
		first = max(0, position+1-r.window)
	}
	var attended []float64
	for h := range r.heads {
		start, sum, o := h/(r.heads/kv)*dim, 0.0, make([]float64, dim)
		for t := first; t <= position; t++ {
			dot := 0.0
			for i := range dim {
				dot += q[h*dim+i] * r.keys[source][t][start+i]
			}
			p := math.Exp(dot)
			sum += p
			for i := range o {
				o[i] += p * r.values[source][t][start+i]
			}
		}
		attended = append(attended, scaled(o, 1/sum)...)
	}
	x = plus(x, r.norm(named("post_attention_layernorm"), r.times(named("self_attn.o_proj"), attended, r.hidden)))
	inter := r.inter
	if g.wide && source != l {
		inter *= 2
	}
	y := r.mlp(r.norm(named("pre_feedforward_layernorm"), x), inter, named("mlp.gate_proj"), named("mlp.up_proj"), named("mlp.down_proj"))
	x = plus(x, r.norm(named("post_feedforward_layernorm"), y))
	if d := g.perLayer; d > 0 {
		projected := scaled(r.times("model.per_layer_model_projection", embedding, r.layers*d)[l*d:(l+1)*d], 1/math.Sqrt(float64(r.hidden)))
		vector := r.norm("model.per_layer_projection_norm", projected)
		gates := r.times(named("per_layer_input_gate"), x, d)
		for i := range vector {
			own := float64(r.w["model.embed_tokens_per_layer.weight"][(int(token)*r.layers+l)*d+i])
			vector[i] = (vector[i] + own*math.Sqrt(float64(d))) / math.Sqrt2
			v := gates[i]
			vector[i] *= v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
		}
		x = plus(x, r.norm(named("post_per_layer_input_norm"), r.times(named("per_layer_projection"), vector, r.hidden)))
	}
	return scaled(x, float64(r.w[named("layer_scalar")][0]))
}

func TestTheFieldsOfGemma4(t *testing.T) {
	parse := func(changes map[string]any) (*model.Config, error) {
		config := maps.Clone(newerFamily(t, "Gemma 4").config)
		for name, value := range changes {
			if config[name] = value; value == "absent" {
				delete(config, name)
			}
		}
		data, err := json.Marshal(config)
		require.NoError(t, err)
		return model.ParseConfig(data)
	}
	c, err := parse(map[string]any{"global_head_dim": "absent", "layer_types": "absent", "rope_parameters": "absent", "attention_k_eq_v": false,
		"num_kv_shared_layers": 0})
	require.NoError(t, err)
	require.Equal(t, 512, c.Mixed.HeadDim)
	require.Equal(t, 2, c.Mixed.NumKVHeads, "num_global_key_value_heads counts only with attention_k_eq_v")
	require.Equal(t, []bool{false, false, false, false, false, true}, c.Mixed.Full)
	require.Equal(t, &model.Rope{Theta: 10000, Dim: 16}, c.LocalRope)
	require.Equal(t, 1e6, c.Rope.Theta)
	require.Equal(t, []float64{1, 1e30}, c.Rope.Factors[63:65])
	require.Equal(t, 9, c.Window(4))
	require.Zero(t, c.Window(5))
	for want, change := range map[string]map[string]any{
		"enable_moe_block is true":           {"enable_moe_block": true},
		"attention_bias is true":             {"attention_bias": true},
		"use_bidirectional_attention is all": {"use_bidirectional_attention": "all"},
		"layer 2 has no keys and values, and no layer before it has any of the same kind": {"num_kv_shared_layers": 4},
		"6 of 6 layers share keys and values":                                             {"num_kv_shared_layers": 6},
		"heads of 520 elements in full layers":                                            {"global_head_dim": 520},
		"4 query heads on 3 key heads in full layers":                                     {"num_global_key_value_heads": 3},
		"sliding_window is":                                 {"sliding_window": nil},
		`rope scaling of type "yarn" in full layers`:        {"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_type": "yarn", "factor": 2}}},
		`layer_types has "linear_attention"`:                {"layer_types": []string{"linear_attention", "", "", "", "", ""}},
		"vectors of 8 elements for each layer, of 5 tokens": {"vocab_size_per_layer_input": 5},
	} {
		_, err := parse(change)
		require.ErrorIs(t, err, model.ErrModel, want)
		require.ErrorContains(t, err, want)
	}
	_, err = model.OpenFolder(newerFamily(t, "Gemma 4").write(t), newPool(t, 1), model.Part{Size: 2})
	require.ErrorContains(t, err, "layers with different heads cannot be shared out among workers")
	require.Equal(t, attention.Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 512, DType: attention.F16}, c.LayerShape(5, model.Part{}, 16, attention.F16))
}
