package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/testkit/cudatest"
)

// Ensure that the number of bytes that KVCacheBytes returns is available for keys and values. Beside them, the
// largest batches and the compiled kernels must still fit into the GPU's memory.
func TestTheLargestBatchesFitBesideKeysAndValues(t *testing.T) {
	driver := cudatest.Open(t)
	driver.Set(t, "memory", 48<<20)
	driver.Set(t, "module_memory", 1<<20)
	d, err := gpu.Open(driver.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	m, w := load(t, d, openSmall(small))
	c := engine.RunnerConfig{MaxModelLen: 128, MaxNumSeqs: 4, MaxNumBatchedTokens: maxTokens}
	before := driver.Allocated()
	shape, err := w.KVShape(blockSize)
	require.NoError(t, err)
	b, err := w.NewBudget(0, c)
	require.NoError(t, err)
	bytes := b.KVCacheBytes(b.Left(1, c), m.NumLayers*shape.BlockBytes()/blockSize)
	require.Equal(t, before, driver.Allocated())
	require.Greater(t, bytes, 24<<20)

	c.Store = kvstore.Config{Shape: shape, Layers: m.NumLayers}
	c.Store.NumBlocks = c.Store.BlocksIn(int64(bytes))
	c.Places, c.AskedModelLen = make([]model.Place, m.NumLayers), c.MaxModelLen
	r, err := w.NewRunner(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	step(t, r, chunk{randomTokens(1, maxTokens, m.VocabSize), 0, []int32{1, 2, 3, 4}})
	for p := range 3 {
		step(t, r, chunk{[]int32{1}, maxTokens + p, []int32{1, 2, 3, 4, 5}})
	}

	_, err = w.NewBudget(0, c)
	require.ErrorIs(t, err, cuda.ErrOutOfMemory)
	require.ErrorContains(t, err, "GPU 0 (Emulated GPU 0): a batch cannot be computed: ")
}
