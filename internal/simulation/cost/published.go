package cost

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"sync"
)

// gpuPoints has the points of vLLM V1 on a GPU that were held out, with what was predicted of them, as
// TestHeldOutPointsHaveTheirPredictions writes them.
type gpuPoints struct {
	GPU     string      `json:"gpu"`
	Points  int         `json:"points"`   // of both halves
	Types   []string    `json:"types"`    // of the weights of these
	SmallKV bool        `json:"small_kv"` // some have keys and values in 8 bits
	HeldOut []Published `json:"held_out"`
}

// A Published is a published measurement of batches whose size and lengths are known.
type Published struct {
	Version string `json:"version"`
	GPU     string `json:"gpu,omitempty"`
	DType   string `json:"dtype"`        // of weights and linear layers
	KV      string `json:"kv,omitempty"` // of keys and values; absent: 16 bits

	Model   string  `json:"model"`
	Workers int     `json:"workers"`
	Batch   int     `json:"batch"`  // sequences at once
	Prompt  int     `json:"prompt"` // tokens of each sequence
	Output  int     `json:"output"` // tokens of each answer, the mean
	Metric  string  `json:"metric"` // see Seconds
	Value   float64 `json:"value"`
	Budget  int     `json:"max_num_batched_tokens"` // tokens in an iteration

	Predicted float64 `json:"predicted_s,omitempty"` // s, with the constants of the GPU
}

//go:embed published/held-out.json
var heldOutFile []byte

var heldOut = sync.OnceValue(func() []gpuPoints {
	var all []gpuPoints
	embedded(heldOutFile, &all)
	for i := range all {
		for k := range all[i].HeldOut {
			all[i].HeldOut[k].GPU = all[i].GPU
		}
	}
	return all
})

// HeldOut returns the points of vLLM V1 on a GPU that nothing was fitted to.
func HeldOut(gpu string) []Published { return slices.Clone(pointsOn(gpu).HeldOut) }

// pointsOn returns the points on a GPU, none if nothing is published on it.
func pointsOn(gpu string) gpuPoints {
	for _, p := range heldOut() {
		if p.GPU == gpu {
			return p
		}
	}
	return gpuPoints{}
}

// Seconds returns what the point took. What is published is tokens of answers a second over all
// workers of a batch that is prefilled at once (tokens_per_s) or of clients that send
// their next prompt when they have an answer (closed_tokens_per_s), ms to the first token
// (first_token_ms) or from token to token (token_ms), or ms
// from a client's prompt to the end of its answer (closed_request_ms).
func (p Published) Seconds() float64 {
	switch p.Metric {
	case "first_token_ms", "token_ms", "closed_request_ms":
		return p.Value * milli
	}
	return float64(p.Batch*p.Output) / p.Value
}

// Error returns how far the prediction is off, relative: 0.1 is 10 % too slow.
func (p Published) Error() float64 { return p.Predicted/p.Seconds() - 1 }

// String says what was measured, but for the GPU.
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
