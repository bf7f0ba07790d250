package cost

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// fit finds the constants of each release and GPU.
func (g fitGroup) fit(t *testing.T) *engineFit {
	f, err := newFit(g.points, startOf(g.points))
	require.NoError(t, err)
	f.x = f.fit(f.x, 100)
	return f
}

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
