package cost

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"sync"
)

// gpuPoints is an element of held-out.json: the points of vLLM V1 on one GPU that were not used in the fit, and their
// predictions. TestHeldOutPointsHaveTheirPredictions writes this file with -update.
type gpuPoints struct {
	GPU     string      `json:"gpu"`
	Points  int         `json:"points"`   // in both halves
	Types   []string    `json:"types"`    // number formats of the weights in all points
	SmallKV bool        `json:"small_kv"` // some points have keys and values in 8 bits
	HeldOut []Published `json:"held_out"`
}

// A Published is a published measurement of a batch of known size and lengths.
type Published struct {
	Version string `json:"version"`
	GPU     string `json:"gpu,omitempty"`
	DType   string `json:"dtype"`        // of weights and linear layers
	KV      string `json:"kv,omitempty"` // of keys and values; default 16 bits

	Model   string  `json:"model"`
	Workers int     `json:"workers"`
	Batch   int     `json:"batch"`  // concurrent sequences
	Prompt  int     `json:"prompt"` // tokens of each prompt
	Output  int     `json:"output"` // mean tokens of an answer
	Metric  string  `json:"metric"` // see Seconds
	Value   float64 `json:"value"`
	Budget  int     `json:"max_num_batched_tokens"`

	Predicted float64 `json:"predicted_s,omitempty"` // with the constants of the GPU
}

//go:embed published/held-out.json
var heldOutFile []byte

var heldOut = sync.OnceValue(func() []gpuPoints {
	all := *embedded(heldOutFile, new([]gpuPoints))
	for i := range all {
		for k := range all[i].HeldOut {
			all[i].HeldOut[k].GPU = all[i].GPU
		}
	}
	return all
})

// HeldOut returns the points of vLLM V1 on a GPU that were not used in the fit.
func HeldOut(gpu string) []Published { return slices.Clone(pointsOn(gpu).HeldOut) }

// pointsOn returns the points on a GPU. It returns the zero value if none are published.
func pointsOn(gpu string) gpuPoints {
	for _, p := range heldOut() {
		if p.GPU == gpu {
			return p
		}
	}
	return gpuPoints{}
}

// Seconds returns the measured time in seconds. Metric determines what Value is:
//
//   - tokens_per_s: generated tokens per second of all workers, for a batch that is prefilled at once
//   - closed_tokens_per_s: generated tokens per second, for clients that send the next prompt when they have an answer
//   - first_token_ms, token_ms: time to the first token, and time between tokens
//   - closed_request_ms: time from a client's prompt to the end of its answer
func (p Published) Seconds() float64 {
	switch p.Metric {
	case "first_token_ms", "token_ms", "closed_request_ms":
		return p.Value * milli
	}
	return float64(p.Batch*p.Output) / p.Value
}

// Error returns the relative error of the prediction: 0.1 means that the predicted time is 10 % too long.
func (p Published) Error() float64 { return p.Predicted/p.Seconds() - 1 }

// String describes the measured batch, without the GPU.
func (p Published) String() string {
	return fmt.Sprintf("%s %s on %d, batch %d, %d + %d tokens", p.Model, p.DType, p.Workers, p.Batch, p.Prompt, p.Output)
}

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

func errorsOf(points []Published) (f Fit, worst Published) {
	var all []float64
	for _, p := range points {
		deviation := math.Abs(p.Error())
		if all = append(all, deviation); len(all) == 1 || deviation > f.Worst {
			f.Worst, worst = deviation, p
		}
	}
	if len(all) > 0 {
		slices.Sort(all)
		f.Points, f.Median = len(all), all[(len(all)-1)/2]
	}
	return f, worst
}
