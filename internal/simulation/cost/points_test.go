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

type measurement struct {
	Published
	Source string `json:"source"` // repository@commit:file

	// Excluded says why the point is used neither in the fit nor to test it. This was decided before the error of the
	// point was known.
	Excluded string `json:"excluded"`

	// Median is the length of the median prompt, in tokens. The file states it where Value is the median over requests
	// that were sent one after the other. For other points, Median is the same as Prompt.
	Median   int     `json:"prompt_p50"`
	Longest  int     `json:"longest"`  // tokens of the longest answer; absent: all are equally long
	Computed int     `json:"computed"` // tokens of a prompt that are computed and not cached; 0: all
	TTFT     float64 `json:"ttft_ms"`  // where both are published, in place of Value:
	TPOT     float64 `json:"tpot_ms"`  // a request takes TTFT and Output - 1 times TPOT
}

var publishedPoints = sync.OnceValue(func() (all []measurement) {
	var sources []struct {
		measurement
		Points []json.RawMessage `json:"points"`
	}
	text, err := os.ReadFile("published/vllm-v1.json")
	if err == nil {
		err = json.Unmarshal(text, &sources)
	}
	if err != nil {
		panic(err)
	}
	for _, s := range sources {
		for _, text := range s.Points {
			p := s.measurement
			if err := json.Unmarshal(text, &p); err != nil {
				panic(err)
			}
			p.Longest = cmp.Or(p.Longest, p.Output)
			p.Median = cmp.Or(p.Median, p.Prompt)
			p.Value = cmp.Or(p.Value, p.TTFT+float64(p.Output-1)*p.TPOT)
			all = append(all, p)
		}
	}
	return all
})

// halves divides the points of a GPU into two halves, regardless of the measured values. It sorts them by the SHA-256
// of their descriptions. The first, the third and so on are fitted. A description contains the GPU, so a load may be
// fitted on one GPU and held out on another.
func halves(gpu string) (fitted, heldOut []measurement) {
	var all []measurement
	for _, p := range publishedPoints() {
		if p.GPU == gpu && p.Excluded == "" {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b measurement) int {
		first, second := a.digest(), b.digest()
		return bytes.Compare(first[:], second[:])
	})
	return alternate(all)
}

// alternate divides a list: fitted gets the first element, the third and so on, and heldOut the others.
func alternate[T any](all []T) (fitted, heldOut []T) {
	for i, v := range all {
		if i%2 == 0 {
			fitted = append(fitted, v)
		} else {
			heldOut = append(heldOut, v)
		}
	}
	return fitted, heldOut
}

func (p measurement) digest() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "0.10-0.20|%s|%s|%d|%s|%s|%d|%d|%d", p.GPU, p.Model, p.Workers, p.DType, p.Metric,
		p.Prompt, p.Output, p.Batch))
}

func fittedHalves() (all []measurement) {
	for _, gpu := range MeasuredGPUs() {
		fitted, _ := halves(gpu)
		all = append(all, fitted...)
	}
	return all
}

// errorsWith returns the errors of an engine's predictions, and the point with the largest error.
func errorsWith(t *testing.T, points []measurement, e Engine) (Fit, Published) {
	var all []Published
	for _, p := range points {
		p.Predicted = p.predict(t, e)
		all = append(all, p.Published)
	}
	return errorsOf(all)
}

func (p measurement) predict(t *testing.T, e Engine) float64 {
	s, err := p.setup(e)
	require.NoError(t, err)
	return p.predicted(timed(t, s))
}

func (p measurement) setup(e Engine) (Setup, error) {
	s, err := New(p.Model, p.GPU, p.Workers)
	if err != nil {
		return Setup{}, err
	}
	s.Engine = e
	return s.Quantised(p.DType, p.KV)
}

// predicted returns the time that a model predicts for the point. For every iteration of an answer, it takes the time
// of an iteration in the middle of the answer. Times are nearly linear in the context, so this is about the mean. For a
// first token, it takes the iterations that compute the prompt.
func (p measurement) predicted(m *Model) float64 {
	switch p.Metric {
	case "token_ms":
		return m.Seconds(p.decodes(1))
	case "first_token_ms":
		return p.prefill(m)
	case "tokens_per_s":
		return p.batch(m)
	}
	return p.cycle(m)
}

func (p measurement) decodes(n float64) Work {
	context := float64(p.Median) + float64(p.Output+p.Longest+2)/4
	return Work{Seqs: int(math.Round(n)), Context: int(n * context)}
}

func (p measurement) computed() (tokens, pairs float64) {
	prompt := float64(p.Median)
	tokens = prompt
	if p.Computed > 0 {
		tokens = float64(p.Computed)
	}
	return tokens, tokens*(prompt-tokens) + tokens*(tokens+1)/2
}

func (p measurement) addPrompts(w Work, prompts float64) Work {
	tokens, pairs := p.computed()
	w.Prompt, w.PromptContext = int(prompts*tokens), int64(prompts*pairs)
	return w
}

func (p measurement) prefill(m *Model) float64 {
	tokens, _ := p.computed()
	chunks := math.Ceil(tokens / float64(p.Budget))
	w := p.addPrompts(Work{Seqs: 1}, 1/chunks)
	return chunks * m.Seconds(w)
}

// batch returns the time of a batch whose prompts arrive at once. The first iterations compute the prompts. They also
// compute tokens for the sequences whose prompts are complete: on average, half of all sequences. Each further token of
// the longest answer takes one more iteration. If answers differ in length, fewer sequences are running on average.
func (p measurement) batch(m *Model) float64 {
	n := float64(p.Batch)
	tokens, _ := p.computed()
	chunks := math.Ceil(n * tokens / float64(p.Budget))
	running := n * float64(p.Output-1) / float64(p.Longest-1)
	prompts := m.Seconds(p.addPrompts(p.decodes(n/2), n/chunks))
	return chunks*prompts + float64(p.Longest-1)*m.Seconds(p.decodes(running))
}

// cycle returns the time in which every client gets one answer. A cycle has the iterations that compute the prompt of
// one answer, and one iteration for each token after the first. The token budgets of these iterations may be too small
// for the prompts of all clients. The cycle then has as many iterations as these prompts need.
//
// The clients are at different points of their answers, so the number of prompts in an iteration is random. If the mean
// of this number is x, the probability that an iteration computes at least one prompt is 1 - e^-x.
func (p measurement) cycle(m *Model) float64 {
	clients := float64(p.Batch)
	tokens, _ := p.computed()
	rest := float64(max(1, p.Budget-p.Batch))
	chunks := math.Ceil(tokens / rest)
	iterations := max(float64(p.Output-1)+chunks, clients*tokens/rest)
	// share is the fraction of the iterations that compute prompts.
	share := max(1-math.Exp(-clients*chunks/iterations), clients*tokens/iterations/rest)
	running := p.decodes(clients * float64(p.Output) / iterations)
	prompts := m.Seconds(p.addPrompts(running, clients/(iterations*share)))
	return iterations * (share*prompts + (1-share)*m.Seconds(running))
}
