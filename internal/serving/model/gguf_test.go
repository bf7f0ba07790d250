package model_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"

	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/weightfile"
)

// ggufTypes has types of GGUF. number identifies a type in files. elements and bytes are the size of a block. Some
// numbers in a block, such as its scale, are in F16; f16Offsets has the offsets of these numbers in the block.
var ggufTypes = map[string]struct {
	number          uint32
	elements, bytes int
	f16Offsets      []int
}{
	"F32": {0, 1, 4, nil}, "F16": {1, 1, 2, []int{0}}, "BF16": {30, 1, 2, nil}, "Q4_0": {2, 32, 18, []int{0}},
	"Q8_0": {8, 32, 34, []int{0}}, "Q4_K": {12, 256, 144, []int{0, 2}}, "Q6_K": {14, 256, 210, []int{208}},
	"Q4_1": {3, 32, 20, []int{0, 2}}, "Q5_0": {6, 32, 22, []int{0}}, "Q5_1": {7, 32, 24, []int{0, 2}},
	"Q2_K": {10, 256, 84, []int{80, 82}}, "Q3_K": {11, 256, 110, []int{108}}, "Q5_K": {13, 256, 176, []int{0, 2}},
	"IQ4_NL": {20, 32, 18, []int{0}}, "IQ4_XS": {23, 256, 136, []int{0}}, "MXFP4": {39, 32, 17, nil},
}

func randomTensor(rnd *rand.Rand, name, kind string, rows, cols int) weightfile.Tensor {
	k := ggufTypes[kind]
	data := make([]byte, rows*cols/k.elements*k.bytes)
	for b := 0; b < len(data); b += k.bytes {
		block := data[b : b+k.bytes]
		switch kind {
		case "BF16":
			binary.LittleEndian.PutUint16(block, half.ToBF16(float32(rnd.NormFloat64()*0.1)))
			continue
		case "F16":
			binary.LittleEndian.PutUint16(block, half.ToF16(float32(rnd.NormFloat64()*0.1)))
			continue
		}
		for i := range block {
			block[i] = byte(rnd.Uint32())
		}
		if kind == "MXFP4" {
			block[0] = byte(121 + rnd.IntN(3)) // 2^-6 to 2^-4
		}
		size := map[string]float64{
			"Q4_0": 0.02, "Q8_0": 0.0015, "Q4_K": 0.0004, "Q6_K": 0.00005, "Q4_1": 0.01, "Q5_0": 0.01, "Q5_1": 0.005,
			"Q2_K": 0.005, "Q3_K": 0.002, "Q5_K": 0.0002, "IQ4_NL": 0.001, "IQ4_XS": 0.0001,
		}[kind]
		for _, offset := range k.f16Offsets {
			binary.LittleEndian.PutUint16(block[offset:], half.ToF16(float32(size*(0.5+rnd.Float64()))))
		}
	}
	return weightfile.Tensor{Name: name, Type: k.number, Shape: []int{rows, cols}, Data: data}
}

// Sizes of a model for which, in all types of GGUF, each row is a whole number of blocks.
const ggufHidden, ggufHeads, ggufKVHeads, ggufDim, ggufVocab, ggufLayers = 256, 4, 2, 64, 97, 2

type ggufFile struct {
	meta    map[string]any
	tensors []weightfile.Tensor
}

// mixedGGUF returns a file with tensors of all types of GGUF. If replace has the type t, tensors of type t have the
// type replace[t] instead.
func mixedGGUF(family string, replace map[string]string, changes ...func(*ggufFile)) []byte {
	const hidden, heads, kvHeads, dim = ggufHidden, ggufHeads, ggufKVHeads, ggufDim
	rnd := rand.New(rand.NewPCG(3, 9))
	random := func(name, kind string, rows, cols int) weightfile.Tensor {
		if other, ok := replace[kind]; ok {
			kind = other
		}
		return randomTensor(rnd, name, kind, rows, cols)
	}
	ones := func(name string, n int) weightfile.Tensor {
		v := make([]float32, n)
		for i := range v {
			v[i] = 1 + float32(rnd.NormFloat64()*0.1)
		}
		return weightfile.F32(name, v, n)
	}
	tensors := []weightfile.Tensor{
		random("token_embd.weight", "Q8_0", ggufVocab, hidden), random("output.weight", "Q6_K", ggufVocab, hidden),
		ones("output_norm.weight", hidden),
	}
	for l := range ggufLayers {
		prefix := fmt.Sprintf("blk.%d.", l)
		tensors = append(tensors, ones(prefix+"attn_norm.weight", hidden), ones(prefix+"ffn_norm.weight", hidden),
			random(prefix+"attn_q.weight", "Q8_0", heads*dim, hidden), random(prefix+"attn_k.weight", "Q4_0", kvHeads*dim, hidden),
			random(prefix+"attn_v.weight", "Q6_K", kvHeads*dim, hidden), random(prefix+"attn_output.weight", "Q4_K", hidden, heads*dim),
			random(prefix+"ffn_gate.weight", "Q4_K", hidden, hidden), random(prefix+"ffn_up.weight", "BF16", hidden, hidden),
			random(prefix+"ffn_down.weight", []string{"Q6_K", "F16"}[l], hidden, hidden))
		if family == "qwen2" {
			tensors = append(tensors, ones(prefix+"attn_q.bias", heads*dim), ones(prefix+"attn_k.bias", kvHeads*dim),
				ones(prefix+"attn_v.bias", kvHeads*dim))
		}
		if family == "qwen3" {
			tensors = append(tensors, ones(prefix+"attn_q_norm.weight", dim), ones(prefix+"attn_k_norm.weight", dim))
		}
	}
	f := &ggufFile{tensors: tensors, meta: map[string]any{
		"general.architecture": family, family + ".embedding_length": uint32(hidden), family +
			".block_count": uint32(ggufLayers),
		family + ".attention.head_count": uint32(heads), family + ".attention.head_count_kv": uint32(kvHeads),
		family + ".feed_forward_length": uint32(hidden), family + ".context_length": uint32(length), family +
			".rope.freq_base": float32(1000),
		family + ".attention.layer_norm_rms_epsilon": float32(1e-5), "tokenizer.ggml.eos_token_id": uint32(5),
	}}
	for _, change := range changes {
		change(f)
	}
	return weightfile.GGUF(f.meta, f.tensors...)
}

func openGGUF(t *testing.T, data []byte) *weights.GGUF {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	g, err := weights.OpenGGUF(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func ggufReference(g *weights.GGUF, family string) *reference {
	return &reference{
		family: family, layers: ggufLayers, heads: ggufHeads, kvHeads: ggufKVHeads, dim: ggufDim, hidden: ggufHidden,
		inter: ggufHidden, vocab: ggufVocab,
		eps: float64(float32(1e-5)), theta: 1000, w: published(g, family == "llama", ggufDim),
	}
}

// Ensure that a model with matrices of all types of GGUF has the same logits as the reference. The reference uses the
// dequantized weights.
func TestGGUFLogitsAreThoseOfTheReference(t *testing.T) {
	tests := []struct {
		family  string
		replace map[string]string
	}{
		{"llama", nil}, {"qwen2", nil}, {"qwen3", nil},
		{"llama", map[string]string{"Q8_0": "Q5_0", "Q6_K": "Q5_K", "Q4_0": "MXFP4", "Q4_K": "Q3_K"}},
		{"llama", map[string]string{"Q8_0": "Q5_1", "Q6_K": "IQ4_XS", "Q4_0": "IQ4_NL", "Q4_K": "Q2_K", "F16": "Q4_1"}},
	}
	for _, test := range tests {
		family := test.family
		t.Run(fmt.Sprint(family, test.replace), func(t *testing.T) {
			data := mixedGGUF(family, test.replace)
			maxError, _, size := logitErrors(t, ggufBench(t, data), ggufReference(openGGUF(t, data), family))
			require.Less(t, maxError, 2e-4)
			require.Greater(t, size, 0.5, "the logits are too small to show anything")
		})
	}
}

// logitErrors compares the logits of 30 tokens with the reference. It returns the largest error, the root mean
// square of the errors, and the root mean square of the logits.
func logitErrors(t *testing.T, b *bench, ref *reference) (maxError, mean, size float64) {
	tokens := randomTokens(1, 30)
	logits := b.step(t, part{tokens: tokens, table: randomTable(1, 1, 8)})[0]
	n := 0.0
	for i, token := range tokens {
		for j, want := range ref.next(token) {
			diff := math.Abs(want - float64(logits[i][j]))
			maxError, mean, size, n = max(maxError, diff), mean+diff*diff, size+want*want, n+1
		}
	}
	return maxError, math.Sqrt(mean / n), math.Sqrt(size / n)
}

// published returns the tensors of a GGUF file under their Hugging Face names. In GGUF files of Llama, the two rows
// that the rotary embedding rotates together are next to each other. If pairs is true, published puts these rows of
// queries and keys back into the order of Hugging Face.
func published(g *weights.GGUF, pairs bool, dim int) map[string][]float32 {
	parts := map[string]string{
		"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
		"attn_k": "self_attn.k_proj",
		"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
		"ffn_down": "mlp.down_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	}
	w := map[string][]float32{
		"model.embed_tokens.weight": g.Get("token_embd.weight").Vector(),
		"model.norm.weight":         g.Get("output_norm.weight").Vector(),
	}
	if head := g.Get("output.weight"); head != nil {
		w["lm_head.weight"] = head.Vector()
	}
	for l := 0; g.Get(fmt.Sprintf("blk.%d.attn_output.weight", l)) != nil; l++ {
		for source, target := range parts {
			for _, kind := range []string{".weight", ".bias"} {
				t := g.Get(fmt.Sprintf("blk.%d.%s%s", l, source, kind))
				if t == nil {
					continue
				}
				v := t.Vector()
				if pairs && (source == "attn_q" || source == "attn_k") {
					cols := t.Cols
					if kind == ".bias" {
						cols = 1
					}
					v = deinterleaved(v, cols, dim)
				}
				w[fmt.Sprintf("model.layers.%d.%s%s", l, target, kind)] = v
			}
		}
	}
	return w
}

func deinterleaved(v []float32, cols, dim int) []float32 {
	out := make([]float32, len(v))
	for row := range len(v) / cols {
		head, i := row/dim, row%dim
		index := head*dim + i/2 + i%2*dim/2
		copy(out[index*cols:(index+1)*cols], v[row*cols:(row+1)*cols])
	}
	return out
}
