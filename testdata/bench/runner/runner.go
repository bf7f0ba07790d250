// Package runner opens GGUF models to run them without an engine.
package runner

import (
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/testdata/bench/fatal"
)

// BlockSize is the number of tokens in a block of the store.
const BlockSize = 16

// With opens a model and a store for keys and values, calls run with a runner for them, and closes both. It
// returns an error if the model does not support the options.
func With(path string, threads, blocks int, kv attention.DType, options []model.Option,
	run func(*model.Model, *model.Runner)) error {
	pool := fatal.Get(parallel.New(threads))
	defer pool.Close()
	g := fatal.Get(weights.OpenGGUF(path))
	defer g.Close()
	m, err := model.OpenGGUF(g, pool, model.Part{}, options...)
	if err != nil {
		return err
	}
	defer m.Close()
	store := fatal.Get(kvstore.New(kvstore.Config{Shape: m.KVShape(BlockSize, kv), Layers: m.NumLayers, NumBlocks: blocks}, pool))
	defer store.Close()
	run(m, fatal.Get(model.NewRunner(m, store, pool, nil)))
	return nil
}

// Prefill returns a batch with one prompt. Its keys and values go to consecutive blocks, beginning with block
// firstBlock.
func Prefill(tokens []int32, firstBlock int) *model.Batch {
	n := len(tokens)
	b := &model.Batch{Tokens: tokens, QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(n)}}
	for i := range n {
		b.Positions, b.Slots = append(b.Positions, int32(i)), append(b.Slots, int64(firstBlock*BlockSize+i))
	}
	b.Blocks.TableStride = (n + BlockSize - 1) / BlockSize
	for i := range b.TableStride {
		b.BlockTables = append(b.BlockTables, int32(firstBlock+i))
	}
	return b
}
