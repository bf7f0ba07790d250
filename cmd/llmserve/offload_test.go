package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// longQuestion returns a request whose prompt has many blocks. The answer must repeat a code from the first block,
// so a wrong first block would change it.
func longQuestion(t *testing.T, model string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": "The code is 7Kx-31. " + strings.Repeat("Other words that say nothing. ", 20) + "The code is",
		"max_tokens": 8, "temperature": 0, "logprobs": 2,
	})
	require.NoError(t, err)
	return string(body)
}

// A completion is an answer, with the number of prompt tokens that were found in the cache.
type completion struct {
	Choices json.RawMessage
	Usage   struct {
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func (s *server) ask(t *testing.T, body string) completion {
	t.Helper()
	var a completion
	r := s.post(t, "/completions", body)
	require.Equal(t, 200, r.StatusCode)
	require.NoError(t, json.Unmarshal([]byte(text(t, r)), &a))
	return a
}

func (s *server) storesAll(t *testing.T) {
	s.waitForMetric(t, `vllm:kv_offload_total_bytes\{.*CPU_to_tier.*\} [1-9]`)
	s.waitForMetric(t, `llmserve:kv_offload_queued_blocks\{.*\} 0\n`)
	time.Sleep(10 * time.Millisecond) // the queue is empty before its last block has been written
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func TestKeysAndValuesOutliveAServerThatIsKilled(t *testing.T) {
	question := longQuestion(t, "demo")
	plain := serveDemo(t).ask(t, question)
	dir := filepath.Join(t.TempDir(), "tier")
	first := serveDemo(t, "--kv-offload-dir", dir)
	require.Equal(t, plain, first.ask(t, question))
	first.storesAll(t)
	first.kill()
	second := serveDemo(t, "--kv-offload-dir", dir, "--kv-offload-gb", "1")
	again := second.ask(t, question)
	require.Equal(t, string(plain.Choices), string(again.Choices))
	require.Greater(t, again.Usage.Details.Cached, 500)
	second.waitForMetric(t, fmt.Sprintf(`vllm:external_prefix_cache_hits_total\{.*\} %d\n`, again.Usage.Details.Cached))
	second.waitForMetric(t, fmt.Sprintf(`vllm:prompt_tokens_by_source_total\{.*external_kv_transfer.*\} %d\n`, again.Usage.Details.Cached))
}

// Ensure that a server finds its blocks after the file of the weights was moved, and finds none with other
// weights or another type of keys and values.
func TestOnlyTheSameWeightsFindTheirBlocks(t *testing.T) {
	level.SkipQuick(t)
	dir, folder := t.TempDir(), t.TempDir()
	path := filepath.Join(folder, "model.gguf")
	write := func(seed uint64) {
		require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
			Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2, Inter: 128, Vocab: 512, Context: 2048, Type: "F16", Seed: seed,
		}))
	}
	tokens := strings.TrimSuffix(strings.Repeat("5,6,7,9,", 60), ",")
	cached := func(file string, args ...string) int {
		s, _ := serveModelFile(t, file, append([]string{"--kv-offload-dir", dir}, args...)...)
		name := strings.TrimSuffix(filepath.Base(file), ".gguf")
		a := s.ask(t, fmt.Sprintf(`{"model": %q, "prompt": [%s], "max_tokens": 4, "temperature": 0}`, name, tokens))
		if a.Usage.Details.Cached == 0 {
			s.storesAll(t)
		}
		s.kill()
		return a.Usage.Details.Cached
	}
	write(1)
	require.Zero(t, cached(path))
	require.Equal(t, 224, cached(path))
	other := filepath.Join(folder, "other.gguf")
	require.NoError(t, os.Rename(path, other))
	require.Equal(t, 224, cached(other), "the same weights elsewhere")
	require.Zero(t, cached(other, "--kv-cache-dtype", "f32"))
	require.Zero(t, cached(other, "--kv-cache-dtype", "fp8"))
	require.Zero(t, cached(other, "--kv-cache-dtype", "int8"))
	require.Equal(t, 224, cached(other, "--kv-cache-dtype", "int8"))
	require.Zero(t, cached(other, "--block-size", "32"))
	require.Zero(t, cached(other, "--tensor-parallel-size", "2"))
	write(2)
	require.Zero(t, cached(path), "other weights in the same place")
	require.Equal(t, 224, cached(other))
}
