package sim

import (
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

// A Result has the measurements of a run. All but Window cover the whole run; Window covers the time from
// Config.From to Config.Until.
type Result struct {
	Seconds    float64 `json:"seconds"` // simulated
	Iterations int     `json:"iterations"`

	Arrived  int    `json:"arrived"`  // requests
	Answered int    `json:"answered"` // of the arrived
	Refused  int    `json:"refused"`  // too long for the system, or for its memory
	Dropped  int    `json:"dropped"`  // accepted, but too large to ever run
	Refusal  string `json:"refusal,omitempty"`

	// Latencies of requests in seconds. Normalized, the paper's metric, is the end-to-end latency divided by the number
	// of tokens of the answer. TTFT is the time to the first token. TPOT is the mean time between tokens, for answers
	// with more than one token.
	Normalized Spread `json:"normalized"`
	EndToEnd   Spread `json:"endToEnd"`
	TTFT       Spread `json:"first"`
	TPOT       Spread `json:"between"`

	// requests within all limits of Config.Goodput, and their number per second
	Good    int     `json:"good,omitempty"`
	Goodput float64 `json:"goodput,omitempty"`

	Generated  int `json:"generated"`  // tokens of answers
	Prompted   int `json:"prompted"`   // computed prompt tokens, including those computed again
	Hits       int `json:"hits"`       // prompt tokens that were found in a cache
	Recomputed int `json:"recomputed"` // preemptions by recomputation
	Swapped    int `json:"swapped"`    // preemptions to the CPU
	SwapBlocks int `json:"swapBlocks"` // moved, in both directions
	CopyBlocks int `json:"copyBlocks"` // copy-on-write

	// averages over iterations, as in the artifact's scripts
	Window Window `json:"window"`
}

// Goodput has limits of a request's latencies, in seconds, as vLLM's "bench serve --goodput" does. 0 means no limit.
type Goodput struct {
	TTFT float64 `json:"first,omitempty"`
	TPOT float64 `json:"between,omitempty"`
	E2E  float64 `json:"whole,omitempty"`
}

func (g Goodput) keeps(ttft, tpot, e2e float64) bool {
	meets := func(v, limit float64) bool { return limit == 0 || v <= limit }
	return meets(ttft, g.TTFT) && meets(tpot, g.TPOT) && meets(e2e, g.E2E)
}

// A Departure describes a request that has left the server. Times are in seconds.
type Departure struct {
	Index                int   // in the order of arrival, from 0
	Session              int64 // 0 if no turn follows
	Arrival, First, Done float64
	Output               int  // tokens
	Answered             bool // false if the request was refused or dropped; First is then not valid
}

// A Window has averages over the iterations between two times.
type Window struct {
	Iterations int     `json:"iterations"`
	Requests   float64 `json:"requests"` // requests with memory: the batched requests of Fig. 13
	Sequences  float64 `json:"sequences"`
	Waiting    float64 `json:"waiting"`      // requests
	Milli      float64 `json:"milliseconds"` // of an iteration

	// The memory's slots by use, as fractions that add up to 1 (paper Fig. 2). Tokens: slots with keys and values.
	// Reservation: reserved for tokens that will be generated. Internal: allocated to a sequence, but neither filled
	// nor reserved, such as the empty slots of its last block. External: free, or lost to rounding.
	Tokens      float64 `json:"tokens"`
	Reservation float64 `json:"reservation"`
	Internal    float64 `json:"internal"`
	External    float64 `json:"external"`

	// Saving is the fraction of blocks saved by sharing: 1 - 1/mean(block table entries/blocks) (paper Fig. 15).
	Saving float64 `json:"saving"`
}

// A window has sums over iterations.
type window struct {
	start, end float64
	sum        Window  // with seconds in place of milliseconds
	sharing    float64 // sum over iterations with blocks of the block table entries divided by the blocks
	shared     int     // number of these iterations
}

func (w *window) contains(now float64) bool { return now >= w.start && (w.end == 0 || now < w.end) }

func (w *window) average() Window {
	a := w.sum
	if a.Iterations == 0 {
		return a
	}
	a.Milli *= 1000
	for _, v := range []*float64{&a.Requests, &a.Sequences, &a.Waiting, &a.Milli, &a.Tokens, &a.Reservation, &a.Internal} {
		*v /= float64(a.Iterations)
	}
	a.External = 1 - a.Tokens - a.Reservation - a.Internal
	if w.shared > 0 {
		a.Saving = 1 - float64(w.shared)/w.sharing
	}
	return a
}

// An Observer is called during a run. Errors end the run.
type Observer interface {
	// Observe is called after each step of the scheduler, before the tokens of the step are generated. It may
	// read the scheduler. The iteration is valid until Observe returns.
	Observe(now float64, it *serve.Iteration) error
	// Reforked is called after one sample of a beam was replaced by a copy of another.
	Reforked(id, child, parent int, copies ...device.Pair)
	// Finished is called after requests have left. Their ids are reused.
	Finished(now float64, ids ...int) error
}
