package cost

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// A pair is a release of an engine on a GPU.
type pair struct{ release, gpu string }

// A fitGroup has the points that one publisher has of an engine: the constants of its
// releases and GPUs are fitted together.
type fitGroup struct {
	engine string
	points []measurement
}

// fittedHalves returns the points that constants are fitted to, in the division of a salt.
func fittedHalves(salt string) []measurement {
	var all []measurement
	seen := map[string]bool{}
	for _, p := range publishedPoints() {
		key := p.Engine + " " + p.Release + " " + p.GPU
		if !seen[key] {
			fitted, _ := split(p.Engine, p.Release, p.GPU, salt)
			all = append(all, fitted...)
		}
		seen[key] = true
	}
	return all
}

func fitGroups(points []measurement) []fitGroup {
	var all []fitGroup
	by := map[string]int{}
	for _, p := range points {
		key := p.Engine + " " + publisher(p)
		if _, ok := by[key]; !ok {
			by[key] = len(all)
			all = append(all, fitGroup{engine: p.Engine})
		}
		all[by[key]].points = append(all[by[key]].points, p)
	}
	return all
}

// publisher returns whose points are fitted together: of V1 all, because each has few models. Those of TensorRT-LLM 1.0
// are separate, because their loads differ from those of its older releases.
func publisher(p measurement) string {
	switch {
	case p.Work != nil:
		return "offline"
	case p.Budget > 0:
		return "V1"
	}
	publisher, _, _ := strings.Cut(p.Source, "@")
	return publisher
}

// fit finds the constants of each release and GPU, from a start that change has changed.
func (g fitGroup) fit(t *testing.T, change func(*Engine)) *engineFit {
	start := startOf(g.points)
	change(&start)
	f, err := newFit(g.points, start)
	require.NoError(t, err)
	f.x = f.fit(f.x, 100)
	return f
}

func allConstants(*Engine) {}

// startOf returns where the fit of a publisher's points begins, from what is known without them;
// what is 0 is not fitted.
// FlashAttention-2 computes prompts at half of an A100's peak and more (Dao, 2023, Fig. 4).
// TensorRT-LLM's kernel for decodes reads keys nearly at the memory's rate, as the fitted
// halves of 0.6.1 show (0.89 to 1.00). From 0.8 on it has another one (XQA), built for
// groups of 8 as of Llama 2 70B (nqpkv_8 in the names of its kernels,
// cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention/cubin; performance.md turns it on).
// Matrices are multiplied in tiles of 128 tokens; 64 are half of one. AccelMark's points
// are nearer without it. Its runner leaves max_seq_len_to_capture at vLLM 0.7.3's default of
// 8192 tokens (vllm/config.py), beyond which decodes are not captured in CUDA graphs. Its
// clients are served by AsyncLLMEngine, which makes an output of each token. A layer of
// Mixtral launches 8 kernels more than the 12 of a dense one on several GPUs, and a
// multiprocessor reads weights at 22 GB/s: neither is fitted (published/README.md, "Form").
func startOf(points []measurement) Engine {
	e := DefaultEngine
	e.PromptAttention, e.Activations, e.ExpertCompute = 0.5, 1, e.Compute
	e.Layer, e.PromptLayer, e.Seq, e.Base, e.Reread, e.AllReduce = 0.02, 0.02, 0.005, 0.2, 0.1, 20
	e.HalfTokens, e.Rounded = 64, 1
	switch publisher(points[0]) {
	case "offline":
		e.HalfTokens, e.Reread, e.PromptLayer, e.Attention = 0, 0, 0, 0.9
		return e
	case "V1":
		return startOfV1(e)
	}
	if points[0].Engine == "tensorrt-llm" {
		e.Attention = 0.9
		e.SharedGroup, e.SharedReread = 8, 0.1
		return e
	}
	if accelMark(points[0]) {
		e.HalfTokens, e.GraphContext, e.ServedSeq = 0, 8192, 0.1
		e.ExpertLaunches, e.Processor = 8.0/12, 22
		return e
	}
	e.PromptBase = 0.5
	return e
}

func accelMark(p measurement) bool { return strings.HasPrefix(p.Source, "FreedomIntelligence/") }

// point returns what is left out alone.
func point(p measurement) string { return fmt.Sprint(p.Source, p.GPU, p) + p.Metric }

// load returns what is left out of all releases and GPUs at once: a model, what is measured, its
// prompts and how many there are. Answers of one load differ in length by a few tokens.
func load(p measurement) string {
	return fmt.Sprint(p.Model, p.DType, p.Metric, p.Prompt, p.Batch)
}

// blind are GPUs whose points were read only when the form had been chosen.
var blind = []string{"v100s-32gb", "rtx-4090-d"}

// Ensure that no other form has clearly smaller errors of points that are left out of the fitted
// halves, one at a time and a load at a time. The other halves
// have no part in them, nor have the GPUs that were blind.
func TestConstantsAreChosenByLeavingPointsOut(t *testing.T) {
	if !level.Long() {
		t.Skip("fits all engines once for each point, load and form; set LLM_TEST_LONG=1")
	}
	forms := []struct {
		name, publisher string
		change          func(*Engine)
	}{
		{"as it is", "NVIDIA/", allConstants},
		{"without activations", "NVIDIA/", func(e *Engine) { e.Activations = 0 }},
		{"without half_tokens", "NVIDIA/", func(e *Engine) { e.HalfTokens = 0 }},
		{"without kv_shared_group", "NVIDIA/", func(e *Engine) { e.SharedGroup, e.SharedReread = 0, 0 }},
		{"as it is", "offline", allConstants},
		{"with half_tokens", "offline", func(e *Engine) { e.HalfTokens = 64 }},
		{"with kv_reread", "offline", func(e *Engine) { e.Reread = 0.1 }},
		{"with prompt_layer_ms", "offline", func(e *Engine) { e.PromptLayer = 0.02 }},
		{"without activations", "offline", func(e *Engine) { e.Activations = 0 }},
		{"without rounded", "offline", func(e *Engine) { e.Rounded = 0 }},
		{"without per_layer_ms", "offline", func(e *Engine) { e.Base, e.Layer = 2, 0 }},
		{"without per_seq_ms", "offline", func(e *Engine) { e.Seq = 0 }},
		{"as it is", "V1", allConstants},
		{"with per_served_seq_ms", "V1", func(e *Engine) { e.ServedSeq = 0.02 }},
		{"with half_tokens", "V1", func(e *Engine) { e.HalfTokens = 64 }},
		{"with prompt_base_ms", "V1", func(e *Engine) { e.PromptBase = 0.5 }},
		{"without rounded", "V1", func(e *Engine) { e.Rounded = 0 }},
		{"without per_layer_ms", "V1", func(e *Engine) { e.Base, e.Layer = 2, 0 }},
		{"without activations", "V1", func(e *Engine) { e.Activations = 0 }},
		{"without kv_reread", "V1", func(e *Engine) { e.Reread = 0 }},
		{"as it is", "ROCm/", allConstants},
		{"without half_tokens", "ROCm/", func(e *Engine) { e.HalfTokens = 0 }},
		{"as it is", "FreedomIntelligence/", allConstants},
		{"without per_served_seq_ms", "FreedomIntelligence/", func(e *Engine) { e.ServedSeq = 0 }},
		{"without expert_launches", "FreedomIntelligence/", func(e *Engine) { e.ExpertLaunches = 0 }},
		{"without multiprocessor_gb_s", "FreedomIntelligence/", func(e *Engine) { e.Processor = 0 }},
		{"without rounded", "FreedomIntelligence/", func(e *Engine) { e.Rounded = 0 }},
		{"with half_tokens", "FreedomIntelligence/", func(e *Engine) { e.HalfTokens = 64 }},
		{"without per_layer_ms", "FreedomIntelligence/", func(e *Engine) { e.Base, e.Layer = 2, 0 }},
		{"without graph_context", "FreedomIntelligence/", func(e *Engine) { e.GraphContext = 0 }},
		{"without activations", "FreedomIntelligence/", func(e *Engine) { e.Activations = 0 }},
		{"with prompt_base_ms", "FreedomIntelligence/", func(e *Engine) { e.PromptBase = 0.5 }},
		{"without per_seq_ms", "FreedomIntelligence/", func(e *Engine) { e.Seq = 0 }},
	}
	least := map[string]float64{}
	for _, f := range forms {
		points := slices.DeleteFunc(fittedHalves(""), func(p measurement) bool {
			return !strings.HasPrefix(publisher(p), f.publisher) || slices.Contains(blind, p.GPU)
		})
		fitted := fitGroup{engine: points[0].Engine, points: points}.fit(t, f.change)
		one, many := fitted.leftOut(point), fitted.leftOut(load)
		t.Logf("%s %s: one left out %.3f, a load %.3f", f.publisher, f.name, one, many)
		if _, ok := least[f.publisher]; !ok {
			least[f.publisher] = one + many
		}
		require.Greater(t, one+many, least[f.publisher]-0.01, f.publisher+f.name)
	}
}

// leftOut returns the root of the mean square of logarithms of predicted over published, of points
// that are left out of the fit with all that id calls the same.
func (f *engineFit) leftOut(id func(measurement) string) float64 {
	by := map[string][]int{}
	for i, p := range f.points {
		by[id(p)] = append(by[id(p)], i)
	}
	sum := 0.0
	for _, left := range by {
		for _, i := range left {
			f.out[i] = true
		}
		x := f.fit(f.x, 6)
		for _, i := range left {
			s, p := f.setups[i], f.points[i]
			s.Engine = p.engine(f.engine(x, f.path[i]).engine())
			off := math.Log(p.on(s.times(16)) / p.Seconds())
			sum += off * off
			f.out[i] = false
		}
	}
	return math.Sqrt(sum / float64(len(f.points)))
}
