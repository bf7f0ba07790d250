package scenario

import (
	"cmp"
	"fmt"

	"llmmemory/internal/simulation/workload"
)

// A Load is the requests of a run: those of a workload, of a trace, or of given lengths, and when they arrive.
type Load struct {
	Workload string `json:"workload,omitempty"` // sharegpt
	Trace    string `json:"trace,omitempty"`    // a file

	// tokens, instead of these; one that is 0 beside the other is DefaultInputLen or DefaultOutputLen
	InputLen   int     `json:"inputLen,omitempty"`
	OutputLen  int     `json:"outputLen,omitempty"`
	RangeRatio float64 `json:"rangeRatio,omitempty"` // see workload.Random; all are equally long

	Rate       float64 `json:"rate,omitempty"`     // requests/s; 1, of a trace its own
	Duration   float64 `json:"duration,omitempty"` // s of arrivals; 1,000 unless Requests says how many, or the whole trace
	Requests   int     `json:"requests,omitempty"` // most; any number
	Seed       uint64  `json:"seed"`
	Burstiness float64 `json:"burstiness,omitempty"` // shape of the gamma distribution of gaps; 1, Poisson
	AtOnce     bool    `json:"atOnce,omitempty"`     // all come at 0, instead of a rate
}

// What vLLM's "bench serve --dataset-name random" has where only one of the lengths is given.
const (
	DefaultInputLen  = 1024
	DefaultOutputLen = 128
)

func (l *Load) check() error {
	if err := checkAmounts(amount{"a rate of %v requests a second", l.Rate, mostRate},
		amount{"a duration of %v s", l.Duration, mostAmount}, amount{"a burstiness of %v", l.Burstiness,
			mostAmount}); err != nil {
		return err
	}
	switch {
	case l.Requests < 0:
		return bad("%d requests: want at least 1, or 0 for those of the duration", l.Requests)
	case l.Requests == 0 && l.Trace == "" && l.Rate*l.Duration > mostAmount:
		return bad("%g requests a second for %g s: want at most %.0f requests", l.Rate, l.Duration, float64(mostAmount))
	case l.random() && (l.Trace != "" || l.Workload != ""):
		return bad("requests have lengths of their own (--input-len, --output-len, --range-ratio), or are of a workload or a " +
			"trace: take one of them")
	case l.Trace != "" && l.Workload != "":
		return bad("requests are of the workload %q or of the trace %q, not of both", l.Workload, l.Trace)
	case l.Trace != "" && l.Burstiness != 0:
		return bad("a burstiness of %v: a trace says itself when requests come", l.Burstiness)
	case l.AtOnce && (l.Burstiness != 0 || l.Rate != 0 || l.Duration != 0):
		return bad("requests that all come at once have no rate, duration or burstiness")
	case l.AtOnce && l.Trace == "" && l.Requests == 0:
		return bad("requests that all come at once need a number: --requests")
	}
	return nil
}

// random reports whether the load says how long its requests are.
func (l *Load) random() bool { return l.InputLen != 0 || l.OutputLen != 0 || l.RangeRatio != 0 }

// Lengths returns the lengths of requests without a trace.
func (l *Load) Lengths() (workload.Lengths, workload.Info, error) {
	if !l.random() {
		return workload.Named(l.Workload)
	}
	prompt, output := cmp.Or(l.InputLen, DefaultInputLen), cmp.Or(l.OutputLen, DefaultOutputLen)
	lengths, err := workload.Random(prompt, output, l.RangeRatio)
	info := workload.Info{Description: fmt.Sprintf("prompts of %d tokens, answers of %d", prompt, output)}
	if l.RangeRatio > 0 {
		info.Description += fmt.Sprintf(", each up to %.3g %% shorter or longer", 100*l.RangeRatio)
	}
	return lengths, info, err
}
