package model_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/benchtest"
	"llmmemory/internal/testkit/weightfile"
)

// The scripts in internal/bench set these flags.
var (
	measured    = flag.String("model", "", "GGUF `file` that BenchmarkForward measures instead of a random Llama of 134 M parameters")
	activations = flag.String("activations", "f32", "type to which BenchmarkForward rounds activations: f32, bf16 or int8")
	models      = flag.String("models", "", "`folder` for the models that TestWriteModels writes")
)

// BenchmarkForward measures a prompt of 512 tokens, and decoding with 1, 16 and 32 sequences that share 512 tokens, on
// as many threads as -cpu says. It reports the speed of the fastest round. bench/llamacpp/bench.cpp measures llama.cpp in
// the same way.
//
// With -activations int8, the activations that are multiplied by quantized weights are rounded to 8 bits. llama.cpp also
// does this if the weights are in Q8_0 or Q4_0. With bf16, F16 weights are rounded to BF16, and so are the activations
// that are multiplied by F16 or BF16 weights.
func BenchmarkForward(b *testing.B) {
	options, ok := map[string][]model.Option{"f32": nil, "bf16": {model.BF16Activations}, "int8": {model.Int8Activations}}[*activations]
	require.True(b, ok, "no activations %q: want f32, bf16 or int8", *activations)
	threads := runtime.GOMAXPROCS(0)
	pool, err := parallel.New(threads)
	require.NoError(b, err)
	defer pool.Close()
	m := benchModel(b, pool, options...)
	defer m.Close()
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(16, attention.F16), Layers: m.NumLayers, NumBlocks: 256}, pool)
	require.NoError(b, err)
	defer store.Close()
	r, err := model.NewRunner(m, store, pool, nil)
	require.NoError(b, err)
	measure := func(name string, batch *model.Batch) {
		b.Run(name, func(b *testing.B) {
			times := benchtest.ByTurns(b, threads, func(int) {
				require.NoError(b, r.Forward(batch))
				_, err := r.ComputeLogits(batch, 0, len(batch.Logits))
				require.NoError(b, err)
			})
			b.ReportMetric(float64(len(batch.Tokens))/slices.Min(times[0]).Seconds(), "tokens/s")
		})
	}
	measure("prefill=512", prefillBatch(512))
	for _, n := range []int{1, 16, 32} {
		measure(fmt.Sprintf("decode=%d", n), decodeBatch(n))
	}
}

// TestWriteModels writes models with random weights to the folder -models: Llamas of about 25 and 134 million parameters,
// each in three types, and a tiny model of each family.
func TestWriteModels(t *testing.T) {
	if *models == "" {
		t.Skip("no -models")
	}
	require.NoError(t, os.MkdirAll(*models, 0o755))
	t.Run("llamas", func(t *testing.T) {
		for name, l := range map[string]weightfile.Llama{
			"25m":  {Hidden: 288, Layers: 6, Heads: 6, KVHeads: 6, Inter: 768, Vocab: 32000, Context: 4096},
			"134m": {Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, Inter: 2048, Vocab: 32000, Context: 4096},
		} {
			for _, l.Type = range []string{"F16", "Q8_0", "Q4_0"} {
				require.NoError(t, weightfile.LlamaFile(filepath.Join(*models, fmt.Sprintf("%s-%s.gguf", name, l.Type)), l))
			}
		}
	})
	t.Run("tiny", func(t *testing.T) {
		for _, m := range weightfile.Tinies() {
			require.NoError(t, os.WriteFile(filepath.Join(*models, m.Name+".gguf"), m.GGUF(), 0o644))
		}
	})
}
