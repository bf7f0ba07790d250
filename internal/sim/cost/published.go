package cost

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"sync"
)

// A release has the points of a release on a GPU that were held out, with what was predicted of them, as the
// test of engines writes them.
type release struct {
	Engine    string      `json:"engine"`
	Release   string      `json:"release"`
	GPU       string      `json:"gpu"`
	Published int         `json:"published"` // points, also unsteady ones
	Points    int         `json:"points"`    // of both halves
	Types     []string    `json:"types"`     // of the weights of these
	Experts   bool        `json:"experts"`   // some are of a mixture of experts
	SmallKV   bool        `json:"small_kv"`  // some have keys and values in 8 bits
	HeldOut   []Published `json:"held_out"`
}

// A Published is a published measurement of batches whose size and lengths are known.
type Published struct {
	Engine  string `json:"engine,omitempty"`
	Release string `json:"release,omitempty"` // the version whose constants it belongs to; as Version if absent
	Version string `json:"version"`
	GPU     string `json:"gpu,omitempty"`
	DType   string `json:"dtype"`        // of weights and linear layers
	KV      string `json:"kv,omitempty"` // of keys and values; absent: fp8 if DType is, else 16 bits

	Model   string  `json:"model"`
	Workers int     `json:"workers"`
	Batch   int     `json:"batch"`  // sequences at once
	Prompt  int     `json:"prompt"` // tokens of each sequence
	Output  int     `json:"output"` // tokens of each answer, the mean
	Metric  string  `json:"metric"` // see Seconds
	Value   float64 `json:"value"`
	// tokens in an iteration; 0: prompts have iterations of their own
	Budget int `json:"max_num_batched_tokens,omitempty"`

	Predicted float64 `json:"predicted_s,omitempty"` // s, with the constants of the release on the GPU
}

//go:embed published/held-out.json
var heldOutFile []byte

var releases = sync.OnceValue(func() []release {
	var all []release
	embedded(heldOutFile, &all)
	for i := range all {
		for k := range all[i].HeldOut {
			p := &all[i].HeldOut[k]
			p.Engine, p.Release, p.GPU = all[i].Engine, all[i].Release, all[i].GPU
		}
	}
	return all
})

// HeldOut returns the points of an engine on a GPU that nothing was fitted to.
func HeldOut(engine, release, gpu string) []Published {
	return slices.Clone(releaseOn(engine, release, gpu).HeldOut)
}

// releaseOn returns a release on a GPU, without points if nothing is published of it.
func releaseOn(engine, of, gpu string) release {
	for _, r := range releases() {
		if r.Engine == engine && r.Release == of && r.GPU == gpu {
			return r
		}
	}
	return release{}
}

// Seconds returns what the point took. What is published is tokens of answers a second over all
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

// Error returns how far the prediction is off, relative: 0.1 is 10 % too slow.
func (p Published) Error() float64 { return p.Predicted/p.Seconds() - 1 }

// String says what was measured, but for the engine and the GPU.
func (p Published) String() string {
	return fmt.Sprintf("%s %s on %d, batch %d, %d + %d tokens", p.Model, p.DType, p.Workers, p.Batch, p.Prompt, p.Output)
}

// measured returns the name of the measured quantity.
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

// errorsOf returns the median and the worst error of predictions, and which point that is.
func errorsOf(points []Published) (f Fit, worst Published) {
	var all []float64
	for _, p := range points {
		off := math.Abs(p.Error())
		if all = append(all, off); len(all) == 1 || off > f.Worst {
			f.Worst, worst = off, p
		}
	}
	if len(all) > 0 {
		slices.Sort(all)
		f.Points, f.Median = len(all), all[(len(all)-1)/2]
	}
	return f, worst
}
