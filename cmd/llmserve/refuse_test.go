package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/model"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// refused runs the command and returns its only line, and the most memory that it had.
func refused(t *testing.T, args ...string) (line string, peakMB int64) {
	c := llmserve(args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	require.Error(t, c.Run())
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	return stderr.String(), c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
}

// hole is a file with 600 MB of weights, of which the last tensor is missing.
func hole(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "hole.gguf")
	require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
		Hidden: 768, Layers: 4, Heads: 6, KVHeads: 2, Inter: 32768, Vocab: 4096, Context: 131072,
	}, "blk.3.ffn_down.weight"))
	return path
}

// What can be known from the file's header and the flags is said first, then that a tensor is missing,
// and no weights are packed.
func TestWhatCannotBeServedIsRefusedBeforeWeightsArePacked(t *testing.T) {
	level.SkipQuick(t)
	path := hole(t)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"memory for one sequence", []string{"--kv-cache-gb", "0.01", "--max-model-len", "100000"},
			"give more memory, or a smaller length"},
		{"longest sequence", []string{"--max-model-len", "131073"}, "the model knows positions up to 131072"},
		{"sequences of one token", []string{"--max-model-len", "1"}, "the longest sequence is 1"},
		{"blocks", []string{"--block-size", "-1"}, "--block-size is -1"},
		{"type of keys and values", []string{"--kv-cache-dtype", "f8"}, "fp8_e5m2, int8 and auto are possible"},
		{"heads", []string{"--tensor-parallel-size", "4"}, "2 key heads cannot be shared out among 4 workers"},
		{"workers", []string{"--tensor-parallel-size", "3"}, "1, 2 and 4 are possible"},
		{"threads", []string{"--threads", "0"}, "--threads is 0"},
		{"type of activations", []string{"--activation-dtype", "int4"},
			`--activation-dtype is "int4"; f32, bf16 and int8 are possible`},
		{"processors of the second worker", []string{"--threads", "4", "--cpus", "0,1,60000,60001", "--tensor-parallel-size",
			"2"}, "processor"},
		{"too few processors", []string{"--cpus", "0", "--tensor-parallel-size", "2"}, "2 workers need a processor each"},
		{"a tensor", nil, `the tensor "blk.3.ffn_down.weight" is missing`},
	}
	for _, command := range []struct {
		name  string
		words []string
		more  []string
	}{{"serve", nil, []string{"--port", "0"}}, {"run", []string{"run"}, nil}, {"bench", []string{"bench"}, nil}} {
		for _, test := range tests {
			t.Run(command.name+"/"+test.name, func(t *testing.T) {
				args := append(append([]string{}, command.words...), path)
				if command.name == "run" {
					args = append(args, "hello")
				}
				args = append(append(append(args, "--kv-cache-gb", "0.2"), command.more...), test.args...)
				line, peak := refused(t, args...)
				require.Contains(t, line, test.want)
				require.Less(t, peak, int64(250))
				t.Logf("%d MB at most", peak)
			})
		}
	}
}

func TestWhatIsWrongWithACommandIsSaidBeforeWeightsArePacked(t *testing.T) {
	path := hole(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"a port in use", []string{path, "--port", port}, "address already in use; give another --port"},
		{"the demo at a port in use", []string{"demo", "--port", port}, "address already in use; give another --port"},
		{"rates", []string{path, "--requests-per-minute", "-1"}, "must be at least 0"},
		{"events", []string{path, "--port", "0", "--kv-events", "here"}, "--kv-events: socket here"},
		{"a long prompt", []string{"run", path, strings.Repeat("x", 64), "--max-model-len", "16"},
			"maximum context length is 16"},
		{"no template", []string{"run", path, "x", "--chat"}, "has no chat template"},
		{"the demo in 8 bits", []string{"demo", "--activation-dtype", "int8"}, "the demo's weights are F32"},
		{"long requests", []string{"bench", path, "--input-len", "200", "--max-model-len", "128"},
			"264 tokens together; the longest sequence has 128"},
	} {
		t.Run(test.name, func(t *testing.T) {
			line, peak := refused(t, append(test.args, "--kv-cache-gb", "0.2")...)
			require.Contains(t, line, test.want)
			require.Less(t, peak, int64(250))
		})
	}
}

// A file larger than any memory, with a header in order.
func TestWeightsThatDoNotFitAreRefusedWithWhatTheyTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.gguf")
	require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
		Hidden: 8192, Layers: 4, Heads: 64, KVHeads: 8, Inter: 1 << 23, Vocab: 4096, Context: 4096,
	}, ""))
	line, _ := refused(t, path, "--port", "0", "--kv-cache-gb", "0.2")
	require.Regexp(t, `weights take about \d+ MB, keys and values 204 MB, and \d+ MB of memory are available`, line)

	have, ok := model.AvailableMemory()
	require.True(t, ok)
	path = filepath.Join(t.TempDir(), "both.gguf")
	require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
		Hidden: 768, Layers: 64, Heads: 6, KVHeads: 2, Inter: have * 8 / 10 / (64 * 3 * 768 * 2) / 64 * 64, Vocab: 4096,
		Context: 4096,
	}, "blk.63.ffn_down.weight"))
	line, _ = refused(t, path, "--port", "0", "--kv-cache-gb", fmt.Sprintf("%.3f", 0.8*float64(have)/(1<<30)))
	require.Contains(t, line, "of memory are available", "weights alone and keys and values alone fit")
}

func TestActivationsForWhichAModelHasNoWeightsAreRefusedBeforeTheyArePacked(t *testing.T) {
	for _, test := range []struct{ weights, activations, want string }{
		{"F16", "int8", "its weights are not of a quantized type"},
		{"Q8_0", "bf16", "its weights are not F16 or BF16"},
	} {
		path := filepath.Join(t.TempDir(), "hole.gguf")
		require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
			Hidden: 768, Layers: 4, Heads: 6, KVHeads: 2, Inter: 32768, Vocab: 4096, Context: 4096, Type: test.weights,
		}, ""))
		line, peak := refused(t, path, "--port", "0", "--kv-cache-gb", "0.2", "--activation-dtype", test.activations)
		require.Contains(t, line, "--activation-dtype "+test.activations+": cannot load the model: "+test.want)
		require.Less(t, peak, int64(250))
	}
}

func TestAModelThatIsNotSupportedIsNamedBeforeItsTokenizerIsMissed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type": "dbrx"}`), 0o644))
	line, _ := refused(t, dir)
	require.Contains(t, line, `model_type is "dbrx"; supported are gemma2`)
	path := filepath.Join(dir, "moe.gguf")
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(map[string]any{"general.architecture": "dbrx"}), 0o644))
	line, _ = refused(t, path)
	require.Contains(t, line, `general.architecture is "dbrx"; supported in GGUF are gemma2`)
}
