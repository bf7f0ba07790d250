package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
)

func llama4Family(makeOf func(name, kind string, heads, kvHeads, dim int, shape layerShape, extra map[string]any) family) family {
	shape := layerShape{experts: 5, perToken: 2, expertInter: 40, router: "mlp.gate", expertNames: "mlp.experts.%d.",
		expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"}, sharedInter: 40, rotatedNorm: true, floor: 7, tuning: 0.3, chunk: 11,
		full: func(l int) bool { return l == 3 }, noRope: func(l int) bool { return l == 3 }, dense: func(l int) bool { return l%2 == 0 },
		routing: &routerShape{sigmoid: true, inputs: true, shared: "mlp.shared_expert"}}
	f := makeOf("Llama 4", "llama4_text", 4, 2, 16, shape, map[string]any{"num_hidden_layers": 5, "intermediate_size": 40,
		"intermediate_size_mlp": 80, "interleave_moe_layer_step": 2, "num_local_experts": 5, "num_experts_per_tok": 2, "use_qk_norm": true,
		"no_rope_layers": []int{}, "attention_chunk_size": 11, "attn_temperature_tuning": 4, "floor_scale": 7, "attn_scale": 0.3,
		"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
			"original_max_position_embeddings": 64}})
	f.ref.pairs = true
	f.ref.scale = nil
	f.ref.stretch = func(i int) float64 { // of 8 pairs with theta 1000, the first three rotate more than once in 64 tokens
		if 64*math.Pow(1000, -float64(i)/8)/(2*math.Pi) > 1 {
			return 1
		}
		return 1.0 / 16
	}
	return f
}

// bareNorms returns the heads, each normalized without weights.
func (r *reference) bareNorms(x []float64) []float64 {
	var y []float64
	for h := 0; h < len(x); h += r.dim {
		square := 0.0
		for _, v := range x[h : h+r.dim] {
			square += v * v / float64(r.dim)
		}
		y = append(y, scaled(x[h:h+r.dim], 1/math.Sqrt(square+r.eps))...)
	}
	return y
}

func scaled(x []float64, factor float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * factor
	}
	return y
}

// tuned returns queries multiplied by the temperature of their position.
func (p *layerShape) tuned(q []float64, position int) []float64 {
	return scaled(q, 1+p.tuning*math.Log(1+math.Floor(float64(position+1)/p.floor)))
}

func (f *family) llama4Tensors(all map[string][]int, prefix string, l int) {
	r := &f.ref
	prefix += "feed_forward."
	if r.shape.dense(l) {
		mlpTensors(all, r.hidden, r.inter, prefix+"gate_proj", prefix+"up_proj", prefix+"down_proj")
		return
	}
	matrix(all, prefix+"router", r.shape.experts, r.hidden, false)
	all[prefix+"experts.gate_up_proj"] = []int{r.shape.experts, r.hidden, 2 * r.shape.expertInter}
	all[prefix+"experts.down_proj"] = []int{r.shape.experts, r.shape.expertInter, r.hidden}
	shared := prefix + "shared_expert."
	mlpTensors(all, r.hidden, r.shape.expertInter, shared+"gate_proj", shared+"up_proj", shared+"down_proj")
}

// renameLlama4 gives the published tensors of Llama 4 the names that reference uses, and divides those of experts.
func (r *reference) renameLlama4() {
	for name, w := range maps.Clone(r.w) {
		renamed := strings.Replace(strings.Replace(name, "feed_forward.router", "mlp.gate", 1), "feed_forward.", "mlp.", 1)
		if renamed == name {
			continue
		}
		r.w[renamed] = w
		columns, divided := map[string][]string{"gate_up_proj": {"gate_proj", "up_proj"}, "down_proj": {"down_proj"}}[name[strings.LastIndex(name, ".")+1:]]
		if !divided || !strings.Contains(name, ".experts.") {
			continue
		}
		prefix := renamed[:strings.LastIndex(renamed, ".")+1]
		inputs, outputs := r.hidden, r.shape.expertInter
		if columns[0] == "down_proj" {
			inputs, outputs = outputs, inputs
		}
		for e := range r.shape.experts {
			for part, column := range columns {
				var one []float32
				for o := range outputs {
					for i := range inputs {
						one = append(one, w[(e*inputs+i)*outputs*len(columns)+part*outputs+o])
					}
				}
				r.w[fmt.Sprintf("%s%d.%s.weight", prefix, e, column)] = one
			}
		}
	}
}

// Ensure that fields that config.json may lack, or that may be numbers, lists or null, have transformers' meaning.
func TestTheFieldsOfLlama4(t *testing.T) {
	parse := func(changes map[string]any) (*model.Config, error) {
		config := newerFamily(t, "Llama 4").config
		for name, value := range changes {
			if config[name] = value; value == "absent" {
				delete(config, name)
			}
		}
		data, err := json.Marshal(config)
		require.NoError(t, err)
		return model.ParseConfig(data)
	}
	every := []bool{false, false, false, true, false}
	for _, test := range []struct {
		name        string
		change      map[string]any
		chunk       int
		full        []bool
		noRope      []bool
		temperature *model.Temperature
		norm        model.QKNorm
		dense       []bool
	}{
		{"defaults", map[string]any{"no_rope_layers": "absent", "attention_chunk_size": "absent", "attn_temperature_tuning": "absent",
			"floor_scale": "absent", "attn_scale": "absent", "use_qk_norm": "absent", "interleave_moe_layer_step": "absent"}, 8192, every,
			every, &model.Temperature{Floor: 8192, Scale: 0.1}, model.RotatedNorm, nil},
		{"without", map[string]any{"attention_chunk_size": nil, "attn_temperature_tuning": false, "use_qk_norm": false,
			"moe_layers": []int{0, 1}}, 0, nil, every, nil, model.NoQKNorm, []bool{false, false, true, true, true}},
		{"lists", map[string]any{"no_rope_layers": []int{1, 0, 1, 1, 1}, "attn_temperature_tuning": true}, 11,
			[]bool{false, true, false, false, false}, []bool{false, true, false, false, false}, &model.Temperature{Floor: 7, Scale: 0.3},
			model.RotatedNorm, []bool{true, false, true, false, true}},
		{"layer_types", map[string]any{"layer_types": []string{"full_attention", "chunked_attention", "chunked_attention",
			"chunked_attention", "chunked_attention"}}, 11, []bool{true, false, false, false, false}, every,
			&model.Temperature{Floor: 7, Scale: 0.3}, model.RotatedNorm, []bool{true, false, true, false, true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := parse(test.change)
			require.NoError(t, err)
			require.Equal(t, test.chunk, c.AttentionChunk)
			require.Equal(t, test.full, c.Full)
			require.Equal(t, test.noRope, c.NoRope)
			require.Equal(t, test.temperature, c.Temperature)
			require.Equal(t, test.norm, c.QKNorm)
			require.Equal(t, test.dense, c.Experts.Dense)
		})
	}
	for want, change := range map[string]map[string]any{
		`layer_types has "sliding_attention"`:       {"layer_types": []string{"sliding_attention", "", "", "", ""}},
		"attention_chunk_size is -3":                {"attention_chunk_size": -3},
		"attention_chunk_size has the wrong type":   {"attention_chunk_size": "11"},
		"queries are scaled by 0.3 every -1 tokens": {"floor_scale": -1},
	} {
		_, err := parse(change)
		require.ErrorContains(t, err, want)
	}
}
