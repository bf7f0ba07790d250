package main

import (
	"errors"
	"slices"

	"llmmemory/internal/bench/fatal"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// onGPU is like logProbs, on the first GPU of a driver. dtype is the type of activations, keys and values.
func onGPU(driver, path string, n int, dtype string) (p []float64, err error) {
	d, pool, g := fatal.Get(gpu.Open(driver, 0)), fatal.Get(parallel.New(1)), fatal.Get(weights.OpenGGUF(path))
	defer func() {
		pool.Close()
		err = errors.Join(err, g.Close(), d.Close())
	}()
	var loaded *gpu.Model
	m, err := model.OpenGGUF(g, pool, model.Part{}, model.LoadOn(func(c *model.Config, s *model.Sources) (err error) {
		if loaded, err = d.NewModel(c, gpu.CacheTypes["auto"]); err != nil {
			return err
		}
		return loaded.Load(s, dtype, pool, func(int, int) {})
	}))
	if err != nil {
		return nil, err
	}
	c := engine.RunnerConfig{Store: kvstore.Config{Layers: m.NumLayers, NumBlocks: 1 + n/blockSize}, MaxModelLen: n, AskedModelLen: n, MaxNumSeqs: 1,
		MaxNumBatchedTokens: n}
	for i := range m.NumLayers {
		c.Places = append(c.Places, model.Place{Layer: i})
	}
	c.Store.Shape = fatal.Get(loaded.KVShape(blockSize))
	r := fatal.Get(loaded.NewRunner(c))
	b := prompt(n, m.VocabSize)
	fatal.If(r.Forward(b))
	for start := 0; start < n; start += c.MaxLogits() {
		for _, v := range fatal.Get(r.ComputeLogits(b, start, min(start+c.MaxLogits(), n))) {
			p = append(p, float64(v))
		}
	}
	for row := range slices.Chunk(p, m.VocabSize) {
		normalize(row)
	}
	return p, errors.Join(r.Close(), loaded.Close(), m.Close())
}
