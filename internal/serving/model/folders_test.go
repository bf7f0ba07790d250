package model_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	pack "llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/weightfile"
)

// A quantizer makes a matrix of random weights in a quantized format. It returns the tensors of the matrix, and stores
// the dequantized weights in the slice weights.
type quantizer func(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor

func randomFP8(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor {
	data, scales := make([]byte, rows*cols), make([]float32, rows)
	for i := range data {
		if i%cols == 0 {
			scales[i/cols] = 0.0005 * (1 + rnd.Float32())
		}
		data[i] = byte(rnd.IntN(127) | rnd.IntN(2)<<7)
		weights[i] = pack.E4M3.Table()[data[i]] * scales[i/cols]
	}
	return []weightfile.Tensor{{Name: name + ".weight", DType: "F8_E4M3", Shape: []int{rows, cols}, Data: data},
		weightfile.F32(name+".weight_scale", scales, rows, 1)}
}

func randomPacked(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor {
	var data []byte
	scales := make([]float32, rows*cols/32)
	for i := 0; i < rows*cols; i += 8 {
		if i%32 == 0 {
			scales[i/32] = 0.02 * (1 + rnd.Float32())
		}
		word := rnd.Uint32()
		data = binary.LittleEndian.AppendUint32(data, word)
		for j := range 8 {
			weights[i+j] = float32(int(word>>(4*j)&15)-8) * scales[i/32]
		}
	}
	return []weightfile.Tensor{{Name: name + ".weight_packed", DType: "I32", Shape: []int{rows, cols / 8}, Data: data},
		weightfile.F32(name+".weight_scale", scales, rows, cols/32)}
}

func TestQuantizedFoldersLogitsAreThoseOfTheReference(t *testing.T) {
	config := func(format, kind string, bits int) map[string]any {
		return map[string]any{"quant_method": "compressed-tensors", "format": format, "config_groups": map[string]any{
			"g": map[string]any{"weights": map[string]any{"type": kind, "num_bits": bits, "group_size": 32}}}}
	}
	for _, test := range []struct {
		name         string
		quantization map[string]any
		quantize     quantizer
	}{
		{"FP8", config("float-quantized", "float", 8), randomFP8},
		{"INT4", config("pack-quantized", "int", 4), randomPacked},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := families()[1]
			f.config["hidden_size"], f.config["intermediate_size"] = 64, 128
			f.config["quantization_config"] = test.quantization
			f.ref.hidden, f.ref.inter = 64, 128
			dir := f.write(t)
			write := func(quantized string) {
				rnd := rand.New(rand.NewPCG(8, 3))
				f.save(t, dir, func(name string, shape []int) []weightfile.Tensor {
					if strings.Contains(name, quantized) {
						return test.quantize(rnd, strings.TrimSuffix(name, ".weight"), shape[0], shape[1], f.ref.w[name])
					}
					return f.unchanged(name, shape)
				})
			}
			write("_proj")
			maxError, _, size := logitErrors(t, newBench(t, dir, 2), &f.ref)
			require.Less(t, maxError, 2e-4)
			require.Greater(t, size, 0.3)
			requireSameBits(t, join(t, 1, folder(dir)), join(t, 2, folder(dir)))
			write("embed_tokens")
			_, err := model.OpenFolder(dir, newPool(t, 1), model.Part{})
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, "embeddings are read in F32, F16 and BF16")
		})
	}
}

func gptOSSShape(inter int) layerShape {
	return layerShape{clamped: true, full: func(l int) bool { return l%2 == 1 }, experts: 5, perToken: 2, expertInter: inter,
		normalize: true, router: "mlp.router", expertNames: "mlp.experts.%d.",
		expertMLP: [3]string{"gate_proj", "up_proj", "down_proj"}}
}

func gptOSSConfig(inter int) map[string]any {
	return map[string]any{"attention_bias": true, "experts_per_token": 2, "num_experts_per_tok": 2, "num_local_experts": 5,
		"initial_context_length": 64, "intermediate_size": inter, "swiglu_limit": 7.0, "router_aux_loss_coef": 0.9,
		"sliding_window": 9, "layer_types": []string{"sliding_attention", "full_attention"},
		"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
			"beta_fast": 8.0, "beta_slow": 1.0, "truncate": false}}
}

// exactYarn returns the factor by which YaRN multiplies the frequency of pair i of 16, with scaling by 4 and theta
// 1000. The factor is 1 if the pair rotates more than 8 times over 64 tokens. It is 1/4 if the pair rotates less than
// once. In between, it falls linearly from 1 to 1/4 with the index of the pair. place computes the two indices at which
// the line begins and ends. exactYarn does not round these indices, as if Yarn.Exact were true.
func exactYarn(i int) float64 {
	place := func(rotations float64) float64 { return 16 * math.Log(64/(2*math.Pi*rotations)) / math.Log(1000) }
	ramp := max(0, min(1, (float64(i)-place(8))/(place(1)-place(8))))
	return (1 - ramp) + ramp/4
}

// splitExperts replaces the published tensors of gpt-oss's experts by one tensor for each expert, and renames the
// sinks as in GGUF. A published tensor has the shape [experts, inputs, outputs], in which outputs of gate and up
// projection alternate.
func (r *reference) splitExperts() {
	p := &r.shape
	for l := range r.layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		sinks, ok := r.w[prefix+"self_attn.sinks"]
		if !ok {
			return
		}
		r.w[prefix+"self_attn.sinks.weight"] = sinks
		for e := range p.experts {
			name := prefix + fmt.Sprintf("mlp.experts.%d.", e)
			both, bias := r.w[prefix+"mlp.experts.gate_up_proj"], r.w[prefix+"mlp.experts.gate_up_proj_bias"]
			downProj := r.w[prefix+"mlp.experts.down_proj"]
			var gates, ups, downs, gateBias, upBias []float32
			for o := range p.expertInter {
				for k := range r.hidden {
					first := (e*r.hidden + k) * 2 * p.expertInter
					gates, ups = append(gates, both[first+2*o]), append(ups, both[first+2*o+1])
				}
				gateBias = append(gateBias, bias[(e*p.expertInter+o)*2])
				upBias = append(upBias, bias[(e*p.expertInter+o)*2+1])
			}
			for o := range r.hidden {
				for k := range p.expertInter {
					downs = append(downs, downProj[(e*p.expertInter+k)*r.hidden+o])
				}
			}
			r.w[name+"gate_proj.weight"], r.w[name+"gate_proj.bias"] = gates, gateBias
			r.w[name+"up_proj.weight"], r.w[name+"up_proj.bias"] = ups, upBias
			r.w[name+"down_proj.weight"] = downs
			r.w[name+"down_proj.bias"] = r.w[prefix+"mlp.experts.down_proj_bias"][e*r.hidden:][:r.hidden]
		}
	}
}

// randomMXFP4 returns random experts of the shape [experts, inputs, outputs] in MXFP4, stored as [experts, outputs,
// groups of inputs, 16]. It sets weights to their values after dequantization.
func randomMXFP4(rnd *rand.Rand, name string, shape []int, weights []float32) []weightfile.Tensor {
	numbers := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	n, inputs, outputs := shape[0], shape[1], shape[2]
	var blocks, scales []byte
	for row := range n * outputs {
		for k := 0; k < inputs; k += 2 {
			if k%32 == 0 {
				scales = append(scales, byte(121+rnd.IntN(3)))
			}
			scale := float32(math.Pow(2, float64(scales[len(scales)-1])-127))
			low, high := rnd.IntN(16), rnd.IntN(16)
			blocks = append(blocks, byte(low|high<<4))
			index := (row/outputs*inputs+k)*outputs + row%outputs
			weights[index], weights[index+outputs] = numbers[low]*scale, numbers[high]*scale
		}
	}
	return []weightfile.Tensor{{Name: name + "_blocks", DType: "U8", Shape: []int{n, outputs, inputs / 32, 16}, Data: blocks},
		{Name: name + "_scales", DType: "U8", Shape: []int{n, outputs, inputs / 32}, Data: scales}}
}

// writeMXFP4 writes a model folder in gpt-oss's published form, and returns its path and its reference. The file has
// the results of change in place of each tensor.
func writeMXFP4(t *testing.T, change func(weightfile.Tensor) []weightfile.Tensor) (string, *reference) {
	f := newerFamily(t, "gpt-oss")
	f.ref.hidden, f.ref.shape = 64, gptOSSShape(128)
	maps.Copy(f.config, gptOSSConfig(128))
	f.config["hidden_size"] = 64
	f.config["quantization_config"] = map[string]any{"quant_method": "mxfp4", "modules_to_not_convert": []string{
		"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}
	dir := f.write(t)
	rnd := rand.New(rand.NewPCG(8, 4))
	f.save(t, dir, func(name string, shape []int) (changed []weightfile.Tensor) {
		tensors := f.unchanged(name, shape)
		if strings.Contains(name, ".experts.") && strings.HasSuffix(name, "_proj") {
			tensors = randomMXFP4(rnd, name, shape, f.ref.w[name])
		}
		for _, one := range tensors {
			changed = append(changed, change(one)...)
		}
		return changed
	})
	f.ref.splitExperts()
	return dir, &f.ref
}

func TestGPTOSSInMXFP4HasTheLogitsOfTheReference(t *testing.T) {
	dir, ref := writeMXFP4(t, func(w weightfile.Tensor) []weightfile.Tensor { return []weightfile.Tensor{w} })
	b := newBench(t, dir, 2)
	require.Empty(t, b.m.Unused())
	maxError, _, size := logitErrors(t, b, ref)
	require.Less(t, maxError, 2e-4)
	require.Greater(t, size, 0.3)
	requireSameBits(t, join(t, 1, folder(dir)), join(t, 2, folder(dir)))
}

func TestGPTOSSThatDoesNotFitIsRefused(t *testing.T) {
	const blocks = "model.layers.1.mlp.experts.down_proj_blocks"
	pool := newPool(t, 1)
	for _, test := range []struct {
		name   string
		tensor string
		change func(*weightfile.Tensor)
		want   string
	}{
		{"no blocks", blocks, nil, `"model.layers.1.mlp.experts.down_proj.weight" is missing`},
		{"no scales", "model.layers.1.mlp.experts.down_proj_scales", nil, blocks + ": damaged file of weights: its scales are missing"},
		{"no bias", "model.layers.1.mlp.experts.down_proj_bias", nil, `down_proj.bias" is missing`},
		{"no sinks", "model.layers.1.self_attn.sinks", nil, `self_attn.sinks" is missing`},
		{"blocks of another size", blocks, func(w *weightfile.Tensor) { w.Shape = []int{5, 64, 8, 8} },
			"of type U8 and shape [5 64 8 8]; U8 in blocks of 16 is expected"},
		{"blocks of another type", blocks, func(w *weightfile.Tensor) { w.DType = "I8" }, "U8 in blocks of 16 is expected"},
		{"fewer blocks than scales", blocks, func(w *weightfile.Tensor) { w.Shape, w.Data = []int{5, 32, 4, 16}, w.Data[:10240] },
			"its scales are of type U8 and shape [5 64 4]; U8 of shape [5 32 4] is expected"},
		{"a shape of other bytes", blocks, func(w *weightfile.Tensor) { w.Shape = []int{5, 64, 1 << 31, 16} },
			"and has 20480 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, _ := writeMXFP4(t, func(w weightfile.Tensor) []weightfile.Tensor {
				if w.Name == test.tensor {
					if test.change == nil {
						return nil
					}
					test.change(&w)
				}
				return []weightfile.Tensor{w}
			})
			_, err := model.OpenFolder(dir, pool, model.Part{})
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, test.want)
		})
	}
	for _, field := range []string{"swiglu_limit", "swiglu_alpha"} {
		_, err := model.ParseConfig([]byte(`{"model_type": "gpt_oss", "` + field + `": 3}`))
		require.ErrorContains(t, err, field+" is 3; ")
	}
}

// Ensure that fields missing from config.json have transformers' defaults. These are the values of the published
// models.
func TestGPTOSSHasItsDefaults(t *testing.T) {
	c, err := model.ParseConfig([]byte(`{"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880,
		"intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
		"max_position_embeddings": 131072}`))
	require.NoError(t, err)
	require.Equal(t, &model.Rope{Theta: 150000, Attention: 0.1*math.Log(32) + 1, Yarn: &model.Yarn{Factor: 32,
		OriginalLength: 4096, BetaFast: 32, BetaSlow: 1, Exact: true}}, c.Rope)
	require.Equal(t, &model.Experts{Count: 128, PerToken: 4, IntermediateSize: 2880, Normalize: true, Bias: true,
		RouterBias: true}, c.Experts)
	require.Equal(t, []int{64, 131072, 128, 0}, []int{c.HeadDim, c.MaxModelLen, c.Window(0), c.Window(23)})
	require.Equal(t, 1e-5, c.NormEps)
	require.True(t, c.QKVBias && c.OutBias && c.Sinks && !c.TieEmbeddings)
}
