package cost

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

//go:embed published/points.json
var publishedJSON []byte

// A Published is a measurement that somebody has published: a batch that is
// prefilled at once and decodes until all its answers are complete.
type Published struct {
	Engine  string  `json:"engine"`
	Version string  `json:"version"`
	GPU     string  `json:"gpu"`
	Source  string  `json:"source"` // repository@commit:file
	DType   string  `json:"dtype"`  // of weights and linear layers; with fp8 keys and values are, too
	Model   string  `json:"model"`
	Workers int     `json:"workers"`
	Batch   int     `json:"batch"`
	Prompt  int     `json:"prompt"` // tokens of each sequence
	Output  int     `json:"output"`
	Metric  string  `json:"metric"` // tokens_per_s of answers on all workers, or first_token_ms
	Value   float64 `json:"value"`
}

// PublishedPoints are all that are known, in the order of the file.
func PublishedPoints() []Published {
	var all []Published
	if err := json.Unmarshal(publishedJSON, &all); err != nil {
		panic(err) // it is embedded
	}
	return all
}

// Setup is what the point was measured on, with an engine.
func (p Published) Setup(e Engine) (Setup, error) {
	s, err := New(p.Model, p.GPU, p.Workers)
	if err != nil {
		return Setup{}, err
	}
	s.Engine = e
	if p.DType == "fp8" {
		s.LLM.ParameterBytes, s.LLM.KVBytes, s.LLM.Computed = 1, 1, "fp8"
	}
	return s, s.check()
}

// Seconds is what the point took: until the first token, or for the batch.
func (p Published) Seconds() float64 {
	if p.Metric == "first_token_ms" {
		return p.Value * milli
	}
	return float64(p.Batch*p.Output) / p.Value
}

// Predict is what a setup makes of it.
func (p Published) Predict(e Engine) (float64, error) {
	s, err := p.Setup(e)
	if err != nil {
		return 0, err
	}
	m, err := s.Model(16)
	if err != nil {
		return 0, err
	}
	n := int64(p.Prompt)
	t := m.Seconds(Work{Seqs: p.Batch, Prompt: p.Batch * p.Prompt, PromptContext: int64(p.Batch) * n * (n + 1) / 2})
	if steps := p.Output - 1; steps > 0 {
		context := p.Batch * (2*p.Prompt + p.Output + 1) / 2 // at the middle: time is a line in the context
		t += float64(steps) * m.Seconds(Work{Seqs: p.Batch, Context: context})
	}
	return t, nil
}

// Split divides the points of a GPU in two halves without looking at their values:
// sorted by metric and lengths and then by model, every second one of a load is
// held out, and of the next load the others, so that both halves have every model
// and every kind of load.
func Split(engine, gpu string) (fitted, heldOut []Published) {
	var all []Published
	for _, p := range PublishedPoints() {
		if p.Engine == engine && p.GPU == gpu {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b Published) int {
		return cmp.Or(cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Prompt, b.Prompt), cmp.Compare(a.Output, b.Output), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Batch, b.Batch))
	})
	loads, position := 0, 0
	for i, p := range all {
		if position++; i > 0 && (p.Metric != all[i-1].Metric || p.Prompt != all[i-1].Prompt || p.Output != all[i-1].Output) {
			loads, position = loads+1, 0
		}
		if (loads+position)%2 == 0 {
			fitted = append(fitted, p)
		} else {
			heldOut = append(heldOut, p)
		}
	}
	return fitted, heldOut
}

// Errors are those of predictions, relative: the median and the worst.
func Errors(points []Published, e Engine) (Fit, error) {
	var all []float64
	for _, p := range points {
		t, err := p.Predict(e)
		if err != nil {
			return Fit{}, fmt.Errorf("%s on %s: %w", p.Model, p.GPU, err)
		}
		all = append(all, math.Abs(t/p.Seconds()-1))
	}
	if len(all) == 0 {
		return Fit{}, nil
	}
	slices.Sort(all)
	return Fit{len(all), all[(len(all)-1)/2], all[len(all)-1]}, nil
}

// FitEngine finds the parts of peaks that are reached, and the overheads, with
// the least squares of logarithms of predicted over measured: one part after the
// other is changed by a step that becomes smaller. Links to the host are the
// start's.
func FitEngine(points []Published, start Engine) (Engine, error) {
	badness := func(e Engine) (float64, error) {
		if err := e.check(); err != nil {
			return math.Inf(1), nil
		}
		sum := 0.0
		for _, p := range points {
			t, err := p.Predict(e)
			if err != nil {
				return 0, err
			}
			d := math.Log(t / p.Seconds())
			sum += d * d
		}
		return sum, nil
	}
	best := start
	least, err := badness(best)
	if err != nil {
		return best, err
	}
	for step := 1.6; step > 1.005; {
		better := false
		for part := range 8 {
			for _, factor := range []float64{step, 1 / step} {
				e := best
				v := []*float64{&e.Weights, &e.Compute, &e.Attention, &e.PromptAttention, &e.WorkerLink, &e.Layer, &e.Seq, &e.Reread}[part]
				*v *= factor
				got, err := badness(e)
				if err != nil {
					return best, err
				}
				if got < least*(1-1e-6) {
					best, least, better = e, got, true
				}
			}
		}
		if !better {
			step = math.Sqrt(step)
		}
	}
	return best, nil
}
