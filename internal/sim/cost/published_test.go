package cost

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A measurement is a published point with what it takes to predict it.
type measurement struct {
	Published
	Source string `json:"source"` // repository@commit:file

	// Excluded is why a point is in neither half: a reason that was known without its error.
	Excluded string `json:"excluded"`
	// Unsteady is how far the repeats that are published with it differ, if by more than 15 %: it keeps its
	// place in the order, but is in neither half.
	Unsteady string `json:"unsteady"`
	Later    bool   `json:"later"` // added when errors of the other half had been seen: it is fitted

	// tokens of the median prompt, if Value is the median of requests one after the other; absent: Prompt
	Median   int     `json:"prompt_p50"`
	Longest  int     `json:"longest"`  // tokens of the longest answer; absent: all are equally long
	Computed int     `json:"computed"` // tokens of a prompt that are computed, the others are cached; 0: all
	TTFT     float64 `json:"ttft_ms"`  // where both are published, in place of Value:
	TPOT     float64 `json:"tpot_ms"`  // a request takes TTFT and Output - 1 times TPOT

	// Work are the iterations of requests that come at once. Each row is a group of similar ones: their number, and the
	// means of their Seqs, Context, Prompt and PromptContext (TestIterationsOfOfflineLoads).
	Work [][5]int64 `json:"work"`
}

// publishedPoints returns all that are known, in the order of the file, which lists the points
// of each source together.
func publishedPoints() []measurement { return slices.Clone(published()) }

var published = sync.OnceValue(func() []measurement {
	var all []measurement
	for _, name := range []string{"points", "vllm-v1", "tensorrt-llm-1"} {
		all = append(all, readPublished(name)...)
	}
	return all
})

// readPublished reads a file of published points.
func readPublished(name string) []measurement {
	var sources []struct {
		measurement
		Points []json.RawMessage `json:"points"`
	}
	text, err := os.ReadFile("published/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &sources)
	}
	if err != nil {
		panic(err) // it is embedded
	}
	var all []measurement
	for _, s := range sources {
		for _, text := range s.Points {
			p := s.measurement
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

// Setup returns the model and GPUs of the point, with an engine.
func (p measurement) Setup(e Engine) (Setup, error) {
	s, err := New(p.Model, p.GPU, p.Workers)
	if err != nil {
		return Setup{}, err
	}
	s.Engine = p.engine(e)
	if p.Engine == "tensorrt-llm" && compareReleases(p.Version, "0.6") < 0 {
		// two all-reduces: NVIDIA/TensorRT-LLM@027cd518e3b63809a5c5799187991e7f1164fb12:tensorrt_llm/models/falcon/model.py
		s.LLM.Parallel = false
	}
	return s.Quantised(p.DType, p.kv())
}

// kv returns the type of keys and values; "": the model's.
func (p measurement) kv() string {
	if p.KV == "" && p.DType == "fp8" {
		return "fp8"
	}
	return p.KV
}

// engine returns an engine without what the point was not measured with: TensorRT-LLM's kernel
// for groups (XQA) is of 0.8, and batches need no server.
func (p measurement) engine(e Engine) Engine {
	if !hasSharedKernel(p.Engine, p.Release) {
		e.SharedGroup, e.SharedReread = 0, 0
	}
	if p.Metric == "tokens_per_s" || p.Metric == "batch_s" || p.Work != nil {
		e.ServedSeq = 0 // a batch without a server
	}
	return e
}

// hasSharedKernel returns false before TensorRT-LLM's kernel for groups.
func hasSharedKernel(engine, release string) bool {
	return engine != "tensorrt-llm" || compareReleases(release, "0.8") >= 0
}

// Predict returns the value of the measurement that an engine predicts.
func (p measurement) Predict(e Engine) (float64, error) {
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

// on returns how long it takes with a model of times. Time is all but a line in the context, so
// the middle of an answer stands for all of it; where answers differ, the batch is smaller
// on the average and its sequences are farther on.
func (p measurement) on(m *Model) float64 {
	if p.Work != nil {
		return p.offline(m)
	}
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

// offline returns how long requests take that come at once.
func (p measurement) offline(m *Model) (sum float64) {
	for _, w := range p.Work {
		sum += float64(w[0]) * m.Seconds(Work{Seqs: int(w[1]), Context: int(w[2]), Prompt: int(w[3]), PromptContext: w[4]})
	}
	return sum
}

// delivery returns how long the first token waits until it is sent. vLLM V0's AsyncLLMEngine processes
// the output of an iteration during the next one and returns it at the end of that
// (_AsyncLLMEngine.step_async, async_callback in model_runner.py), so a client sees each token one decode later.
func (p measurement) delivery(m *Model) float64 {
	if p.Engine != "vllm" {
		return 0
	}
	return m.Seconds(Work{Seqs: p.Batch, Context: p.Batch * (p.Median + 1)})
}

// halves divides the points of an engine on a GPU in two halves without looking at their
// values: ordered by the SHA-256 of what they are of, the first, the third and so on are
// fitted. As the GPU is in that text, a load is fitted on some GPUs and held out on others.
// Points that are unsteady count in that order, so that no other point changes its half.
func halves(engine, release, gpu string) (fitted, heldOut []measurement) {
	return split(engine, release, gpu, "")
}

// split returns another division for each salt, which stands before the text that is hashed;
// for "" it is that of halves.
func split(engine, release, gpu, salt string) (fitted, heldOut []measurement) {
	var all, later []measurement
	for _, p := range published() {
		switch {
		case p.Engine != engine || p.Release != release || p.GPU != gpu || p.Excluded != "":
		case !p.Later:
			all = append(all, p)
		case p.Unsteady == "":
			later = append(later, p)
		}
	}
	slices.SortStableFunc(all, func(a, b measurement) int {
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

// digest returns a digest of the fields that identify a point.
func (p measurement) digest(salt string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s%s|%s|%s|%d|%s|%s|%d|%d|%d", salt, p.Release, p.GPU, p.Model, p.Workers,
		p.DType, p.Metric, p.Prompt, p.Output, p.Batch))
}

// errorsWith returns the errors of predictions with an engine, and which point is farthest off.
func errorsWith(t *testing.T, points []measurement, e Engine) (Fit, Published) {
	var all []Published
	for _, p := range points {
		var err error
		p.Predicted, err = p.Predict(e)
		require.NoError(t, err, "%s on %s", p.Model, p.GPU)
		all = append(all, p.Published)
	}
	return errorsOf(all)
}

// requestMS returns how long a request takes of which TTFT and TPOT are published.
func (p measurement) requestMS() float64 { return p.TTFT + float64(p.Output-1)*p.TPOT }

// onChunks returns how long it takes an engine that computes prompts beside decodes.
func (p measurement) onChunks(m *Model) float64 {
	switch p.Metric {
	case "token_ms":
		return m.Seconds(p.decodes(1))
	case "first_token_ms":
		return p.prefill(m)
	case "tokens_per_s", "batch_s":
		return p.batch(m)
	}
	return p.cycle(m)
}

// decodes returns sequences in the middle of their answers.
func (p measurement) decodes(n float64) Work {
	context := float64(p.Median) + float64(p.Output+p.Longest+2)/4
	return Work{Seqs: int(math.Round(n)), Context: int(n * context)}
}

// computed returns the tokens of a prompt that are computed, and what they attend to.
func (p measurement) computed() (tokens, pairs float64) {
	prompt := float64(p.Median)
	tokens = prompt
	if p.Computed > 0 {
		tokens = float64(p.Computed)
	}
	return tokens, tokens*(prompt-tokens) + tokens*(tokens+1)/2
}

// with adds a number of prompts to an iteration.
func (p measurement) with(w Work, prompts float64) Work {
	tokens, pairs := p.computed()
	w.Prompt, w.PromptContext = int(prompts*tokens), int64(prompts*pairs)
	return w
}

// prefill returns a prompt alone, until its first token.
func (p measurement) prefill(m *Model) float64 {
	tokens, _ := p.computed()
	chunks := math.Ceil(tokens / float64(p.Budget))
	w := p.with(Work{Seqs: 1}, 1/chunks)
	return chunks * m.Seconds(w)
}

// batch returns one whose prompts come at once: as many iterations as their tokens fill, in which
// the first ones already decode, and one for each further token of an answer.
func (p measurement) batch(m *Model) float64 {
	n := float64(p.Batch)
	tokens, _ := p.computed()
	chunks := math.Ceil(n * tokens / float64(p.Budget))
	running := n * float64(p.Output-1) / float64(p.Longest-1)
	prompts := m.Seconds(p.with(p.decodes(n/2), n/chunks))
	return chunks*prompts + float64(p.Longest-1)*m.Seconds(p.decodes(running))
}

// cycle returns the time in which each of the clients has one answer. They are at different places of
// theirs, so an iteration has as many new prompts as chance makes it: none with the
// probability e^-x, if there are x on the average. If the prompts of a cycle do not fit in the iterations that
// answers take, there are more of these.
func (p measurement) cycle(m *Model) float64 {
	clients := float64(p.Batch)
	tokens, _ := p.computed()
	room := float64(max(1, p.Budget-p.Batch))
	chunks := math.Ceil(tokens / room)
	iterations := max(float64(p.Output-1)+chunks, clients*tokens/room)
	with := max(1-math.Exp(-clients*chunks/iterations), clients*tokens/iterations/room)
	running := p.decodes(clients * float64(p.Output) / iterations)
	prompts := m.Seconds(p.with(running, clients/(iterations*with)))
	return iterations * (with*prompts + (1-with)*m.Seconds(running))
}
