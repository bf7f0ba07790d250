package sim

import (
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

// A Result is what a run measured: counts of requests and tokens, latencies in seconds and
// memory in blocks, over the whole run; Window covers only Config.From to Config.Until.
type Result struct {
	Seconds    float64 `json:"seconds"` // simulated
	Iterations int     `json:"iterations"`

	Arrived  int    `json:"arrived"`  // requests
	Answered int    `json:"answered"` // of these
	Refused  int    `json:"refused"`  // too long for the system, or for its memory
	Dropped  int    `json:"dropped"`  // accepted, and then found never to fit
	Refusal  string `json:"refusal,omitempty"`

	// Per request, in seconds. Normalized is the end-to-end latency by the
	// tokens of the answer, the paper's metric; TTFT is to the first token; TPOT is the
	// mean from token to token after it, of answers with more than one.
	Normalized Spread `json:"normalized"`
	EndToEnd   Spread `json:"endToEnd"`
	TTFT       Spread `json:"first"`
	TPOT       Spread `json:"between"`

	// Of Config.Goodput: requests that keep every limit, and how many of them a second.
	Good    int     `json:"good,omitempty"`
	Goodput float64 `json:"goodput,omitempty"`

	Generated  int `json:"generated"`  // tokens of answers
	Prompted   int `json:"prompted"`   // tokens of prompts that were computed, those computed again included
	Hits       int `json:"hits"`       // tokens of prompts that were found in a cache
	Recomputed int `json:"recomputed"` // preemptions that lost their blocks
	Swapped    int `json:"swapped"`    // preemptions to the CPU
	SwapBlocks int `json:"swapBlocks"` // moved, in both directions
	CopyBlocks int `json:"copyBlocks"` // copy-on-write

	// In the window, averages over iterations as in the artifact's scripts.
	Window Window `json:"window"`
}

// Goodput are limits of one request's latencies in seconds, as of vLLM's "bench serve
// --goodput": to the first token, from token to token, and of the whole answer. 0: none.
type Goodput struct {
	TTFT float64 `json:"first,omitempty"`
	TPOT float64 `json:"between,omitempty"`
	E2E  float64 `json:"whole,omitempty"`
}

// keeps reports whether an answer with these latencies is within all limits.
func (g Goodput) keeps(first, between, whole float64) bool {
	within := func(v, limit float64) bool { return limit == 0 || v <= limit }
	return within(first, g.TTFT) && within(between, g.TPOT) && within(whole, g.E2E)
}

// A Departure is a request that has left, its times in seconds.
type Departure struct {
	Index                int   // of the request, in the order of arrival, from 0
	Session              int64 // of a turn
	Arrival, First, Done float64
	Output               int  // tokens
	Answered             bool // else it was refused or dropped, and First means nothing
}

// A Window is averages over the iterations between two times.
type Window struct {
	Iterations int     `json:"iterations"`
	Requests   float64 `json:"requests"` // that have memory: Fig. 13's batched requests
	Sequences  float64 `json:"sequences"`
	Waiting    float64 `json:"waiting"`      // requests
	Milli      float64 `json:"milliseconds"` // of an iteration

	// Parts of the memory, which add up to 1 (paper Fig. 2): slots with tokens;
	// slots that tokens will come to; slots that a sequence has and never uses;
	// the rest, which is free or lost to rounding.
	Tokens      float64 `json:"tokens"`
	Reservation float64 `json:"reservation"`
	Internal    float64 `json:"internal"`
	External    float64 `json:"external"`

	// Saving is the part of the block table entries that needs no block of its
	// own because it is shared: 1 - 1/mean(entries/blocks) (paper Fig. 15).
	Saving float64 `json:"saving"`
}

// A window sums up iterations.
type window struct {
	from, until float64
	sum         Window  // with seconds in place of milliseconds
	sharing     float64 // entries by blocks, where there are blocks
	shared      int
}

func (w *window) within(now float64) bool { return now >= w.from && (w.until == 0 || now < w.until) }

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

// An Observer sees a run from inside. Errors end the run.
type Observer interface {
	// Observe is called after each step of the scheduler, before its tokens are
	// there. It may read the scheduler and must not keep the iteration.
	Observe(now float64, it *serve.Iteration) error
	// Reforked is called when a beam has become a copy of another one.
	Reforked(id, child, parent int, copies ...device.Pair)
	// Finished is called after requests have left. Their ids are used again.
	Finished(now float64, ids ...int) error
}
