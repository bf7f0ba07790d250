package model_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// A family is a small model with random weights. Its method write writes the files of the model. ref computes the
// logits that the package must compute from these files.
type family struct {
	name   string
	config map[string]any
	ref    reference
	tied   bool
}

const length = 256 // positions

func families() []family {
	llama := func(name, kind string, heads, kvHeads, dim int, extra map[string]any) family {
		config := map[string]any{
			"model_type": kind, "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": heads,
			"num_key_value_heads": kvHeads, "head_dim": dim, "intermediate_size": 80, "max_position_embeddings": length,
			"rms_norm_eps": 1e-5, "rope_theta": 1000.0, "hidden_act": "silu", "tie_word_embeddings": false,
			"eos_token_id": []int{2, 3},
		}
		maps.Copy(config, extra)
		return family{name: name, config: config, tied: config["tie_word_embeddings"] == true, ref: reference{
			family: kind, layers: 2, heads: heads, kvHeads: kvHeads, dim: dim, hidden: 48, inter: 80, vocab: 97, eps: 1e-5,
			theta: 1000,
		}}
	}
	scaled := llama("Llama 3.1", "llama", 4, 2, 16, map[string]any{"attention_bias": true, "rope_scaling": map[string]any{
		"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 64,
	}})
	scaled.ref.bias = true
	scaled.ref.scale = func(f float64) float64 {
		wave := 2 * math.Pi / f
		switch {
		case wave > 64:
			return f / 8
		case wave < 16:
			return f
		}
		s := (64/wave - 1) / 3
		return f/8*(1-s) + f*s
	}
	linear := llama("Llama, linear scaling", "llama", 2, 2, 24,
		map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2.0}})
	linear.ref.scale = func(f float64) float64 { return f / 2 }
	mistral := llama("Mistral", "mistral", 4, 1, 16, map[string]any{"sliding_window": 11})
	mistral.ref.window = 11
	learned := func(name string, config map[string]any) family {
		return family{name: name, config: config, tied: true, ref: reference{
			family: config["model_type"].(string), layers: 2, heads: 6, kvHeads: 6, dim: 8, hidden: 48, inter: 96, vocab: 97,
			eps: 1e-5,
		}}
	}
	return append([]family{
		llama("Llama", "llama", 6, 3, 8, nil), llama("Llama, 4 key heads", "llama", 8, 4, 16, nil), scaled, linear, mistral,
		llama("Qwen2", "qwen2", 4, 2, 16, map[string]any{"tie_word_embeddings": true}),
		llama("Qwen3", "qwen3", 4, 2, 32, nil),
		learned("GPT-2", map[string]any{
			"model_type": "gpt2", "vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_inner": 96,
			"n_positions": length,
		}),
		learned("OPT", map[string]any{
			"model_type": "opt", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
			"ffn_dim": 96, "max_position_embeddings": length, "activation_function": "relu", "do_layer_norm_before": true,
		}),
	}, newerFamilies(llama)...)
}

func (f *family) tensors() map[string][]int {
	r, all := &f.ref, map[string][]int{}
	if r.hybrid != nil {
		f.hybridTensors(all)
		return all
	}
	switch r.family {
	case "gpt2":
		all["transformer.wte.weight"], all["transformer.wpe.weight"] = []int{r.vocab, r.hidden}, []int{length, r.hidden}
		norm(all, "transformer.ln_f", r.hidden, true)
		for l := range r.layers {
			prefix := fmt.Sprintf("transformer.h.%d.", l)
			norm(all, prefix+"ln_1", r.hidden, true)
			norm(all, prefix+"ln_2", r.hidden, true)
			for name, shape := range map[string][]int{
				"attn.c_attn": {r.hidden, 3 * r.hidden}, "attn.c_proj": {r.hidden, r.hidden}, "mlp.c_fc": {r.hidden, r.inter},
				"mlp.c_proj": {r.inter, r.hidden},
			} {
				all[prefix+name+".weight"], all[prefix+name+".bias"] = shape, shape[1:]
			}
		}
	case "opt":
		all["model.decoder.embed_tokens.weight"], all["model.decoder.embed_positions.weight"] = []int{r.vocab, r.hidden},
			[]int{length + 2, r.hidden}
		norm(all, "model.decoder.final_layer_norm", r.hidden, true)
		for l := range r.layers {
			prefix := fmt.Sprintf("model.decoder.layers.%d.", l)
			norm(all, prefix+"self_attn_layer_norm", r.hidden, true)
			norm(all, prefix+"final_layer_norm", r.hidden, true)
			for _, name := range []string{"q_proj", "k_proj", "v_proj", "out_proj"} {
				matrix(all, prefix+"self_attn."+name, r.hidden, r.hidden, true)
			}
			matrix(all, prefix+"fc1", r.inter, r.hidden, true)
			matrix(all, prefix+"fc2", r.hidden, r.inter, true)
		}
	case "gemma4_text":
		f.gemma4Tensors(all)
	default:
		f.llamaTensors(all)
	}
	return all
}

func norm(all map[string][]int, name string, n int, bias bool) {
	all[name+".weight"] = []int{n}
	if bias {
		all[name+".bias"] = []int{n}
	}
}

func matrix(all map[string][]int, name string, outputs, inputs int, bias bool) {
	all[name+".weight"] = []int{outputs, inputs}
	if bias {
		all[name+".bias"] = []int{outputs}
	}
}

func (f *family) llamaTensors(all map[string][]int) {
	r := &f.ref
	p := &r.shape
	all["model.embed_tokens.weight"] = []int{r.vocab, r.hidden}
	if !f.tied {
		all["lm_head.weight"] = []int{r.vocab, r.hidden}
	}
	norm(all, "model.norm", r.hidden, false)
	for l := range r.layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		norm(all, p.named(prefix, "post_attention_layernorm"), r.hidden, false)
		if !p.postNorm || p.preNorm {
			norm(all, prefix+"input_layernorm", r.hidden, false)
		}
		if p.postNorm {
			norm(all, p.named(prefix, "post_feedforward_layernorm"), r.hidden, false)
		}
		if p.postNorm && p.preNorm {
			norm(all, p.named(prefix, "pre_feedforward_layernorm"), r.hidden, false)
		}
		switch {
		case r.family == "qwen3" || p.headNorm:
			norm(all, prefix+"self_attn.q_norm", r.dim, false)
			norm(all, prefix+"self_attn.k_norm", r.dim, false)
		case p.widthNorm:
			norm(all, prefix+"self_attn.q_norm", r.heads*r.dim, false)
			norm(all, prefix+"self_attn.k_norm", r.kvHeads*r.dim, false)
		}
		if p.latent != nil {
			f.latentTensors(all, prefix)
			f.feedForwardTensors(all, prefix, l)
			continue
		}
		bias := r.bias || strings.HasPrefix(r.family, "qwen2")
		if r.family == "phi3" {
			matrix(all, prefix+"self_attn.qkv_proj", (r.heads+2*r.kvHeads)*r.dim, r.hidden, false)
		} else {
			matrix(all, prefix+"self_attn.q_proj", r.heads*r.dim, r.hidden, bias)
			matrix(all, prefix+"self_attn.k_proj", r.kvHeads*r.dim, r.hidden, bias)
			matrix(all, prefix+"self_attn.v_proj", r.kvHeads*r.dim, r.hidden, bias)
		}
		matrix(all, prefix+"self_attn.o_proj", r.hidden, r.heads*r.dim, r.bias && !strings.HasPrefix(r.family, "glm4"))
		f.feedForwardTensors(all, prefix, l)
	}
}

func (f *family) feedForwardTensors(all map[string][]int, prefix string, l int) {
	r := &f.ref
	switch {
	case r.family == "llama4_text":
		f.llama4Tensors(all, prefix, l)
	case r.shape.experts > 0 && (r.shape.dense == nil || !r.shape.dense(l)):
		f.mixtureTensors(all, prefix)
	case r.family == "phi3" || r.family == "glm4":
		matrix(all, prefix+"mlp.gate_up_proj", 2*r.inter, r.hidden, false)
		matrix(all, prefix+"mlp.down_proj", r.hidden, r.inter, false)
	default:
		mlpTensors(all, r.hidden, r.inter, prefix+"mlp.gate_proj", prefix+"mlp.up_proj", prefix+"mlp.down_proj")
	}
}

func mlpTensors(all map[string][]int, hidden, inter int, gate, upProj, downProj string) {
	matrix(all, gate, inter, hidden, false)
	matrix(all, upProj, inter, hidden, false)
	matrix(all, downProj, hidden, inter, false)
}

func (f *family) mixtureTensors(all map[string][]int, prefix string) {
	r := &f.ref
	p := &r.shape
	matrix(all, prefix+p.router, p.experts, r.hidden, r.family == "gpt_oss")
	if r.family == "gpt_oss" {
		all[prefix+"self_attn.sinks"] = []int{r.heads}
		all[prefix+"mlp.experts.gate_up_proj"] = []int{p.experts, r.hidden, 2 * p.expertInter}
		all[prefix+"mlp.experts.gate_up_proj_bias"] = []int{p.experts, 2 * p.expertInter}
		all[prefix+"mlp.experts.down_proj"] = []int{p.experts, p.expertInter, r.hidden}
		all[prefix+"mlp.experts.down_proj_bias"] = []int{p.experts, r.hidden}
		return
	}
	for e := range p.experts {
		name := prefix + fmt.Sprintf(p.expertNames, e)
		mlpTensors(all, r.hidden, p.expertInter, name+p.expertMLP[0], name+p.expertMLP[1], name+p.expertMLP[2])
	}
	if p.routing != nil {
		if p.routing.correction {
			all[prefix+cmp.Or(p.routing.bias, correctionBias)] = []int{p.experts}
			if p.routing.bias != "" {
				all[prefix+p.routing.bias] = []int{1, p.experts} // ERNIE
			}
		}
		if shared := prefix + p.routing.shared; p.routing.shared != "" {
			mlpTensors(all, r.hidden, p.sharedInter, shared+".gate_proj", shared+".up_proj", shared+".down_proj")
		}
	} else if p.sharedInter > 0 {
		shared := prefix + "mlp.shared_expert"
		matrix(all, shared+"_gate", 1, r.hidden, false)
		mlpTensors(all, r.hidden, p.sharedInter, shared+".gate_proj", shared+".up_proj", shared+".down_proj")
	}
}

func (f *family) write(t testing.TB) string {
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(11, 13))
	f.ref.w = map[string][]float32{}
	f.save(t, dir, func(name string, shape []int) []weightfile.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(rnd.NormFloat64() * 0.2)
			if strings.Contains(name, "norm") || strings.Contains(name, "ln_") {
				values[i] += 1 - float32(f.ref.shape.offset)
			}
		}
		if f.ref.shape.gemma4 != nil && strings.HasSuffix(name, "q_norm.weight") {
			for i := range values {
				values[i] *= 0.3 // products of queries and keys are not scaled
			}
		}
		f.ref.w[name] = values
		return f.unchanged(name, shape)
	})
	f.ref.splitExperts()
	f.ref.renameLlama4()
	config, err := json.Marshal(f.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
	return dir
}

// save writes model.safetensors. It calls the given function for each tensor of the model, in the order of the names,
// and writes all tensors that the function returns.
func (f *family) save(t testing.TB, dir string, tensors func(name string, shape []int) []weightfile.Tensor) {
	var all []weightfile.Tensor
	shapes := f.tensors()
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		all = append(all, tensors(name, shapes[name])...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), weightfile.Safetensors(all...), 0o644))
}

func (f *family) unchanged(name string, shape []int) []weightfile.Tensor {
	return []weightfile.Tensor{weightfile.F32(name, f.ref.w[name], shape...)}
}

// A bench is a model with a store and a runner. Tests choose random blocks for its sequences.
const blockSize, numBlocks = 8, 128

func newBench(t testing.TB, dir string, workers int) *bench {
	pool := newPool(t, workers)
	m, err := model.OpenFolder(dir, pool, model.Part{})
	require.NoError(t, err)
	return benchOf(t, m, pool)
}

func newPool(t testing.TB, workers int) *parallel.Pool {
	pool, err := parallel.New(workers)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func benchOf(t testing.TB, m *model.Model, pool *parallel.Pool) *bench {
	return benchOfPart(t, m, pool, nil)
}

func benchOfPart(t testing.TB, m *model.Model, pool *parallel.Pool, group model.Group) *bench {
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(blockSize, attention.F32), Layers: m.NumLayers,
		NumBlocks: numBlocks}, pool)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	runner, err := model.NewRunner(m, store, pool, group)
	require.NoError(t, err)
	return &bench{m: m, store: store, runner: runner}
}

func TestLogitsAndStatesAreThoseOfTheReference(t *testing.T) {
	for _, f := range append(families(), hybridFamilies()...) {
		t.Run(f.name, func(t *testing.T) {
			b := newBench(t, f.write(t), 2)
			tokens := randomTokens(1, 60)
			logits := b.step(t, part{tokens: tokens, table: randomTable(1, 1, 8)})[0]
			for i, token := range tokens {
				for j, want := range f.ref.next(token) {
					require.InDelta(t, want, logits[i][j], 2e-4, "position %d, logit %d", i, j)
				}
				for j, want := range f.ref.state {
					require.InDelta(t, want, b.states[i*f.ref.hidden+j], 2e-4, "position %d, element %d of the state", i, j)
				}
			}
		})
	}
}

func TestLogitsAndStatesDependOnTheSequenceAlone(t *testing.T) {
	for i, f := range append(families(), hybridFamilies()...) {
		if i%2 != 0 && !level.Long() {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			dir := f.write(t)
			one, three := newBench(t, dir, 1), newBench(t, dir, 3)
			three.runner.SetMLPRows(7)
			tokens, other := randomTokens(1, 60), randomTokens(2, 60)
			want := one.step(t, part{tokens: tokens, table: randomTable(1, 1, 8)})[0]
			table, otherTable := randomTable(3, 10, 20), randomTable(4, 40, 20)
			rnd := rand.New(rand.NewPCG(8, 8))
			for pos := 0; pos < len(tokens); {
				n := min(1+rnd.IntN(13)*rnd.IntN(2), len(tokens)-pos)
				got := three.step(t, part{other[:pos+1], 0, otherTable}, part{tokens[pos : pos+n], pos, table})[1]
				require.Equal(t, want[pos:pos+n], got, "tokens from %d to %d", pos, pos+n)
				hidden := f.ref.hidden
				require.Equal(t, one.states[pos*hidden:(pos+n)*hidden], three.states[(pos+1)*hidden:], "states from %d to %d", pos, pos+n)
				pos += n
			}
			require.LessOrEqual(t, three.runner.MLPRows(), 7)
		})
	}
}
