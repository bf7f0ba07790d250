package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// A loraPair describes A and B of a module: inputs and outputs of a matrix of the model.
type loraPair struct {
	module          string
	inputs, outputs int
}

// demoPair is the output projection of the demo's last layer; with several workers, it has other inputs.
var demoPair = loraPair{"model.layers.1.self_attn.o_proj", 3 * 256, 640}

func (p loraPair) tensors(seed uint64, rank int, a, b string) []weightfile.Tensor {
	rnd := rand.New(rand.NewPCG(seed, 3))
	random := func(name string, rows, cols int) weightfile.Tensor {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(rnd.NormFloat64())
		}
		return weightfile.F32(name, v, rows, cols)
	}
	return []weightfile.Tensor{random(a, rank, p.inputs), random(b, p.outputs, rank)}
}

// peftFolder writes a random adapter of rank 4.
func peftFolder(t *testing.T, p loraPair, seed uint64) string {
	dir, name := t.TempDir(), "base_model.model."+p.module
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["o_proj"], "layers_to_transform": [1],
		"base_model_name_or_path": %q}`, p.module)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"),
		weightfile.Safetensors(p.tensors(seed, 4, name+".lora_A.weight", name+".lora_B.weight")...), 0o644))
	return dir
}

// ggufAdapter writes a random adapter of rank 4 for a Llama in GGUF.
func ggufAdapter(t *testing.T, p loraPair) string {
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(map[string]any{"general.type": "adapter", "general.architecture": "llama",
		"adapter.type": "lora", "adapter.lora.alpha": float32(8)},
		p.tensors(1, 4, p.module+".weight.lora_a", p.module+".weight.lora_b")...), 0o644))
	return path
}

// asks returns the choices of an answer at temperature 0, and how many tokens of its prompt were cached.
func (s *server) asks(t *testing.T, model string) (choices string, cached int) {
	a := s.ask(t, longQuestion(t, model))
	return string(a.Choices), a.Usage.Details.Cached
}

func TestRequestsChooseAnAdapter(t *testing.T) {
	first, second := peftFolder(t, demoPair, 1), peftFolder(t, demoPair, 2)
	plain, _ := serveDemo(t).asks(t, "demo")
	s := serveDemo(t, "--lora-modules", "first="+first, fmt.Sprintf(`{"name": "second", "path": %q}`, second), "--max-loras", "1")
	seen := map[string]string{}
	for _, name := range []string{"demo", "first", "second"} {
		choices, cached := s.asks(t, name)
		require.Zero(t, cached, name)
		again, cached := s.asks(t, name)
		require.Positive(t, cached, name)
		require.Equal(t, choices, again)
		require.NotContains(t, seen, choices)
		seen[choices] = name
	}
	require.Equal(t, "demo", seen[plain])
	line, err := s.lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("  adapters: \"first\" (%s), \"second\" (%s); at most 1 at a time\n", first, second), line)
}

func TestAGGUFModelHasGGUFAdapters(t *testing.T) {
	adapter := ggufAdapter(t, loraPair{"blk.3.attn_output", weightfile.TinyHeads * weightfile.TinyDim, weightfile.TinyHidden})
	s, _ := serveModelFile(t, tinyWith(t, nil), "--lora-modules", "other="+adapter)
	ask := func(model string) string {
		return string(s.ask(t, fmt.Sprintf(`{"model": %q, "prompt": "a", "max_tokens": 5, "temperature": 0, "logprobs": 1}`, model)).Choices)
	}
	require.NotEqual(t, ask("tiny"), ask("other"))
}

// Ensure that workers, which divide the adapters' matrices, give the same answers.
func TestWorkersApplyAdapters(t *testing.T) {
	level.SkipNormal(t)
	p := demoPair
	p.inputs = 4 * 256
	adapter := "one=" + peftFolder(t, p, 1)
	two, _ := serveDemo(t, "--tensor-parallel-size", "2", "--lora-modules", adapter).asks(t, "one")
	four, _ := serveDemo(t, "--tensor-parallel-size", "4", "--lora-modules", adapter).asks(t, "one")
	require.Equal(t, two, four)
}

// Ensure that a tier has no blocks for an adapter with the same name and other contents.
func TestATierTellsAdaptersOfOneNameApart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tier")
	serve := func(adapter string) *server {
		return serveDemo(t, "--kv-offload-dir", dir, "--lora-modules", "name="+adapter)
	}
	adapter := peftFolder(t, demoPair, 1)
	s := serve(adapter)
	want, _ := s.asks(t, "name")
	s.storesAll(t)
	s.kill()
	s = serve(peftFolder(t, demoPair, 2))
	_, cached := s.asks(t, "name")
	require.Zero(t, cached)
	s.kill()
	s = serve(adapter)
	got, cached := s.asks(t, "name")
	require.Equal(t, want, got)
	require.Positive(t, cached)
}

func TestAdaptersThatCannotBeServedAreRefused(t *testing.T) {
	wrong := demoPair
	wrong.inputs = 700
	fits := peftFolder(t, demoPair, 1)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--max-loras", "2"}, "--max-loras needs --lora-modules"},
		{[]string{"--max-lora-rank", "2"}, "--max-lora-rank needs --lora-modules"},
		{[]string{"--lora-modules", "a"}, `--lora-modules is "a"; give NAME=PATH`},
		{[]string{"--lora-modules", "=a"}, `--lora-modules is "=a"; give NAME=PATH`},
		{[]string{"--lora-modules", `{"name": "a", "file": "b"}`}, `unknown field "file"`},
		{[]string{"--lora-modules", "a=b", "--lora-modules", "a=c"}, `two adapters with the name "a"`},
		{[]string{"--lora-modules", "demo=b"}, `"demo" is the name of the model`},
		{[]string{"--lora-modules", "a=b", "--max-loras", "0"}, "--max-loras is 0; it must be at least 1"},
		{[]string{"--lora-modules", "a=b", "--max-lora-rank", "513"}, "--max-lora-rank is 513; it must be from 1 to 512"},
		{[]string{"--lora-modules", "a=/nowhere"}, "--lora-modules a: cannot read the adapter: stat /nowhere: no such file"},
		{[]string{"--lora-modules", "a=" + fits, "--max-lora-rank", "3"}, "has the rank 4, and --max-lora-rank is 3"},
		{[]string{"--lora-modules", "a=" + peftFolder(t, wrong, 1)}, "has 700 inputs"},
		{[]string{"--lora-modules", "a=b", "--device", "cuda"}, "--device cuda: adapters (--lora-modules) are applied only on the CPU"},
	} {
		require.Contains(t, refusedHere(t, append([]string{"demo", "--port", "0"}, test.args...)...), test.want, "%q", test.args)
	}
	require.Contains(t, refusedHere(t, "demo", "a=b"), "demo takes no arguments", "without the flag")
}

// Ensure that the memory of adapters counts, with a file larger than any memory that is one hole. Its rank of 4 becomes
// the 64 rows of a panel.
func TestAdaptersThatDoNotFitIntoMemoryAreRefused(t *testing.T) {
	dir := peftFolder(t, demoPair, 1)
	const inputs = 1 << 34
	header := fmt.Sprintf(`{"m.lora_A.weight": {"dtype": "F32", "shape": [4, %d], "data_offsets": [0, %d]},
		"m.lora_B.weight": {"dtype": "F32", "shape": [1, 4], "data_offsets": [0, 16]}}`, inputs, 16*inputs)
	path := filepath.Join(dir, "adapter_model.safetensors")
	require.NoError(t, os.WriteFile(path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), 0o644))
	require.NoError(t, os.Truncate(path, int64(8+len(header)+16*inputs)))
	require.Regexp(t, `the weights and the adapters take about 41943\d\d MB, keys and values 204 MB, .*fewer adapters`,
		refusedHere(t, tinyWith(t, nil), "--port", "0", "--kv-cache-gb", "0.2", "--lora-modules", "a="+dir))
}

func TestModulesAreReadAsInVLLM(t *testing.T) {
	for text, want := range map[string]openai.Adapter{
		"a=b":                        {Name: "a", Path: "b"},
		"a=b=c":                      {Name: "a", Path: "b=c"},
		`{"name": "a", "path": "b"}`: {Name: "a", Path: "b"},
		`{"name":"a","path":"b","base_model_name":"c"}`: {Name: "a", Path: "b", Base: "c"},
	} {
		got, err := parseModule(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	var o loraOptions
	o.modules = []string{"a=b"}
	others, modules := o.split(strings.Fields("MODEL c=d " + `{"name":"e"}`))
	require.Equal(t, []string{"MODEL"}, others)
	require.Equal(t, []string{"c=d", `{"name":"e"}`}, modules)
}
