package main

import (
	"llmmemory/internal/bench/fatal"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// blockSize is the number of tokens in a block of the store.
const blockSize = 16

// withRunner opens a model and a store for keys and values, calls run with a runner for them, and closes both. It
// returns an error if the model does not support the options.
func withRunner(path string, blocks int, kv attention.DType, options []model.Option,
	run func(*model.Model, *model.Runner)) error {
	pool := fatal.Get(parallel.New(1))
	defer pool.Close()
	g := fatal.Get(weights.OpenGGUF(path))
	defer g.Close()
	m, err := model.OpenGGUF(g, pool, model.Part{}, options...)
	if err != nil {
		return err
	}
	defer m.Close()
	store := fatal.Get(kvstore.New(kvstore.Config{Shape: m.KVShape(blockSize, kv), Layers: m.NumLayers, NumBlocks: blocks}, pool))
	defer store.Close()
	run(m, fatal.Get(model.NewRunner(m, store, pool, nil)))
	return nil
}

// prompt returns a batch of n tokens, with logits after each. Its keys and values go to consecutive blocks.
func prompt(n, vocab int) *model.Batch {
	b := &model.Batch{QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(n)}}
	for i := range n {
		b.Tokens, b.Positions = append(b.Tokens, int32(i*37%vocab)), append(b.Positions, int32(i))
		b.Slots, b.Logits = append(b.Slots, int64(i)), append(b.Logits, int32(i))
	}
	b.Blocks.TableStride = (n + blockSize - 1) / blockSize
	for i := range b.TableStride {
		b.BlockTables = append(b.BlockTables, int32(i))
	}
	return b
}
