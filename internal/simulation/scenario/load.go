package scenario

import (
	"cmp"
	"fmt"

	"llmmemory/internal/simulation/workload"
)

// A Load says which requests a run has and when they arrive. Their lengths come from a workload, from a
// trace, or from InputLen, OutputLen and RangeRatio.
type Load struct {
	Workload string `json:"workload,omitempty"` // default "sharegpt"
	Trace    string `json:"trace,omitempty"`    // a file

	// InputLen and OutputLen are in tokens. If InputLen, OutputLen or RangeRatio is set, the others default to
	// DefaultInputLen, DefaultOutputLen, and a RangeRatio of 0, which makes all requests equally long (see
	// workload.Random).
	InputLen   int     `json:"inputLen,omitempty"`
	OutputLen  int     `json:"outputLen,omitempty"`
	RangeRatio float64 `json:"rangeRatio,omitempty"`

	Rate float64 `json:"rate,omitempty"` // requests/s; default 1, or the rate of the trace
	// Duration is the time during which requests arrive, in seconds. The default is 1,000 if there is no trace and
	// Requests is 0. Otherwise there is no limit by default: requests arrive until the trace ends, or until there are
	// as many as Requests.
	Duration   float64 `json:"duration,omitempty"`
	Requests   int     `json:"requests,omitempty"` // maximum number; if 0, there is no limit
	Seed       uint64  `json:"seed"`
	Burstiness float64 `json:"burstiness,omitempty"` // shape of the gamma distribution of gaps; default 1, Poisson
	AtOnce     bool    `json:"atOnce,omitempty"`     // all requests arrive at time 0
}

// Defaults of vLLM's "bench serve --dataset-name random".
const (
	DefaultInputLen  = 1024
	DefaultOutputLen = 128
)

func (l *Load) check() error {
	if err := checkAmounts(amount{"a rate of %v requests a second", l.Rate, maxRate},
		amount{"a duration of %v s", l.Duration, maxAmount}, amount{"a burstiness of %v", l.Burstiness,
			maxAmount}); err != nil {
		return err
	}
	switch {
	case l.Requests < 0:
		return bad("%d requests: want at least 1, or 0 for those of the duration", l.Requests)
	case l.Requests == 0 && l.Trace == "" && l.Rate*l.Duration > maxAmount:
		return bad("%g requests a second for %g s: want at most %.0f requests", l.Rate, l.Duration, float64(maxAmount))
	case l.random() && (l.Trace != "" || l.Workload != ""):
		return bad("lengths come from --input-len, --output-len and --range-ratio, from a workload or from a trace: take " +
			"one of them")
	case l.Trace != "" && l.Workload != "":
		return bad("requests come from the workload %q or from the trace %q, not from both", l.Workload, l.Trace)
	case l.Trace != "" && l.Burstiness != 0:
		return bad("a burstiness of %v does nothing with a trace, which has the arrival times", l.Burstiness)
	case l.AtOnce && (l.Burstiness != 0 || l.Rate != 0 || l.Duration != 0):
		return bad("requests that all come at once have no rate, duration or burstiness")
	case l.AtOnce && l.Trace == "" && l.Requests == 0:
		return bad("requests that all come at once need a number: --requests")
	}
	return nil
}

func (l *Load) random() bool { return l.InputLen != 0 || l.OutputLen != 0 || l.RangeRatio != 0 }

// Lengths returns the distribution of lengths and its description, for a load without a trace.
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
