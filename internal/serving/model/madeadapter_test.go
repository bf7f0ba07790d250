package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/testkit/weightfile"
)

// adapterMatrices are what an adapter has for a matrix: A [rank][inputs] and B [outputs][rank].
type adapterMatrices struct {
	rank  int
	a, b  []float32
	scale float64
}

// add adds scale · B A x to y.
func (m adapterMatrices) add(y, x []float64) {
	for k := range m.rank {
		sum := 0.0
		for i, v := range x {
			sum += float64(m.a[k*len(x)+i]) * v
		}
		for o := range y {
			y[o] += m.scale * float64(m.b[o*m.rank+k]) * sum
		}
	}
}

// A madeAdapter is a random adapter of a folder or a GGUF file.
type madeAdapter struct {
	seed    uint64
	rank    int
	config  map[string]any // of adapter_config.json, besides r, lora_alpha and target_modules
	kind    string         // of tensors: F32, F16 or BF16
	rankOf  func(module string) int
	scaleOf func(module string) float64
	without func(module string) bool
}

func (a *madeAdapter) rankFor(module string) int {
	if a.rankOf != nil {
		return a.rankOf(module)
	}
	return a.rank
}

func (a *madeAdapter) scaleFor(module string) float64 {
	if a.scaleOf != nil {
		return a.scaleOf(module)
	}
	return 12 / float64(a.rankFor(module)) // alpha is 12
}

// matrices returns random matrices for the modules, whose values are outputs and inputs, and calls write for each
// tensor. The values in the result are those that a tensor of a.kind holds.
func (a *madeAdapter) matrices(modules map[string][2]int, write func(module string, b bool, values []float32, rows, cols int)) map[string]adapterMatrices {
	rnd, all := rand.New(rand.NewPCG(a.seed, 77)), map[string]adapterMatrices{}
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rnd.NormFloat64() * 0.15)
			switch a.kind {
			case "F16":
				v[i] = half.FromF16(half.ToF16(v[i]))
			case "BF16":
				v[i] = half.FromBF16(half.ToBF16(v[i]))
			}
		}
		return v
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if a.without != nil && a.without(name) {
			continue
		}
		outputs, inputs, rank := modules[name][0], modules[name][1], a.rankFor(name)
		m := adapterMatrices{rank, random(rank * inputs), random(outputs * rank), a.scaleFor(name)}
		write(name, false, m.a, rank, inputs)
		write(name, true, m.b, outputs, rank)
		all[name] = m
	}
	return all
}

func (a *madeAdapter) tensor(name string, v []float32, rows, cols int) weightfile.Tensor {
	t := weightfile.F32(name, v, rows, cols)
	if a.kind == "F16" || a.kind == "BF16" {
		t.DType, t.Type, t.Data = a.kind, ggufTypes[a.kind].number, nil
		for _, x := range v {
			bits := half.ToF16(x)
			if a.kind == "BF16" {
				bits = half.ToBF16(x)
			}
			t.Data = append(t.Data, byte(bits), byte(bits>>8))
		}
	}
	return t
}

// folder writes an adapter of a model with the given modules as PEFT does.
func (a *madeAdapter) folder(t testing.TB, modules map[string][2]int) (dir string, m map[string]adapterMatrices) {
	dir = t.TempDir()
	var tensors []weightfile.Tensor
	targets := map[string]bool{}
	m = a.matrices(modules, func(module string, b bool, v []float32, rows, cols int) {
		name := "base_model.model." + module + ".lora_A.weight"
		if b {
			name = "base_model.model." + module + ".lora_B.weight"
		}
		targets[module[strings.LastIndex(module, ".")+1:]] = true
		tensors = append(tensors, a.tensor(name, v, rows, cols))
	})
	config := map[string]any{"peft_type": "LORA", "r": a.rank, "lora_alpha": 12, "bias": "none",
		"target_modules": slices.Sorted(maps.Keys(targets))}
	maps.Copy(config, a.config)
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), data, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), weightfile.Safetensors(tensors...), 0o644))
	return dir, m
}

// gguf writes the adapter as llama.cpp does.
func (a *madeAdapter) gguf(t testing.TB, arch string, modules map[string][2]int) (path string, m map[string]adapterMatrices) {
	var tensors []weightfile.Tensor
	m = a.matrices(modules, func(module string, b bool, v []float32, rows, cols int) {
		name := module + ".weight.lora_a"
		if b {
			name = module + ".weight.lora_b"
		}
		tensors = append(tensors, a.tensor(name, v, rows, cols))
	})
	path = filepath.Join(t.TempDir(), "adapter.gguf")
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(map[string]any{"general.type": "adapter", "general.architecture": arch,
		"adapter.type": "lora", "adapter.lora.alpha": float32(12)}, tensors...), 0o644))
	return path, m
}

// modules returns the matrices of attention and of MLPs, with their outputs and inputs.
func (f *family) modules() map[string][2]int {
	all := map[string][2]int{}
	for name, shape := range f.tensors() {
		name, weight := strings.CutSuffix(name, ".weight")
		mlp := strings.Contains(name, "mlp.") || strings.Contains(name, "feed_forward.") || strings.Contains(name, "_moe.")
		if !weight || len(shape) != 2 || !strings.Contains(name, "layers.") && !strings.Contains(name, ".h.") ||
			mlp && f.ref.shape.experts > 0 || strings.Contains(name, "mixer.experts.") || strings.Contains(name, "mixer.gate") ||
			strings.Contains(name, "mixer.shared_experts.") || strings.Contains(name, "kv_b_proj") || strings.Contains(name, "per_layer_") {
			continue
		}
		var layer int
		fmt.Sscanf(name, "model.layers.%d.", &layer)
		if shared := f.ref.shape.gemma4 != nil && f.ref.gemma4Source(layer) != layer; shared &&
			(strings.HasSuffix(name, "k_proj") || strings.HasSuffix(name, "v_proj")) {
			continue
		}
		all[name] = [2]int{shape[0], shape[1]}
		if f.ref.family == "gpt2" {
			all[name] = [2]int{shape[1], shape[0]}
		}
	}
	return all
}
