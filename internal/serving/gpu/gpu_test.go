package gpu_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/cudatest"
)

const (
	blockSize = 16
	numBlocks = 24
	maxTokens = 64 // tokens of a batch, and rows of logits
)

func newPool(t *testing.T) *parallel.Pool {
	t.Helper()
	pool, err := parallel.New(1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func openDevice(t *testing.T) *gpu.Device {
	t.Helper()
	_, d := openDriver(t)
	return d
}

func openDriver(t *testing.T) (*cudatest.Driver, *gpu.Device) {
	t.Helper()
	driver := cudatest.Open(t)
	d, err := gpu.Open(driver.Path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return driver, d
}

// An opener loads a model.
type opener func(pool *parallel.Pool, options ...model.Option) (*model.Model, error)

func gguf(t *testing.T, file []byte) opener {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return func(pool *parallel.Pool, options ...model.Option) (*model.Model, error) {
		g, err := weights.OpenGGUF(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close()) }()
		return model.OpenGGUF(g, pool, model.Part{}, options...)
	}
}

// load puts a model on a GPU.
func load(t *testing.T, d *gpu.Device, open opener) (*model.Model, *gpu.Model) {
	t.Helper()
	return loadWith(t, d, open, "auto")
}

// loadWith loads a model on a GPU. The parameter cache is the type of keys and values, as in
// --kv-cache-dtype.
func loadWith(t *testing.T, d *gpu.Device, open opener, cache string) (*model.Model, *gpu.Model) {
	t.Helper()
	pool := newPool(t)
	var w *gpu.Model
	sent, all := 0, 0
	m, err := open(pool, model.LoadOn(func(c *model.Config, s *model.Sources) (err error) {
		if w, err = d.NewModel(c, gpu.CacheTypes[cache]); err != nil {
			return err
		}
		return w.Load(s, "auto", pool, func(layers, total int) {
			require.Equal(t, sent+1, layers)
			sent, all = layers, total
		})
	}))
	require.NoError(t, err)
	require.Equal(t, m.NumLayers, sent)
	require.Equal(t, sent, all)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return m, w
}

// A chunk has consecutive tokens of a sequence, the position of the first of these tokens, and the sequence's block
// table.
type chunk struct {
	tokens []int32
	start  int
	table  []int32
}

// batchOf returns a batch of chunks that asks for the logits of all tokens.
func batchOf(chunks ...chunk) *model.Batch {
	var b model.Batch
	b.QueryStart, b.TableStride = []int32{0}, 8
	for _, c := range chunks {
		for i, token := range c.tokens {
			p := c.start + i
			b.Logits = append(b.Logits, int32(len(b.Tokens)))
			b.Tokens, b.Positions = append(b.Tokens, token), append(b.Positions, int32(p))
			b.Slots = append(b.Slots, int64(c.table[p/blockSize])*blockSize+int64(p%blockSize))
		}
		b.QueryStart, b.SeqLens = append(b.QueryStart, int32(len(b.Tokens))), append(b.SeqLens, int32(c.start+len(c.tokens)))
		b.BlockTables = append(append(b.BlockTables, c.table...), make([]int32, b.TableStride-len(c.table))...)
	}
	return &b
}

// A computer computes the logits and states of batches, on the GPU or the CPU.
type computer interface {
	Forward(b *model.Batch) error
	ComputeLogits(b *model.Batch, start, end int) ([]float32, error)
	ComputeStates(b *model.Batch) ([]float32, error)
}

// step computes chunks, and returns the logits of all tokens.
func step(t *testing.T, r computer, chunks ...chunk) (logits [][]float32) {
	t.Helper()
	b := batchOf(chunks...)
	require.NoError(t, r.Forward(b))
	return logitsOf(t, r, b)
}

// logitsOf takes the logits of a batch.
func logitsOf(t *testing.T, r computer, b *model.Batch) (logits [][]float32) {
	t.Helper()
	all, err := r.ComputeLogits(b, 0, len(b.Logits))
	require.NoError(t, err)
	for n := len(all) / len(b.Logits); len(all) > 0; all = all[n:] {
		logits = append(logits, append([]float32(nil), all[:n]...))
	}
	return logits
}

// onCPU returns a runner on the CPU. The parameter cache is the type of keys and values.
func onCPU(t *testing.T, open opener, cache attention.DType) *model.Runner {
	t.Helper()
	pool := newPool(t)
	m, err := open(pool)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(blockSize, cache), Layers: m.NumLayers, NumBlocks: numBlocks}, pool)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	r, err := model.NewRunner(m, store, pool, nil)
	require.NoError(t, err)
	return r
}

// onGPU returns a runner of the GPU.
func onGPU(t *testing.T, m *model.Model, w *gpu.Model) engine.DeviceRunner {
	t.Helper()
	return onGPUOf(t, m, w, maxTokens)
}

// onGPUOf returns a runner of batches of at most the given number of tokens.
func onGPUOf(t *testing.T, m *model.Model, w *gpu.Model, tokens int) engine.DeviceRunner {
	t.Helper()
	s, err := w.KVShape(blockSize)
	require.NoError(t, err)
	c := engine.RunnerConfig{Store: kvstore.Config{Shape: s, Layers: m.NumLayers, NumBlocks: numBlocks}, MaxModelLen: 128, AskedModelLen: m.MaxModelLen,
		MaxNumSeqs: 4, MaxNumBatchedTokens: tokens}
	for i := range m.NumLayers {
		c.Places = append(c.Places, model.Place{Layer: i})
	}
	r, err := w.NewRunner(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func randomTokens(seed uint64, n, vocab int) []int32 {
	rnd := rand.New(rand.NewPCG(seed, 7))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(rnd.IntN(vocab))
	}
	return tokens
}
