package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/machine"
	"llmmemory/internal/terminal"
	"llmmemory/internal/testkit/weightfile"
)

// refused runs the command and requires that it ends with one line on standard error. The command must have used
// little memory. This shows that it refused before it packed the weights of a model.
func refused(t *testing.T, args ...string) (line string) {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets the peak of this process, which Linux counts as the command's
	c := llmserve(args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	require.Error(t, err, "%q", args)
	require.Empty(t, out)
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	require.Less(t, c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10, int64(250), "MB")
	return stderr.String()
}

func refusedHere(t *testing.T, args ...string) string {
	c := command()
	terminal.RefuseUnknownNames(c)
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	require.Error(t, err, "%q", args)
	require.Empty(t, out.String())
	require.NotContains(t, err.Error(), "\n")
	return err.Error()
}

// hole writes a file with 600 MB of weights that lacks the last tensor.
func hole(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "hole.gguf")
	require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
		Hidden: 768, Layers: 4, Heads: 6, KVHeads: 2, Inter: 32768, Vocab: 4096, Context: 131072,
	}, "blk.3.ffn_down.weight"))
	return path
}

// Ensure that the error for a bad setting names the setting. Flags are checked first, then the header or the
// configuration, and missing tensors last.
func TestWhatCannotWorkIsRefusedInOneLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		return path
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	const tokenizer = `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`
	const bare = `{"model_type": "llama", "vocab_size": 1, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}`
	for name, content := range map[string]string{
		"mamba/config.json": `{"model_type": "mamba"}`, "gguf/model-00001.gguf": "", "weights/model.safetensors": "",
		"words/config.json": `{"model_type": "llama", "hidden_size": "64"}`, "list/config.json": `[]`,
		"none/config.json": bare,
		"spm/config.json":  bare, "spm/tokenizer.model": "", "bare/config.json": bare, "bare/tokenizer.json": tokenizer,
		"torch/config.json": bare, "torch/tokenizer.json": tokenizer, "torch/pytorch_model.bin": "",
		"x.gguf": "GGML and more than eight bytes", "file": "",
		"moe.gguf": string(weightfile.GGUF(map[string]any{"general.architecture": "dbrx"})),
	} {
		write(name, content)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	path, tier := hole(t), t.TempDir()
	for _, test := range []struct {
		args string // words
		want string
	}{
		{"", "want MODEL, got 0 arguments; a model is a folder, a .gguf file, or demo"},
		{"demo again", "demo takes no arguments, got 1"},
		{"demo --prot 1", "unknown flag: --prot; did you mean --port?"},
		{in("\x1b[2J"), `/\x1b[2J`},
		{in("nothing"), "MODEL is a folder or a .gguf file"},
		{in("x.gguf"), "it is not a GGUF file"},
		{in("moe.gguf"), `general.architecture is "dbrx"; supported in GGUF are `},
		{in("spm"), "the only tokenizer file in"},
		{in("none"), "neither tokenizer.json nor vocab.json"},
		{in("mamba"), `model_type is "mamba"; supported are `},
		{in("bare"), "neither model.safetensors nor model.safetensors.index.json is in"},
		{in("torch"), "pytorch_model.bin is not read; save the model as safetensors"},
		{in("gguf"), "give one of its GGUF files: " + in("gguf/model-00001.gguf")},
		{in("weights/model.safetensors"), "is one file of a model; give its folder"},
		{in("words"), "config.json: hidden_size has the wrong type: a JSON string"},
		{in("list"), "config.json is a JSON array; an object is expected"},

		{path + " --kv-cache-gb 0.01 --max-model-len 100000", "give more memory, or a smaller length"},
		{path + " --max-model-len 131073", "the model knows positions up to 131072"},
		{path + " --max-model-len 1", "the longest sequence is 1"},
		{path + " --tensor-parallel-size 4", "2 key heads cannot be shared out among 4 workers"},
		{path + " --threads 4 --cpus 0,1,60000,60001 --tensor-parallel-size 2", "processor"},
		{path + " --cpus 0 --tensor-parallel-size 2", "2 workers need a processor each"},
		{path + " --port " + port, "address already in use; give another --port"},
		{path + " --port 0 --kv-events here", "--kv-events: socket here"},
		{path + " --port 0", `the tensor "blk.3.ffn_down.weight" is missing`},
		{"run " + path + " hello", `the tensor "blk.3.ffn_down.weight" is missing`},
		{"bench " + path, `the tensor "blk.3.ffn_down.weight" is missing`},
		{"run " + path + " " + strings.Repeat("x", 64) + " --max-model-len 16", "maximum context length is 16"},
		{"run " + path + " x --chat", "has no chat template"},
		{"bench " + path + " --input-len 200 --max-model-len 128", "264 tokens together; the longest sequence has 128"},
		{"bench demo --prefix-len 4000 --input-len 100",
			"--prefix-len, --input-len and --output-len are 4164 tokens together"},
		{"bench demo --output " + in("r") + " --steps " + dir + "/./r", "--output and --steps name the same file"},
		{"bench demo --max-num-seqs 1 --max-waiting 1 --output-len 4",
			"--max-concurrency is 16; --max-num-seqs and --max-waiting together are 2"},

		// With demo, the port is checked after all other flags.
		{"demo --port 99999", "--port is 99999; it must be from 0 to 65535"},
		{"demo --port 0 --host 192.0.2.1", "--host 192.0.2.1: "},
		{"demo --port 99999 --idle-unload -1s", "--idle-unload is -1s"},
		{"demo --port 99999 --idle-unload 1m --device cuda", "--idle-unload is only for models that one process computes on the CPU"},
		{"demo --host /run/llm.sock", "--host is /run/llm.sock; use --uds for a Unix socket"},
		{"demo --reasoning-budget 0", "--default-chat-template-kwargs"},
		{"demo --uds " + in("file"), "file exists and is no socket; give another path"},
		{"demo --uds " + in("nothing/x"), "--uds: open"},
		{"demo --uds " + in(strings.Repeat("x", 108)), "the path of a socket has at most 107"},
		{"demo --port 0 --ssl-keyfile " + in("file"), "--ssl-keyfile needs --ssl-certfile"},
		{"demo --port 0 --ssl-certfile " + in("file"), "--ssl-certfile: tls: failed to find any PEM data"},
		{"demo --port 0 --ssl-certfile " + in("nothing"), "no such file"},
		{"demo --port 99999 --api-key=", "--api-key is empty"},
		{"demo --port 99999 --served-model-name=", "--served-model-name has an empty name"},
		{"demo --port 99999 --served-model-name a,,b", "--served-model-name has an empty name"},
		{"x --port 0 --served-model-name a b", "several names of a model are separated by commas: --served-model-name a,b"},
		{"demo --port 99999 --default-chat-template-kwargs thinking", "--default-chat-template-kwargs: chat_template_kwargs is not a JSON object"},
		{"demo --port 99999 --default-chat-template-kwargs {\"tools\":[]}", `"tools" is set by the server`},
		{"demo --port 99999 --default-chat-template-kwargs {\"enable_thinking\":\"false\"}", "true or false is expected"},
		{"demo --port 0 --default-chat-template-kwargs {\"messages\":1}", `"messages" is set by the server`},
		{"demo --port 99999 --block-size 1000000", "--block-size is 1000000; it must be at most 65536"},
		{"demo --port 99999 --block-size 0", "--block-size is 0; it must be at least 1"},
		{"demo --port 99999 --max-num-seqs 0", "--max-num-seqs is 0"},
		{"demo --port 99999 --max-num-batched-tokens 0", "--max-num-batched-tokens is 0"},
		{"demo --port 99999 --max-waiting 0", "--max-waiting is 0"},
		{"demo --port 99999 --max-body 0", "--max-body is 0"},
		{"demo --port 99999 --drain -1s", "--drain is -1s"},
		{"demo --port 99999 --requests-per-minute -1", "must be at least 0"},
		{"demo --port 99999 --iteration-timeout 0s", "--iteration-timeout is 0s; it must be at least 1s"},
		{"demo --port 99999 --allowed-origins app.example", `--allowed-origins: "app.example" is not an origin; give one`},
		{"demo --port 99999 --threads 100000", "--threads is 100000; at most 1024"},
		{"demo --port 99999 --threads 0", "--threads is 0"},
		{"demo --port 99999 --kv-cache-gb 1e9", "of memory are available"},
		{"demo --port 99999 --kv-cache-gb 0", "--kv-cache-gb is 0; it must be above 0"},
		{"demo --port 99999 --kv-cache-gb nan", "it must be above 0"},
		{"demo --port 99999 --tensor-parallel-size 3", "1, 2 and 4 are possible"},
		{"demo --port 99999 --activation-dtype int4", `--activation-dtype is "int4"; f32, bf16 and int8 are possible`},
		{"demo --port 0 --activation-dtype int8", "the demo's weights are F32"},
		{"demo --port 0 --kv-cache-dtype f8", "fp8_e5m2, int8 and auto are possible"},
		{"demo --port 0 --cpus 60000", "processor 60000"},
		{"demo --port 0 --cpus 0-x", `"0-x" is neither a processor nor a range`},
		{"demo --port 0 --cpus 0-2,1", "processor 1 is named twice"},
		{"demo --port 0 --mamba-cache-mode none", "align and all are possible; --no-prefix-caching keeps no states"},
		{"demo --port 0 --mamba-cache-mode all", "--mamba-cache-mode: the model has no layers with states; leave the flag out"},
		{"demo --port 0 --mamba-cache-mode align", "--mamba-cache-mode: the model has no layers with states; leave the flag out"},
		{"demo --port 0 --kv-events tcp://*:0 --no-prefix-caching", "leave --no-prefix-caching out"},
		{"demo --port 0 --kv-events tcp://127.0.0.1:1", "tcp://*:PORT waits here for subscribers"},

		{"demo --port 0 --kv-offload-dir " + in("file"), "is not a folder"},
		{"demo --port 0 --kv-offload-dir /proc/kv", "--kv-offload-dir: "},
		{"demo --port 0 --kv-offload-dir=", "need a value"},
		{"demo --port 0 --kv-offload-dir " + tier + " --kv-offload-gb 0", "--kv-offload-gb is 0; it must be above 0"},
		{"demo --port 0 --kv-offload-dir " + tier + " --kv-role kv_both", "producer, consumer and both are possible"},
		{"demo --port 0 --kv-offload-dir " + tier + " --no-prefix-caching", "leave --no-prefix-caching out"},
		{"demo --port 0 --kv-offload-dir " + tier + " --kv-offload-ca x", "need --kv-offload-url"},
		{"demo --port 0 --kv-role both", "--kv-role needs --kv-offload-dir or --kv-offload-url"},
		{"demo --port 0 --kv-offload-url redis://127.0.0.1:1 --kv-offload-gb 5", "maxmemory"},
		{"demo --port 0 --kv-offload-gb 5", "--kv-offload-gb needs --kv-offload-dir or --kv-offload-url"},
		{"demo --port 0 --kv-offload-url redis://", "no host"},
		{"demo --port 0 --kv-offload-url redis://:secret@127.0.0.1:1", "password"},
		{"demo --port 0 --kv-offload-url redis://127.0.0.1:1", "connection refused"},
		{"demo --port 0 --kv-offload-url redis://127.0.0.1:1 --kv-offload-password-file " + in("nothing"), "no such file"},
	} {
		args := strings.Fields(test.args)
		if len(args) > 0 && !strings.Contains(test.args, "--kv-cache-gb") {
			args = append(args, "--kv-cache-gb", "0.2")
		}
		refuse := refusedHere
		if strings.Contains(test.want, "is missing") || strings.Contains(test.want, `\x1b`) || len(args) == 0 {
			refuse = refused
		}
		line := refuse(t, args...)
		require.Contains(t, line, test.want, "%q", args)
		require.NotContains(t, line, "secret")
	}
	t.Setenv("LLMSERVE_CPU", "avx2")
	require.Contains(t, refusedHere(t, "demo"), `LLMSERVE_CPU is "avx2"; avx512 is possible`)
	t.Setenv("LLMSERVE_CPU", "avx512")
	for _, key := range []string{"", " "} {
		t.Setenv("LLMSERVE_API_KEY", key)
		require.Contains(t, refusedHere(t, "demo", "--port", "99999"), "LLMSERVE_API_KEY is empty")
	}
}

// A file larger than any memory, with a header in order.
func TestWeightsThatDoNotFitAreRefusedWithWhatTheyTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.gguf")
	require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
		Hidden: 8192, Layers: 4, Heads: 64, KVHeads: 8, Inter: 1 << 23, Vocab: 4096, Context: 4096,
	}, ""))
	require.Regexp(t, `weights take about \d+ MB, keys and values 204 MB, and \d+ MB of memory are available`,
		refused(t, path, "--port", "0", "--kv-cache-gb", "0.2"))

	have, ok := machine.AvailableMemory()
	require.True(t, ok)
	path = filepath.Join(t.TempDir(), "both.gguf")
	require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
		Hidden: 768, Layers: 64, Heads: 6, KVHeads: 2, Inter: have * 8 / 10 / (64 * 3 * 768 * 2) / 64 * 64, Vocab: 4096,
		Context: 4096,
	}, "blk.63.ffn_down.weight"))
	line := refused(t, path, "--port", "0", "--kv-cache-gb", fmt.Sprintf("%.3f", 0.8*float64(have)/(1<<30)))
	require.Contains(t, line, "of memory are available", "weights alone and keys and values alone fit")
}

func TestActivationsForWhichAModelHasNoWeightsAreRefused(t *testing.T) {
	for _, test := range []struct{ weights, activations, want string }{
		{"F16", "int8", "its weights are not of a quantized type"},
		{"Q8_0", "bf16", "its weights are not F16 or BF16"},
	} {
		path := filepath.Join(t.TempDir(), "hole.gguf")
		require.NoError(t, weightfile.LlamaHole(path, weightfile.Llama{
			Hidden: 768, Layers: 4, Heads: 6, KVHeads: 2, Inter: 32768, Vocab: 4096, Context: 4096, Type: test.weights,
		}, ""))
		line := refused(t, path, "--port", "0", "--kv-cache-gb", "0.2", "--activation-dtype", test.activations)
		require.Contains(t, line, "--activation-dtype "+test.activations+": cannot load the model: "+test.want)
	}
}
