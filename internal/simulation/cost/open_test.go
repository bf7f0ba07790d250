package cost

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEverythingBuiltInOpensAndNamesItsSource(t *testing.T) {
	for _, name := range LLMs() {
		l := llm(t, name)
		require.Equal(t, name, l.Name)
		require.NotEmpty(t, l.Source)
	}
	for _, name := range GPUs() {
		g, err := OpenGPU(name)
		require.NoError(t, err)
		require.Equal(t, name, g.Name)
		require.NotEmpty(t, g.Source)
	}
	for _, name := range Setups() {
		s := setup(t, name)
		require.Equal(t, name, s.Name)
		require.Equal(t, DefaultEngine, s.Engine)
		_ = timed(t, s)
		_ = pool(t, s)
	}
}

func TestTheExamplesOfTheReadmeCanBeRead(t *testing.T) {
	s := setup(t, filepath.Join("examples", "setup.json"))
	l := llm(t, filepath.Join("examples", "model.json"))
	g, err := OpenGPU(filepath.Join("examples", "gpu.json"))
	require.NoError(t, err)
	require.Equal(t, l, s.LLM)
	require.Equal(t, g, s.GPU)
	engine, memory := DefaultEngine, DefaultMemory
	engine.Seq, memory.Utilization = 0.05, 0.90
	require.Equal(t, engine, s.Engine)
	require.Equal(t, memory, s.Memory)
	require.Nil(t, s.Linear)
	_ = timed(t, s)
	gpu := pool(t, s)
	require.Positive(t, gpu)

	line := setup(t, filepath.Join("examples", "line.json"))
	require.Equal(t, &Linear{Base: 12, Seq: 0.1, Context: 0.0003, Prompt: 0.05}, line.Linear)
	require.Equal(t, 2, line.Workers)
}

func TestTheReadmeNamesEveryField(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, v := range []any{LLM{}, GPU{}, Linear{}, Engine{}, Memory{}} {
		for i := range reflect.TypeOf(v).NumField() {
			require.Contains(t, string(text), "`"+strings.TrimSuffix(reflect.TypeOf(v).Field(i).Tag.Get("json"),
				",omitempty")+"`")
		}
	}
}

// Ensure that the error for an unknown model names the files to give instead.
func TestAnUnknownModelIsAnsweredWithTheKnownOnes(t *testing.T) {
	_, unknownSetup := Open("opt-13b")
	_, unknownGPU := New("opt-13b", "a100", 1)
	_, unknownModel := OpenLLM("gpt-5")
	_, noModelFile := OpenLLM("Qwen/Qwen3-14B")
	_, noGPUFile := OpenGPU("missing.json")
	for _, c := range []struct {
		err, target error
		says        string
	}{
		{unknownSetup, ErrUnknown, "fastertransformer-opt-13b, "},
		{unknownGPU, ErrUnknown, "a100-40gb, a100-80gb, "},
		{unknownModel, ErrUnknown, "llama-13b, "},
		{unknownModel, ErrUnknown, "or give a .json file, such as the model's config.json on Hugging Face"},
		{noModelFile, ErrFile, "the model's config.json on Hugging Face"},
		{noGPUFile, ErrFile, "missing.json"},
	} {
		require.ErrorIs(t, c.err, c.target)
		require.ErrorContains(t, c.err, c.says)
	}
	require.ErrorIs(t, noGPUFile, os.ErrNotExist)
	require.NotContains(t, unknownGPU.Error(), "Hugging Face")
}

func TestNumbersOutOfTheirRangeAreRefused(t *testing.T) {
	s, line := setup(t, filepath.Join("examples", "setup.json")), setup(t, filepath.Join("examples", "line.json"))
	for _, valid := range []any{s.LLM, s.GPU, *line.Linear, s.Engine, s.Memory} {
		require.NoError(t, checkRanges(valid))
		for i := range reflect.TypeOf(valid).NumField() {
			field := reflect.TypeOf(valid).Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch kind := field.Type.Kind(); {
			case kind == reflect.String || kind == reflect.Bool:
			case name == "experts_per_token" || name == "parameters": // LLM.check compares them with others
			default:
				for _, bad := range []float64{-1, 1e17} {
					v := reflect.New(reflect.TypeOf(valid)).Elem()
					v.Set(reflect.ValueOf(valid))
					v.Field(i).Set(reflect.ValueOf(bad).Convert(field.Type))
					require.ErrorContains(t, checkRanges(v.Interface()), name+" is ", "%v", bad)
				}
			}
		}
	}
}

func put(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "file.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestEachPartOfAFileIsChecked(t *testing.T) {
	open := func(path string) error { _, err := Open(path); return err }
	openLLM := func(path string) error { _, err := OpenLLM(path); return err }
	for _, c := range []struct {
		open       func(string) error
		text, says string
	}{
		{openLLM, `{"colour": 1}`, "colour"},
		{openLLM, `{}`, "layers is 0"},
		{openGPU, `{}`, "memory_bytes is 0"},
		{open, `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1, "linear_ms": {"per_seq": 1}}`, "linear_ms: base is 0"},
		{open, `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1, "engine": {"weights": 1.01}}`, "engine: weights is 1.01"},
		{open, `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1, "engine": {"colour": 1}}`, "colour"},
		{open, `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1, "memory": {"utilization": 0}}`, "memory: utilization is 0"},
	} {
		err := c.open(put(t, c.text))
		require.ErrorIs(t, err, ErrFile, c.text)
		require.ErrorContains(t, err, c.says, c.text)
	}
}

func openGPU(path string) error { _, err := OpenGPU(path); return err }

// Ensure that a number of workers is refused if the KV heads cannot be shared equally. All workers must get equally
// many whole KV heads. With more workers than heads, each worker must get a copy of one head, and all heads must have
// equally many copies.
func TestHeadsThatCannotBeSharedOutAreRefused(t *testing.T) {
	s, err := New("llama-3-70b", "h100-80gb", 1) // 64 heads, 8 KV heads
	require.NoError(t, err)
	for workers, fits := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 3: false, 4: true, 8: true, 16: true,
		64: true, 128: false} {
		s.Workers = workers
		_, err := s.Model(16)
		require.Equal(t, fits, err == nil, "%d workers", workers)
		_, _, poolErr := s.Pool(16)
		require.Equal(t, fits, !errors.Is(poolErr, ErrFile), "%d workers", workers)
	}
	s, err = New("qwen2.5-7b", "a100-40gb", 1) // 28 heads, 4 KV heads
	require.NoError(t, err)
	for workers, fits := range map[int]bool{2: true, 4: true, 7: false, 14: false, 28: true} {
		s.Workers = workers
		_, err := s.Model(16)
		require.Equal(t, fits, err == nil, "%d workers", workers)
	}
	s.Workers, s.LLM.KVHeads = 1, 5
	_, err = s.Model(16)
	require.ErrorContains(t, err, "heads is 28, must be a multiple of kv_heads, which is 5")
}

// Ensure that a number of parameters is refused if it contradicts the dimensions, for example 13 for 13 billion.
func TestParametersFitTheDimensions(t *testing.T) {
	l := llm(t, "llama-3-8b")
	for name, change := range map[string]func(*LLM){
		"billions":  func(l *LLM) { l.Parameters = 8 },
		"not gated": func(l *LLM) { l.Gated = false },
		"tied":      func(l *LLM) { l.Tied = true },
		"too few":   func(l *LLM) { l.Parameters = 8_029_000_000 },
	} {
		bad := l
		change(&bad)
		require.ErrorContains(t, bad.check(), "parameters is", name)
	}
	require.NoError(t, l.check())
}

func TestTextAfterTheObjectIsRefused(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("examples", "gpu.json"))
	require.NoError(t, err)
	for name, bad := range map[string]string{
		"two objects": string(text) + string(text),
		"cut short":   string(text[:len(text)/2]),
		"empty":       "",
		"an array":    "[]",
		"rubbish":     string(text) + "}",
	} {
		require.ErrorIs(t, openGPU(put(t, bad)), ErrFile, name)
	}
}
