package model_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	pack "llmmemory/internal/model/matrix"

	"llmmemory/internal/model"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/parallel"
	"llmmemory/internal/testkit/weightfile"
)

// The types of GGUF: number, elements and bytes of a block, and where its scales
// lie.
var ggufTypes = map[string]struct {
	number          uint32
	elements, bytes int
	halves          []int
}{
	"F32": {0, 1, 4, nil}, "F16": {1, 1, 2, []int{0}}, "BF16": {30, 1, 2, nil}, "Q4_0": {2, 32, 18, []int{0}},
	"Q8_0": {8, 32, 34, []int{0}}, "Q4_K": {12, 256, 144, []int{0, 2}}, "Q6_K": {14, 256, 210, []int{208}},
}

// randomTensor has blocks of random bytes with scales that make weights of a
// useful size.
func randomTensor(rnd *rand.Rand, name, kind string, rows, cols int) weightfile.Tensor {
	k := ggufTypes[kind]
	data := make([]byte, rows*cols/k.elements*k.bytes)
	for b := 0; b < len(data); b += k.bytes {
		block := data[b : b+k.bytes]
		switch kind {
		case "BF16":
			binary.LittleEndian.PutUint16(block, pack.ToBF16(float32(rnd.NormFloat64()*0.1)))
			continue
		case "F16":
			binary.LittleEndian.PutUint16(block, pack.ToF16(float32(rnd.NormFloat64()*0.1)))
			continue
		}
		for i := range block {
			block[i] = byte(rnd.Uint32())
		}
		size := map[string]float64{"Q4_0": 0.02, "Q8_0": 0.0015, "Q4_K": 0.0004, "Q6_K": 0.00005}[kind]
		for _, at := range k.halves {
			binary.LittleEndian.PutUint16(block[at:], pack.ToF16(float32(size*(0.5+rnd.Float64()))))
		}
	}
	return weightfile.Tensor{Name: name, Type: k.number, Shape: []int{rows, cols}, Data: data}
}

// A model with matrices of all the types of GGUF has the logits of the reference
// over the weights that the types stand for. Scales of Q4_K and Q6_K are rounded
// to 11 bits when they are packed.
func TestGGUFLogitsAreThoseOfTheReference(t *testing.T) {
	const hidden, heads, kvHeads, dim, vocab, layers = 256, 4, 2, 64, 97, 2
	for _, family := range []string{"llama", "qwen2", "qwen3"} {
		t.Run(family, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 9))
			ones := func(name string, n int) weightfile.Tensor {
				v := make([]float32, n)
				for i := range v {
					v[i] = 1 + float32(rnd.NormFloat64()*0.1)
				}
				return weightfile.F32(name, v, n)
			}
			tensors := []weightfile.Tensor{
				randomTensor(rnd, "token_embd.weight", "Q8_0", vocab, hidden), randomTensor(rnd, "output.weight", "Q6_K", vocab, hidden), ones("output_norm.weight", hidden),
			}
			for l := range layers {
				at := fmt.Sprintf("blk.%d.", l)
				tensors = append(tensors, ones(at+"attn_norm.weight", hidden), ones(at+"ffn_norm.weight", hidden),
					randomTensor(rnd, at+"attn_q.weight", "Q8_0", heads*dim, hidden), randomTensor(rnd, at+"attn_k.weight", "Q4_0", kvHeads*dim, hidden),
					randomTensor(rnd, at+"attn_v.weight", "Q6_K", kvHeads*dim, hidden), randomTensor(rnd, at+"attn_output.weight", "Q4_K", hidden, heads*dim),
					randomTensor(rnd, at+"ffn_gate.weight", "Q4_K", hidden, hidden), randomTensor(rnd, at+"ffn_up.weight", "BF16", hidden, hidden),
					randomTensor(rnd, at+"ffn_down.weight", []string{"Q6_K", "F16"}[l], hidden, hidden))
				if family == "qwen2" {
					tensors = append(tensors, ones(at+"attn_q.bias", heads*dim), ones(at+"attn_k.bias", kvHeads*dim), ones(at+"attn_v.bias", kvHeads*dim))
				}
				if family == "qwen3" {
					tensors = append(tensors, ones(at+"attn_q_norm.weight", dim), ones(at+"attn_k_norm.weight", dim))
				}
			}
			path := filepath.Join(t.TempDir(), "m.gguf")
			require.NoError(t, os.WriteFile(path, weightfile.GGUF(map[string]any{
				"general.architecture": family, family + ".embedding_length": uint32(hidden), family + ".block_count": uint32(layers),
				family + ".attention.head_count": uint32(heads), family + ".attention.head_count_kv": uint32(kvHeads),
				family + ".feed_forward_length": uint32(hidden), family + ".context_length": uint32(length), family + ".rope.freq_base": float32(1000),
				family + ".attention.layer_norm_rms_epsilon": float32(1e-5), "tokenizer.ggml.eos_token_id": uint32(5),
			}, tensors...), 0o644))
			g, err := weights.OpenGGUF(path)
			require.NoError(t, err)
			defer g.Close()
			pool, err := parallel.New(2)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			ref := reference{
				family: family, layers: layers, heads: heads, kvHeads: kvHeads, dim: dim, hidden: hidden, inter: hidden, vocab: vocab,
				eps: float64(float32(1e-5)), theta: 1000, w: published(g, family == "llama", dim),
			}
			m, err := model.OpenGGUF(g, pool, model.Part{})
			require.NoError(t, err)
			require.Equal(t, []int32{5}, m.End)
			b := benchOf(t, m, pool)
			tokens := randomTokens(1, 30)
			logits := b.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)})[0]
			size, n := 0.0, 0.0
			for i, token := range tokens {
				for j, want := range ref.next(token) {
					require.InDelta(t, want, logits[i][j], 0.02, "position %d, logit %d", i, j)
					size, n = size+want*want, n+1
				}
			}
			require.Greater(t, size/n, 0.25, "the logits are too small to show anything")
		})
	}
}

// quantizedLlama is a Llama with weights of several types.
func quantizedLlama() []byte {
	const hidden, vocab = 256, 97
	rnd := rand.New(rand.NewPCG(5, 9))
	ones := make([]float32, hidden)
	for i := range ones {
		ones[i] = 1
	}
	norm := func(name string) weightfile.Tensor { return weightfile.F32(name, ones, hidden) }
	matrix := func(name, kind string, out int) weightfile.Tensor { return randomTensor(rnd, name, kind, out, hidden) }
	return weightfile.GGUF(map[string]any{
		"general.architecture": "llama", "llama.embedding_length": uint32(hidden), "llama.block_count": uint32(1),
		"llama.attention.head_count": uint32(4), "llama.attention.head_count_kv": uint32(2), "llama.feed_forward_length": uint32(hidden),
		"llama.context_length": uint32(length), "llama.rope.freq_base": float32(1000), "llama.attention.layer_norm_rms_epsilon": float32(1e-5),
	}, matrix("token_embd.weight", "Q4_K", vocab), norm("output_norm.weight"), // the embeddings are the head, too
		norm("blk.0.attn_norm.weight"), norm("blk.0.ffn_norm.weight"),
		matrix("blk.0.attn_q.weight", "Q8_0", hidden), matrix("blk.0.attn_k.weight", "Q4_0", hidden/2), matrix("blk.0.attn_v.weight", "Q6_K", hidden/2),
		matrix("blk.0.attn_output.weight", "Q4_K", hidden), matrix("blk.0.ffn_gate.weight", "Q4_K", hidden),
		matrix("blk.0.ffn_up.weight", "BF16", hidden), matrix("blk.0.ffn_down.weight", "Q6_K", hidden))
}

// published gives the tensors the names of a folder. The rows of queries and keys
// of GGUF's Llama are in another order: pairs lie side by side.
func published(g *weights.GGUF, pairs bool, dim int) map[string][]float32 {
	parts := map[string]string{
		"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
		"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
		"ffn_down": "mlp.down_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	}
	w := map[string][]float32{
		"model.embed_tokens.weight": g.Get("token_embd.weight").Vector(), "lm_head.weight": g.Get("output.weight").Vector(),
		"model.norm.weight": g.Get("output_norm.weight").Vector(),
	}
	for l := 0; g.Get(fmt.Sprintf("blk.%d.attn_q.weight", l)) != nil; l++ {
		for from, to := range parts {
			for _, kind := range []string{".weight", ".bias"} {
				t := g.Get(fmt.Sprintf("blk.%d.%s%s", l, from, kind))
				if t == nil {
					continue
				}
				v := t.Vector()
				if pairs && (from == "attn_q" || from == "attn_k") {
					v = apart(v, t.Cols, dim)
				}
				w[fmt.Sprintf("model.layers.%d.%s%s", l, to, kind)] = v
			}
		}
	}
	return w
}

// apart puts row 2i of each head at i and row 2i+1 at i + dim/2.
func apart(v []float32, cols, dim int) []float32 {
	out := make([]float32, len(v))
	for row := range len(v) / cols {
		head, i := row/dim, row%dim
		to := head*dim + i/2 + i%2*dim/2
		copy(out[to*cols:(to+1)*cols], v[row*cols:(row+1)*cols])
	}
	return out
}
