package model_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/lora"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

func openAdapters(t testing.TB, paths ...string) (all []*lora.Adapter) {
	for _, path := range paths {
		a, err := lora.Open(path, 64)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, a.Close()) })
		all = append(all, a)
	}
	return all
}

func adaptedBench(t testing.TB, dir string, workers int, adapters ...string) *bench {
	pool := newPool(t, workers)
	m, err := model.OpenFolder(dir, pool, model.Part{}, model.WithAdapters(openAdapters(t, adapters...)...))
	require.NoError(t, err)
	return benchOf(t, m, pool)
}

// requireLogits requires the logits and states of the reference with and without its adapter, which is the model's first.
func requireLogits(t *testing.T, b *bench, ref *reference) {
	tokens, adapter, changed := randomTokens(1, 60), ref.adapter, 0.0
	var base [][]float32
	for _, number := range []int32{0, 1} {
		ref.keys, ref.adapter, b.adapters = nil, nil, []int32{number}
		if number == 1 {
			ref.adapter = adapter
		}
		logits := b.step(t, part{tokens: tokens, table: randomTable(1, 1, 8)})[0]
		for i, token := range tokens {
			for j, want := range ref.next(token) {
				require.InDelta(t, want, logits[i][j], 1e-3, "adapter %d, position %d, logit %d", number, i, j)
				if number == 1 {
					changed = max(changed, math.Abs(want-float64(base[i][j])))
				}
			}
			for j, want := range ref.state {
				require.InDelta(t, want, b.states[i*ref.hidden+j], 1e-3, "adapter %d, position %d, element %d of the state", number, i, j)
			}
		}
		base = logits
	}
	require.Greater(t, changed, 0.1, "the adapter changes nothing")
}

func TestLogitsWithAnAdapterAreThoseOfTheReference(t *testing.T) {
	for i, f := range append(families(), hybridFamilies()...) {
		if i%3 != 0 && !level.Long() {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			dir := f.write(t)
			a := madeAdapter{seed: 5, rank: 3 + i%6, kind: []string{"F32", "F16", "BF16"}[i%3]}
			adapter, matrices := a.folder(t, f.modules())
			f.ref.adapter = matrices
			requireLogits(t, adaptedBench(t, dir, 2, adapter), &f.ref)
		})
	}
}

func TestRanksAndScalesOfAnAdapter(t *testing.T) {
	layer := func(module string) bool { return strings.Contains(module, "layers.1.") }
	for _, test := range []struct {
		name string
		madeAdapter
	}{
		{"use_rslora", madeAdapter{config: map[string]any{"use_rslora": true}, scaleOf: func(string) float64 { return 12 / math.Sqrt(5) }}},
		{"patterns", madeAdapter{
			config: map[string]any{"rank_pattern": map[string]int{`layers\.1\..*`: 7}, "alpha_pattern": map[string]float64{"q_proj": 3, "up_proj": 20}},
			rankOf: func(module string) int {
				if layer(module) {
					return 7
				}
				return 5
			},
			scaleOf: func(module string) float64 {
				alpha, rank := 12.0, 5.0
				if strings.HasSuffix(module, "q_proj") {
					alpha = 3
				} else if strings.HasSuffix(module, "up_proj") {
					alpha = 20
				}
				if layer(module) {
					rank = 7
				}
				return alpha / rank
			}}},
		{"a pattern of the whole name", madeAdapter{config: map[string]any{"alpha_pattern": map[string]float64{"^model.layers.0.self_attn.q_proj": 30}},
			scaleOf: func(module string) float64 {
				if module == "model.layers.0.self_attn.q_proj" {
					return 6
				}
				return 12.0 / 5
			}}},
		{"one module", madeAdapter{without: func(module string) bool { return !strings.HasSuffix(module, "v_proj") }}},
		{"one layer", madeAdapter{config: map[string]any{"layers_to_transform": []int{0}}, without: layer}},
		{"a regular expression", madeAdapter{config: map[string]any{"target_modules": ".*(k_proj|down_proj)"},
			without: func(module string) bool {
				return !strings.HasSuffix(module, "k_proj") && !strings.HasSuffix(module, "down_proj")
			}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := families()[0]
			dir, a := f.write(t), test.madeAdapter
			a.seed, a.rank = 9, 5
			adapter, matrices := a.folder(t, f.modules())
			f.ref.adapter = matrices
			requireLogits(t, adaptedBench(t, dir, 1, adapter), &f.ref)
		})
	}
}

// ggufModules returns the matrices of attention and of MLPs in a GGUF file that adapters can change.
func ggufModules(g *weights.GGUF) map[string][2]int {
	all := map[string][2]int{}
	mixture := slices.ContainsFunc(g.Names(), func(name string) bool { return strings.Contains(name, "ffn_gate_inp.") })
	for _, name := range g.Names() {
		module, weight := strings.CutSuffix(name, ".weight")
		if mixture && strings.Contains(module, "ffn_") || strings.HasSuffix(module, "attn_k_b") || strings.HasSuffix(module, "attn_v_b") ||
			strings.HasSuffix(module, "attn_kv_b") {
			continue
		}
		if tensor := g.Get(name); weight && tensor.Rows > 1 && strings.HasPrefix(name, "blk.") {
			all[module] = [2]int{tensor.Rows, tensor.Cols}
		}
	}
	return all
}

// asPublished returns the matrices under the names that the modules have in a folder. If pairs is true, B of queries
// and keys has the order of rows of a folder.
func asPublished(m map[string]adapterMatrices, arch string, pairs bool, dim int) map[string]adapterMatrices {
	names, all := map[string]string{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "attn_qkv": "self_attn.qkv_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
		"ffn_down": "mlp.down_proj", "attn_q_a": "self_attn.q_a_proj", "attn_q_b": "self_attn.q_b_proj",
		"attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa"}, map[string]adapterMatrices{}
	if arch == "phi3" || arch == "glm4" {
		names["ffn_up"] = "mlp.gate_up_proj"
	}
	for module, one := range m {
		var layer int
		var name string
		fmt.Sscanf(module, "blk.%d.%s", &layer, &name)
		if pairs && (name == "attn_q" || name == "attn_k") {
			one.b = deinterleaved(one.b, one.rank, dim)
		}
		all[fmt.Sprintf("model.layers.%d.%s", layer, names[name])] = one
	}
	return all
}

func TestLogitsWithAGGUFAdapterAreThoseOfTheReference(t *testing.T) {
	for i, tiny := range level.First(4, tinies()) {
		t.Run(tiny.Name, func(t *testing.T) {
			data, arch := tiny.GGUF(), tiny.Meta["general.architecture"].(string)
			g := openGGUF(t, data)
			a := madeAdapter{seed: 4, rank: 2 + i%7, kind: []string{"F32", "F16", "BF16"}[i%3]}
			path, matrices := a.gguf(t, arch, ggufModules(g))
			ref := tinyReference(g, &tiny)
			ref.adapter = asPublished(matrices, arch, slices.Contains(interleavedGGUF, arch), weightfile.TinyDim)
			requireLogits(t, ggufBench(t, data, model.WithAdapters(openAdapters(t, path)...)), ref)
		})
	}
}

// Ensure that adapters fit a folder for embeddings, whose tensors have no prefix and no output matrix, whichever class
// they were trained for.
func TestStatesOfAModelForEmbeddingsWithAnAdapter(t *testing.T) {
	f := families()[0]
	dir, embeddings := f.write(t), t.TempDir()
	a := madeAdapter{seed: 5, rank: 4}
	adapter, _ := a.folder(t, f.modules())
	b := adaptedBench(t, dir, 1, adapter)
	b.adapters = []int32{1}
	tokens := randomTokens(1, 20)
	b.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)})

	f.save(t, embeddings, func(name string, shape []int) []weightfile.Tensor {
		if name == "lm_head.weight" {
			return nil
		}
		return []weightfile.Tensor{weightfile.F32(strings.TrimPrefix(name, "model."), f.ref.w[name], shape...)}
	})
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(embeddings, "config.json"), config, 0o644))
	modules := map[string][2]int{}
	for name, size := range f.modules() {
		modules[strings.TrimPrefix(name, "model.")] = size
	}
	short, _ := a.folder(t, modules)
	for _, adapter := range []string{adapter, short} {
		pool := newPool(t, 1)
		m, err := model.OpenFolder(embeddings, pool, model.Part{}, model.ForPooling, model.WithAdapters(openAdapters(t, adapter)...))
		require.NoError(t, err)
		got := benchOf(t, m, pool)
		for number, same := range []bool{false, true} {
			got.adapters = []int32{int32(number)}
			got.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)})
			require.Equal(t, same, slices.Equal(b.states, got.states), "adapter %d", number)
		}
	}
}

// Ensure that rounding of activations, for products with the model's weights, does not concern adapters.
func TestAdaptersBesideQuantizedWeights(t *testing.T) {
	for _, options := range [][]model.Option{nil, {model.Int8Activations}} {
		data := mixedGGUF("llama", nil)
		g := openGGUF(t, data)
		a := madeAdapter{seed: 4, rank: 16, kind: "F16"}
		path, _ := a.gguf(t, "llama", ggufModules(g))
		b := ggufBench(t, data, append(options, model.WithAdapters(openAdapters(t, path)...))...)
		without := ggufBench(t, data, options...)
		tokens := randomTokens(1, 40)
		alone := b.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)})
		require.Equal(t, without.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)}), alone)
		b.adapters = []int32{1}
		require.NotEqual(t, alone, b.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)}))
	}
}

// Ensure that a sequence has the same logits, to the bit, alone and beside others with any adapters, in any chunks, and
// with any number of threads.
func TestLogitsWithAdaptersDependOnTheSequenceAlone(t *testing.T) {
	for _, name := range []string{"Llama", "GPT-2", "Phi-3", "Gemma 2", "Granite 3"} {
		t.Run(name, func(t *testing.T) {
			all := families()
			f := &all[slices.IndexFunc(all, func(f family) bool { return f.name == name })]
			dir := f.write(t)
			var adapters []string
			for i := range uint64(3) {
				a := madeAdapter{seed: 20 + i, rank: 3 + 13*int(i)}
				path, _ := a.folder(t, f.modules())
				adapters = append(adapters, path)
			}
			one, three := adaptedBench(t, dir, 1, adapters...), adaptedBench(t, dir, 3, adapters...)
			three.runner.SetMLPRows(7)
			tokens := randomTokens(1, 60)
			var alone [][][]float32 // of each adapter
			for adapter := range int32(4) {
				one.adapters = []int32{adapter}
				alone = append(alone, one.step(t, part{tokens: tokens, table: randomTable(1, 0, 8)})[0])
			}
			require.Equal(t, newBench(t, dir, 2).step(t, part{tokens: tokens, table: randomTable(1, 0, 8)})[0], alone[0],
				"without an adapter")
			requireEachAlone(t, three, tokens, alone)
		})
	}
}

// requireEachAlone computes sequences with the same tokens and random adapters together, in random chunks, and requires
// the logits that single has for each adapter.
func requireEachAlone(t *testing.T, b *bench, tokens []int32, single [][][]float32) {
	rnd := rand.New(rand.NewPCG(8, 8))
	const sequences = 7
	var done [sequences]int
	var adapters [sequences]int32
	for s := range adapters {
		adapters[s] = int32(rnd.IntN(len(single)))
	}
	for {
		var parts []part
		var which []int
		b.adapters = nil
		for s := range sequences {
			if n := min(rnd.IntN(3)*(1+rnd.IntN(13)), len(tokens)-done[s]); n > 0 {
				parts = append(parts, part{tokens[done[s] : done[s]+n], done[s], randomTable(uint64(s), 8*s, 8)})
				b.adapters, which = append(b.adapters, adapters[s]), append(which, s)
			}
		}
		if len(parts) == 0 && done == [sequences]int{60, 60, 60, 60, 60, 60, 60} {
			return
		}
		if len(parts) == 0 {
			continue
		}
		got := b.step(t, parts...)
		for i, s := range which {
			n := len(parts[i].tokens)
			require.Equal(t, single[adapters[s]][done[s]:done[s]+n], got[i], "sequence %d with adapter %d from %d", s, adapters[s], done[s])
			done[s] += n
		}
	}
}

func TestPartsWithAdaptersComputeTheBitsOfTheWhole(t *testing.T) {
	for _, name := range []string{"Llama, 4 key heads", "Phi-3", "Qwen3-MoE"} {
		t.Run(name, func(t *testing.T) {
			all := families()
			f := &all[slices.IndexFunc(all, func(f family) bool { return f.name == name })]
			dir := f.write(t)
			one, two := madeAdapter{seed: 1, rank: 5}, madeAdapter{seed: 2, rank: 16, kind: "F16"}
			first, _ := one.folder(t, f.modules())
			second, _ := two.folder(t, f.modules())
			open := func(pool *parallel.Pool, p model.Part) (*model.Model, error) {
				return model.OpenFolder(dir, pool, p, model.WithAdapters(openAdapters(t, first, second)...))
			}
			for _, adapters := range [][]int32{{1, 2}, {0, 2}, {2, 2}} {
				whole := join(t, 1, open)
				for _, n := range []int{2, 4} {
					if f.ref.kvHeads%n != 0 {
						continue
					}
					many := join(t, n, open)
					for _, b := range append(many, whole...) {
						b.adapters = adapters
					}
					requireSameBits(t, whole, many)
				}
			}
		})
	}
}

func TestForwardWithAdaptersAllocatesNothing(t *testing.T) {
	f := families()[0]
	dir := f.write(t)
	a := madeAdapter{seed: 1, rank: 5}
	path, _ := a.folder(t, f.modules())
	b := adaptedBench(t, dir, 2, path, path)
	b.adapters = []int32{1, 0, 2}
	requireNoAllocations(t, b, 3)
}
