package cost

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
)

//go:embed published
var publishedFiles embed.FS

// A Published is a measurement that somebody has published, of batches whose size and
// lengths are known.
type Published struct {
	Engine  string `json:"engine"`
	Release string `json:"release"` // the version whose constants it belongs to; as Version if absent
	Version string `json:"version"`
	GPU     string `json:"gpu"`
	Source  string `json:"source"` // repository@commit:file
	DType   string `json:"dtype"`  // of weights and linear layers
	KV      string `json:"kv"`     // of keys and values; absent: fp8 if DType is, else 16 bits

	// Excluded is why a point is in neither half: a reason that was known without its error.
	Excluded string `json:"excluded"`
	// Unsteady is how far repeats of it that are published with it differ, if by more than 15 %:
	// it keeps its place in the division, but is in neither half.
	Unsteady string `json:"unsteady"`
	Later    bool   `json:"later"` // added when errors of the other half had been seen: it is fitted

	Model   string  `json:"model"`
	Workers int     `json:"workers"`
	Batch   int     `json:"batch"`      // sequences at once
	Prompt  int     `json:"prompt"`     // tokens of each sequence
	Median  int     `json:"prompt_p50"` // tokens of the median prompt, where Value is the median of requests one after the other; absent: Prompt
	Output  int     `json:"output"`     // tokens of each answer, the mean
	Longest int     `json:"longest"`    // tokens of the longest answer; absent: all are equally long
	Metric  string  `json:"metric"`     // see Seconds
	Value   float64 `json:"value"`

	chunked
}

// PublishedPoints are all that are known, in the order of the file, which lists the points
// of each source together.
func PublishedPoints() []Published { return slices.Clone(published()) }

var published = sync.OnceValue(func() []Published {
	var all []Published
	for _, name := range []string{"points", "vllm-v1"} {
		all = append(all, readPublished(name)...)
	}
	return all
})

// readPublished reads a file of published points.
func readPublished(name string) []Published {
	var sources []struct {
		Published
		Points []json.RawMessage `json:"points"`
	}
	text, err := publishedFiles.ReadFile("published/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &sources)
	}
	if err != nil {
		panic(err) // it is embedded
	}
	var all []Published
	for _, s := range sources {
		for _, text := range s.Points {
			p := s.Published
			if err := json.Unmarshal(text, &p); err != nil {
				panic(err)
			}
			p.Release = cmp.Or(p.Release, p.Version)
			p.Longest = cmp.Or(p.Longest, p.Output)
			p.Median = cmp.Or(p.Median, p.Prompt)
			p.Value = cmp.Or(p.Value, p.requestMS())
			all = append(all, p)
		}
	}
	return all
}

// Setup is what the point was measured on, with an engine.
func (p Published) Setup(e Engine) (Setup, error) {
	s, err := New(p.Model, p.GPU, p.Workers)
	if err != nil {
		return Setup{}, err
	}
	s.Engine = p.engine(e)
	if p.Engine == "tensorrt-llm" && compareReleases(p.Version, "0.6") < 0 {
		s.LLM.Parallel = false // two all-reduces: NVIDIA/TensorRT-LLM@027cd518e3b63809a5c5799187991e7f1164fb12:tensorrt_llm/models/falcon/model.py
	}
	return s.Quantised(p.DType, p.kv())
}

// kv is what keys and values are in; "": as the model has them.
func (p Published) kv() string {
	if p.KV == "" && p.DType == "fp8" {
		return "fp8"
	}
	return p.KV
}

// engine is an engine without what the point was not measured with: TensorRT-LLM's kernel
// for groups (XQA) is of 0.8, and batches need no server.
func (p Published) engine(e Engine) Engine {
	if !hasSharedKernel(p.Engine, p.Release) {
		e.SharedGroup, e.SharedReread = 0, 0
	}
	if p.Metric == "tokens_per_s" || p.Metric == "batch_s" {
		e.ServedSeq = 0 // a batch without a server
	}
	return e
}

// hasSharedKernel is false before TensorRT-LLM's kernel for groups.
func hasSharedKernel(engine, release string) bool {
	return engine != "tensorrt-llm" || compareReleases(release, "0.8") >= 0
}

// Seconds is what the point took. What is published is tokens of answers a second over all
// workers of a batch that is prefilled at once (tokens_per_s) or of clients that send
// their next prompt when they have an answer (closed_tokens_per_s), seconds of such a batch
// (batch_s), ms to the first token (first_token_ms) or from token to token (token_ms), or ms
// from a client's prompt to the end of its answer (closed_request_ms).
func (p Published) Seconds() float64 {
	switch p.Metric {
	case "first_token_ms", "token_ms", "closed_request_ms":
		return p.Value * milli
	case "batch_s":
		return p.Value
	}
	return float64(p.Batch*p.Output) / p.Value
}

// Predict is what an engine makes of it.
func (p Published) Predict(e Engine) (float64, error) {
	s, err := p.Setup(e)
	if err != nil {
		return 0, err
	}
	m, err := s.Model(16)
	if err != nil {
		return 0, err
	}
	return p.on(m), nil
}

// on is how long it takes with a model of times. Time is all but a line in the context, so
// the middle of an answer stands for all of it; where answers differ, the batch is smaller
// on the average and its sequences are farther on.
func (p Published) on(m *Model) float64 {
	if p.Budget > 0 {
		return p.onChunks(m)
	}
	prompt := p.Median
	prefill := func(seqs int) float64 {
		n := int64(prompt)
		return m.Seconds(Work{Seqs: seqs, Prompt: seqs * prompt, PromptContext: int64(seqs) * n * (n + 1) / 2})
	}
	steps := p.Longest - 1
	if steps == 0 {
		return prefill(p.Batch) + p.delivery(m)
	}
	running := int(math.Round(float64(p.Batch*(p.Output-1)) / float64(steps)))
	step := m.Seconds(Work{Seqs: running, Context: running * (4*prompt + p.Output + p.Longest + 2) / 4})
	switch p.Metric {
	case "token_ms":
		return step
	case "closed_tokens_per_s": // prompts have iterations of their own, as in vLLM V0
		return float64(steps)*step + float64(p.Batch)*prefill(1)
	}
	return prefill(p.Batch) + float64(steps)*step
}

// delivery is how long the first token waits until it is sent. vLLM V0's AsyncLLMEngine processes
// the output of an iteration during the next one and returns it at the end of that
// (_AsyncLLMEngine.step_async, async_callback in model_runner.py), so a client sees each token one decode later.
func (p Published) delivery(m *Model) float64 {
	if p.Engine != "vllm" {
		return 0
	}
	return m.Seconds(Work{Seqs: p.Batch, Context: p.Batch * (p.Median + 1)})
}

// Split divides the points of an engine on a GPU in two halves without looking at their
// values: ordered by the SHA-256 of what they are of, the first, the third and so on are
// fitted. As the GPU is in that text, a load is fitted on some GPUs and held out on others.
// Points that are unsteady count in that order, so that no other point changes its half.
func Split(engine, release, gpu string) (fitted, heldOut []Published) {
	return split(engine, release, gpu, "")
}

// split is another division for each salt, which stands before the text that is hashed;
// for "" it is that of Split.
func split(engine, release, gpu, salt string) (fitted, heldOut []Published) {
	var all, later []Published
	for _, p := range published() {
		switch {
		case p.Engine != engine || p.Release != release || p.GPU != gpu || p.Excluded != "":
		case !p.Later:
			all = append(all, p)
		case p.Unsteady == "":
			later = append(later, p)
		}
	}
	slices.SortStableFunc(all, func(a, b Published) int {
		first, second := a.digest(salt), b.digest(salt)
		return bytes.Compare(first[:], second[:])
	})
	for i, p := range all {
		switch {
		case p.Unsteady != "":
		case i%2 == 0:
			fitted = append(fitted, p)
		default:
			heldOut = append(heldOut, p)
		}
	}
	return append(fitted, later...), heldOut
}

// digest is that of the fields that tell a point from the others, as text.
func (p Published) digest(salt string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s%s|%s|%s|%d|%s|%s|%d|%d|%d", salt, p.Release, p.GPU, p.Model, p.Workers, p.DType, p.Metric, p.Prompt, p.Output, p.Batch))
}

// String says what was measured, but for the engine and the GPU.
func (p Published) String() string {
	return fmt.Sprintf("%s %s on %d, batch %d, %d + %d tokens", p.Model, p.DType, p.Workers, p.Batch, p.Prompt, p.Output)
}

// measured is what its value is of, in words.
func (p Published) measured() string {
	switch p.Metric {
	case "first_token_ms":
		return "first token"
	case "token_ms":
		return "time per token"
	case "closed_tokens_per_s", "closed_request_ms":
		return "clients in a closed loop"
	}
	return "one batch"
}

// Errors are those of predictions, relative: the median and the worst, and which that is.
func Errors(points []Published, e Engine) (Fit, Published, error) {
	var all []float64
	var worst Published
	most := -1.0
	for _, p := range points {
		t, err := p.Predict(e)
		if err != nil {
			return Fit{}, p, fmt.Errorf("%s on %s: %w", p.Model, p.GPU, err)
		}
		off := math.Abs(t/p.Seconds() - 1)
		if all = append(all, off); off > most {
			worst, most = p, off
		}
	}
	if len(all) == 0 {
		return Fit{}, worst, nil
	}
	slices.Sort(all)
	return Fit{Points: len(all), Median: all[(len(all)-1)/2], Worst: most}, worst, nil
}
