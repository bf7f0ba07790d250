package gpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// requireClose compares logits with those of the CPU, whose activations are float32.
//
// In each layer, the GPU rounds about 14 values one after the other: weights, products, keys, sums and
// outputs of norms. Let u be the error of a rounding. The errors are independent and are not amplified. So
// the standard deviation of a logit's error is about u times the square root of the number of roundings,
// times the size of the logits. The largest of several thousand errors is below 6 standard deviations.
func requireClose(t *testing.T, m *model.Model, kind string, want, got [][]float32) {
	t.Helper()
	u := map[string]float64{"f16": 0x1p-11, "bf16": 0x1p-8}[kind]
	squares, n, worst := 0.0, 0, 0.0
	for i := range want {
		for k, x := range want[i] {
			squares += float64(x) * float64(x)
			worst = max(worst, math.Abs(float64(got[i][k]-x)))
			n++
		}
	}
	size := math.Sqrt(squares / float64(n))
	require.Greater(t, size, 0.2)
	require.Less(t, worst, 6*math.Sqrt(2*14*float64(m.NumLayers))*u*size, "logits of size %v", size)
}

// Ensure that models of all families without experts have the same logits as on the CPU, up to rounding. Models with
// experts or latent attention must be refused. All these models have heads that need padding.
func TestLogitsAreThoseOfTheCPU(t *testing.T) {
	d := openDevice(t)
	computed := 0
	for _, tiny := range weightfile.Tinies() {
		t.Run(tiny.Name, func(t *testing.T) {
			open := gguf(t, tiny.GGUF())
			var config *model.Config
			_, err := open(newPool(t), model.LoadOn(func(c *model.Config, _ *model.Sources) error {
				config = c
				return gpu.Check(c)
			}))
			if err != nil {
				require.ErrorIs(t, err, gpu.ErrUnsupported)
				if config.Latent != nil {
					require.ErrorContains(t, err, "latent attention (MLA) runs on the CPU only")
					return
				}
				require.NotNil(t, config.Experts)
				require.ErrorContains(t, err, fmt.Sprintf("this one has %d experts in a layer", config.Experts.Count))
				return
			}
			if computed++; computed > 2 {
				level.SkipNormal(t)
			}
			requireLogitsOfCPU(t, d, open)
		})
	}
	require.Equal(t, 14, computed) // families and kinds of rotations
}

func TestModelsWithStatesAreRefused(t *testing.T) {
	for _, c := range []model.Config{{Family: "lfm2", Recurrence: &model.Recurrence{}}, {Family: "qwen3_next", Gate: true}} {
		err := gpu.Check(&c)
		require.ErrorIs(t, err, gpu.ErrUnsupported)
		require.ErrorContains(t, err, "models of the family "+c.Family+" have layers with states, which run on the CPU only")
	}
}

func TestModelsWithDifferentHeadsAreRefused(t *testing.T) {
	err := gpu.Check(&model.Config{Mixed: &model.Mixed{}})
	require.ErrorIs(t, err, gpu.ErrUnsupported)
	require.ErrorContains(t, err, "such as Gemma 4, run on the CPU only")
}

func requireLogitsOfCPU(t *testing.T, d *gpu.Device, open opener) {
	t.Helper()
	m, w := load(t, d, open)
	one, two := onCPU(t, open, attention.F32), onGPU(t, m, w)
	long, short := chunk{randomTokens(1, 18, m.VocabSize), 0, []int32{5, 3}}, chunk{randomTokens(2, 3, m.VocabSize), 0, []int32{4}}
	requireClose(t, m, w.Type(), step(t, one, long, short), step(t, two, long, short))
	next := []chunk{{randomTokens(3, 1, m.VocabSize), 18, long.table}, {randomTokens(4, 1, m.VocabSize), 3, short.table}}
	requireClose(t, m, w.Type(), step(t, one, next...), step(t, two, next...))
}

// built returns a model with random weights in F32.
func built(c model.Config, tensors *weights.Tensors) opener {
	return func(pool *parallel.Pool, options ...model.Option) (*model.Model, error) {
		return model.Build(c, tensors, pool, model.Part{}, options...)
	}
}

// randomWeights returns random tensors. The text perLayer lists the tensors of every layer. The text others lists the
// tensors outside the layers. A line of a list has the name, the rows and the columns of a tensor. % in a name stands
// for the number of the layer. Tensors of one row are norms and biases.
func randomWeights(layers int, perLayer, others string) *weights.Tensors {
	rnd := rand.New(rand.NewPCG(8, 1))
	var all []*weights.Tensor
	add := func(lines string, layer int) {
		for line := range strings.Lines(strings.TrimSpace(lines)) {
			var name string
			var rows, cols int
			_, err := fmt.Sscan(line, &name, &rows, &cols)
			if err != nil {
				panic(err)
			}
			values := make([]float32, rows*cols)
			for i := range values {
				values[i] = float32(0.15 * rnd.NormFloat64())
				if rows == 1 && strings.HasSuffix(name, "weight") {
					values[i]++
				}
			}
			all = append(all, weights.FromFloats(strings.ReplaceAll(name, "%", fmt.Sprint(layer)), rows, cols, values))
		}
	}
	for i := range layers {
		add(perLayer, i)
	}
	add(others, 0)
	return weights.Collect(all...)
}

// Ensure that models with LayerNorm, biases, learned positions, transposed matrices and no gates have the
// same logits as on the CPU, up to rounding.
func TestLogitsOfFamiliesWithLayerNorm(t *testing.T) {
	level.SkipNormal(t)
	d := openDevice(t)
	c := model.Config{VocabSize: 100, HiddenSize: 64, NumLayers: 2, NumHeads: 4, NumKVHeads: 4, HeadDim: 16, IntermediateSize: 96, MaxModelLen: 64,
		Norm: model.LayerNorm, NormEps: 1e-5, TieEmbeddings: true, QKVBias: true, OutBias: true, MLPBias: true}
	gpt2, opt := c, c
	gpt2.Family, gpt2.Activation = "gpt2", model.GELU
	opt.Family, opt.Activation, opt.PositionOffset = "opt", model.ReLU, 2
	requireLogitsOfCPU(t, d, built(gpt2, randomWeights(2, `
		transformer.h.%.ln_1.weight 1 64
		transformer.h.%.ln_1.bias 1 64
		transformer.h.%.attn.c_attn.weight 64 192
		transformer.h.%.attn.c_attn.bias 1 192
		transformer.h.%.attn.c_proj.weight 64 64
		transformer.h.%.attn.c_proj.bias 1 64
		transformer.h.%.ln_2.weight 1 64
		transformer.h.%.ln_2.bias 1 64
		transformer.h.%.mlp.c_fc.weight 64 96
		transformer.h.%.mlp.c_fc.bias 1 96
		transformer.h.%.mlp.c_proj.weight 96 64
		transformer.h.%.mlp.c_proj.bias 1 64`, `
		transformer.wte.weight 100 64
		transformer.wpe.weight 64 64
		transformer.ln_f.weight 1 64
		transformer.ln_f.bias 1 64`)))
	requireLogitsOfCPU(t, d, built(opt, randomWeights(2, `
		model.decoder.layers.%.self_attn_layer_norm.weight 1 64
		model.decoder.layers.%.self_attn_layer_norm.bias 1 64
		model.decoder.layers.%.self_attn.q_proj.weight 64 64
		model.decoder.layers.%.self_attn.q_proj.bias 1 64
		model.decoder.layers.%.self_attn.k_proj.weight 64 64
		model.decoder.layers.%.self_attn.k_proj.bias 1 64
		model.decoder.layers.%.self_attn.v_proj.weight 64 64
		model.decoder.layers.%.self_attn.v_proj.bias 1 64
		model.decoder.layers.%.self_attn.out_proj.weight 64 64
		model.decoder.layers.%.self_attn.out_proj.bias 1 64
		model.decoder.layers.%.final_layer_norm.weight 1 64
		model.decoder.layers.%.final_layer_norm.bias 1 64
		model.decoder.layers.%.fc1.weight 96 64
		model.decoder.layers.%.fc1.bias 1 96
		model.decoder.layers.%.fc2.weight 64 96
		model.decoder.layers.%.fc2.bias 1 64`, `
		model.decoder.embed_tokens.weight 100 64
		model.decoder.embed_positions.weight 66 64
		model.decoder.final_layer_norm.weight 1 64
		model.decoder.final_layer_norm.bias 1 64`)))
}

// typesOfGGUF describes types of weights. An entry has the number of the type in a file and the elements and bytes of a
// block. It also has the offsets of the F16 numbers in a block, such as scales, and the size of random values for these
// numbers. The weights for queries and keys have the types Q8_0 and Q4_0. The scales of these two types are small,
// because a softmax of large logits amplifies errors.
var typesOfGGUF = map[string]struct {
	number          uint32
	elements, bytes int
	scales          []int
	size            float64
}{
	"F16": {1, 1, 2, []int{0}, 0.1}, "Q4_0": {2, 32, 18, []int{0}, 0.004}, "Q5_0": {6, 32, 22, []int{0}, 0.01}, "Q8_0": {8, 32, 34, []int{0}, 0.0005},
	"Q4_K": {12, 256, 144, []int{0, 2}, 0.0004}, "Q5_K": {13, 256, 176, []int{0, 2}, 0.0002}, "Q6_K": {14, 256, 210, []int{208}, 0.00005},
	"MXFP4": {39, 32, 17, nil, 0},
}

// quantized returns a tensor with random weights of a type.
func quantized(rnd *rand.Rand, name, kind string, rows, cols int) weightfile.Tensor {
	k := typesOfGGUF[kind]
	data := make([]byte, rows*cols/k.elements*k.bytes)
	for b := 0; b < len(data); b += k.bytes {
		block := data[b : b+k.bytes]
		for i := range block {
			block[i] = byte(rnd.Uint32())
		}
		if kind == "MXFP4" {
			block[0] = byte(121 + rnd.IntN(3))
		}
		for _, offset := range k.scales {
			size := k.size * (0.5 + rnd.Float64())
			if kind == "F16" {
				size = k.size * rnd.NormFloat64()
			}
			binary.LittleEndian.PutUint16(block[offset:], half.ToF16(float32(size)))
		}
	}
	return weightfile.Tensor{Name: name, Type: k.number, Shape: []int{rows, cols}, Data: data}
}

// Ensure that weights from a GGUF file keep their type if the kernels that use them can read this type. All other
// weights must be rounded to F16.
func TestQuantizedWeights(t *testing.T) {
	level.SkipNormal(t)
	d := openDevice(t)
	const hidden, kv, vocab = 256, 64, 90
	rnd := rand.New(rand.NewPCG(3, 9))
	ones := func(name string) weightfile.Tensor {
		v := make([]float32, hidden)
		for i := range v {
			v[i] = 1 + float32(rnd.NormFloat64()*0.1)
		}
		return weightfile.F32(name, v, hidden)
	}
	file := weightfile.GGUF(map[string]any{"general.architecture": "llama", "llama.embedding_length": uint32(hidden), "llama.block_count": uint32(1),
		"llama.attention.head_count": uint32(4), "llama.attention.head_count_kv": uint32(1), "llama.feed_forward_length": uint32(hidden),
		"llama.context_length": uint32(64), "llama.rope.freq_base": float32(1000), "llama.attention.layer_norm_rms_epsilon": float32(1e-5)},
		quantized(rnd, "token_embd.weight", "Q8_0", vocab, hidden), quantized(rnd, "output.weight", "Q6_K", vocab, hidden), ones("output_norm.weight"),
		ones("blk.0.attn_norm.weight"), ones("blk.0.ffn_norm.weight"), quantized(rnd, "blk.0.attn_q.weight", "Q8_0", hidden, hidden),
		quantized(rnd, "blk.0.attn_k.weight", "Q4_0", kv, hidden), quantized(rnd, "blk.0.attn_v.weight", "Q5_0", kv, hidden),
		quantized(rnd, "blk.0.attn_output.weight", "Q4_K", hidden, hidden), quantized(rnd, "blk.0.ffn_gate.weight", "Q5_K", hidden, hidden),
		quantized(rnd, "blk.0.ffn_up.weight", "MXFP4", hidden, hidden), quantized(rnd, "blk.0.ffn_down.weight", "F16", hidden, hidden))
	open := gguf(t, file)
	requireLogitsOfCPU(t, d, open)
	_, w := load(t, d, open)
	require.Equal(t, []string{"weights in Q5_0 and embeddings in Q8_0 are kept as F16"}, w.Notes())
}

// Ensure that a decoding step runs as a graph if an earlier step had the same shape. Steps of 3 and 4 sequences must
// have the same shape. A graph must give logits with the same bits as a step without a graph.
func TestDecodingStepsAreGraphs(t *testing.T) {
	driver, d := openDriver(t)
	m, w := load(t, d, openSmall(small))
	r, reference := onGPU(t, m, w), onGPU(t, m, w)
	const length, sequences = 21, 4
	tables := [sequences][]int32{{1, 2}, {3, 4}, {5, 6}, {7, 8}}
	var want [sequences][][]float32
	for s := range want {
		want[s] = step(t, reference, chunk{randomTokens(uint64(s), length, m.VocabSize), 0, tables[s]})
	}
	const prompt = 14 // the second block begins on the way
	for s := range want {
		step(t, r, chunk{randomTokens(uint64(s), prompt, m.VocabSize), 0, tables[s]})
	}
	for p := prompt; p < length; p++ {
		var chunks []chunk
		for s := range 3 + p%2 {
			chunks = append(chunks, chunk{randomTokens(uint64(s), length, m.VocabSize)[p : p+1], p, tables[s]})
		}
		if p%2 == 0 { // what a step with 3 sequences leaves out
			step(t, r, chunk{randomTokens(3, length, m.VocabSize)[p : p+1], p, tables[3]})
		}
		for s, logits := range step(t, r, chunks...) {
			require.Equal(t, want[s][p], logits, "token %d of sequence %d", p, s)
		}
	}
	require.Equal(t, 2, driver.Calls("cuStreamBeginCapture_v2"), "4 sequences, and 1")
	require.Equal(t, length-prompt-1+3, driver.Calls("cuGraphLaunch"))
}

// Ensure that a layer of Llama takes few kernels in a decoding step.
func TestALayerTakesFewKernels(t *testing.T) {
	driver, d := openDriver(t)
	var kernels [2]int
	for i := range kernels {
		c := small
		c.NumLayers = i + 1
		m, w := load(t, d, openSmall(c))
		r := onGPU(t, m, w)
		step(t, r, chunk{randomTokens(1, 3, m.VocabSize), 0, []int32{1}})
		before := driver.Calls("cuLaunchKernel")
		step(t, r, chunk{randomTokens(2, 1, m.VocabSize), 3, []int32{1}})
		kernels[i] = driver.Calls("cuLaunchKernel") - before
	}
	perLayer := kernels[1] - kernels[0]
	require.LessOrEqual(t, 32*perLayer+2, 260, "Llama 3 8B")
}

// Ensure that the GPU rounds keys and values to the same types of 8 bits as the CPU. The logits of the GPU must be
// nearer to those of the CPU with the same type than to those of the CPU with another type of this test.
func TestKeysAndValuesOf8BitsAreThoseOfTheCPU(t *testing.T) {
	d := openDevice(t)
	open := openSmall(small)
	types := map[string]attention.DType{"auto": attention.F16, "fp8_e4m3": attention.E4M3, "fp8_e5m2": attention.E5M2}
	c := chunk{randomTokens(1, 40, small.VocabSize), 0, []int32{5, 3, 2}}
	onHost := map[string][][]float32{}
	for name, dtype := range types {
		onHost[name] = step(t, onCPU(t, open, dtype), c)
	}
	for name, dtype := range types {
		m, w := loadWith(t, d, open, name)
		s, err := w.KVShape(blockSize)
		require.NoError(t, err)
		require.Equal(t, dtype, s.DType)
		logits := step(t, onGPU(t, m, w), c)
		for other := range types {
			if other != name {
				require.Less(t, 2*distance(logits, onHost[name]), distance(logits, onHost[other]), "%s and %s", name, other)
			}
		}
	}
}

// distance returns the root of the sum of the squares of the differences.
func distance(a, b [][]float32) float64 {
	sum := 0.0
	for i := range a {
		for k, x := range a[i] {
			sum += float64(x-b[i][k]) * float64(x-b[i][k])
		}
	}
	return math.Sqrt(sum)
}

// Ensure that a token's logits have the same bits alone and beside other sequences, in one piece and in
// chunks, and in any blocks.
func TestLogitsDependOnTheSequenceAlone(t *testing.T) {
	d := openDevice(t)
	for _, tiny := range level.First(1, weightfile.Tinies()) {
		cache, ok := map[string]string{"llama": "fp8_e4m3", "gemma3": "auto"}[tiny.Name]
		if !ok {
			continue
		}
		m, w := loadWith(t, d, gguf(t, tiny.GGUF()), cache)
		r := onGPU(t, m, w)
		tokens, other := randomTokens(1, 35, m.VocabSize), randomTokens(2, 9, m.VocabSize)
		table := []int32{5, 3, 9}
		want := step(t, r, chunk{tokens, 0, table})
		var chunks [][]float32
		table = []int32{7, 2, 11}
		otherChunk := chunk{other, 0, []int32{8}}
		for _, ends := range [][2]int{{0, 17}, {17, 33}, {33, 34}, {34, 35}} {
			logits := step(t, r, otherChunk, chunk{tokens[ends[0]:ends[1]], ends[0], table})
			chunks = append(chunks, logits[len(other):]...)
		}
		require.Equal(t, want, chunks, tiny.Name)
	}
}
