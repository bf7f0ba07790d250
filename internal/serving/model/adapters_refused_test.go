package model_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
)

func TestAdaptersThatDoNotFitTheModelAreRefused(t *testing.T) {
	families := families()
	llama, mixture := &families[0], newerFamily(t, "Qwen2-MoE")
	query := "model.layers.0.self_attn.q_proj"
	for _, test := range []struct {
		name    string
		family  *family
		modules map[string][2]int
		config  map[string]any
		want    string
	}{
		{"inputs", llama, map[string][2]int{query: {48, 40}}, nil, `.lora_A.weight" has 40 inputs and "base_model.model.` + query +
			`.lora_B.weight" has 48 outputs; the model's matrix has 48 and 48`},
		{"outputs", llama, map[string][2]int{query: {24, 48}}, nil, "has 24 outputs"},
		{"a layer", llama, map[string][2]int{"model.layers.2.self_attn.q_proj": {48, 48}}, nil,
			`changes "model.layers.2.self_attn.q_proj", which is not in the model`},
		{"a module", llama, map[string][2]int{"model.layers.0.self_attn.qkv_proj": {96, 48}}, nil, "which is not in the model"},
		{"embeddings", llama, map[string][2]int{"model.embed_tokens": {48, 97}}, nil, "adapters of embeddings and of the output matrix"},
		{"the head", llama, map[string][2]int{"lm_head": {97, 48}}, nil, "adapters of embeddings and of the output matrix"},
		{"a target", llama, map[string][2]int{query: {48, 48}}, map[string]any{"target_modules": []string{"w1", "q_proj"}},
			`has "w1", which is not in the model`},
		{"a target without tensors", llama, map[string][2]int{query: {48, 48}}, nil,
			`lacks the tensors of "model.layers.1.self_attn.q_proj", which is in its target_modules`},
		{"experts", mixture, map[string][2]int{"model.layers.0.mlp.experts.0.up_proj": {80, 48}}, nil, "adapters of experts and routers"},
		{"the shared expert", mixture, map[string][2]int{"model.layers.0.mlp.shared_expert.up_proj": {80, 48}}, nil, "adapters of experts and routers"},
		{"the router", mixture, map[string][2]int{"model.layers.0.mlp.gate": {5, 48}}, nil, "adapters of experts and routers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := madeAdapter{seed: 1, rank: 4, config: test.config}
			path, _ := a.folder(t, test.modules)
			_, err := model.OpenFolder(test.family.write(t), newPool(t, 1), model.Part{}, model.WithAdapters(openAdapters(t, path)...))
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, path)
		})
	}
}

func TestAdaptersOfAnotherFormatThanTheModelAreRefused(t *testing.T) {
	f := families()[0]
	a := madeAdapter{seed: 1, rank: 4}
	folder, _ := a.folder(t, f.modules())
	file, _ := a.gguf(t, "qwen2", map[string][2]int{"blk.0.attn_q": {256, 256}})
	g := openGGUF(t, mixedGGUF("llama", nil))
	_, err := model.OpenFolder(f.write(t), newPool(t, 1), model.Part{}, model.WithAdapters(openAdapters(t, file)...))
	require.ErrorContains(t, err, "is a GGUF file and the model is not; give the adapter's folder")
	_, err = model.OpenGGUF(g, newPool(t, 1), model.Part{}, model.WithAdapters(openAdapters(t, folder)...))
	require.ErrorContains(t, err, "is a folder and the model a GGUF file; convert the adapter")
	_, err = model.OpenGGUF(g, newPool(t, 1), model.Part{}, model.WithAdapters(openAdapters(t, file)...))
	require.ErrorContains(t, err, `is for models of the architecture "qwen2"; this one is "llama"`)
}

// Ensure that a device, which does not apply adapters, gets no model with adapters.
func TestAdaptersAreNotLoadedOnADevice(t *testing.T) {
	f := families()[0]
	a := madeAdapter{seed: 1, rank: 4}
	path, _ := a.folder(t, f.modules())
	load := model.LoadOn(func(*model.Config, *model.Sources) error {
		t.Error("the model is loaded")
		return nil
	})
	_, err := model.OpenFolder(f.write(t), newPool(t, 1), model.Part{}, load, model.WithAdapters(openAdapters(t, path)...))
	require.ErrorContains(t, err, "adapters (LoRA) are applied only on the CPU")
}

// The prefix of names in an adapter depends on the class that was trained.
func TestAdaptersWithAnotherPrefix(t *testing.T) {
	f := families()[0]
	dir := f.write(t)
	a := madeAdapter{seed: 1, rank: 4}
	modules := f.modules()
	_, matrices := a.folder(t, modules)
	renamed := map[string][2]int{}
	for name, shape := range modules {
		renamed[strings.Replace(name, "model.", "model.language_model.", 1)] = shape
	}
	path, _ := a.folder(t, renamed)
	f.ref.adapter = matrices
	requireLogits(t, adaptedBench(t, dir, 1, path), &f.ref)
}

func TestBatchesWithAdaptersThatDoNotExistAreRefused(t *testing.T) {
	f := families()[0]
	b := newBench(t, f.write(t), 1)
	for _, adapters := range [][]int32{{1}, {-1}, {0, 0}} {
		batch := decodeBatch(1)
		batch.Adapters = adapters
		for i := range batch.BlockTables {
			batch.BlockTables[i] %= numBlocks
		}
		batch.Positions[0], batch.SeqLens[0], batch.Slots[0] = 200, 201, 0
		require.ErrorIs(t, b.runner.Forward(batch), model.ErrBatch, "%v", adapters)
	}
}
