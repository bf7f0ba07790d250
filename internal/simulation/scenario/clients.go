package scenario

import (
	"cmp"

	"llmmemory/internal/simulation/sim"
)

// Clients says when clients wait for answers before they send. The settings are those of vLLM's "bench serve". Each
// turn of a conversation is a request: Load.Requests and Load.Rate count all turns.
type Clients struct {
	// MaxConcurrency is the highest number of requests that are sent and not yet answered. 0 means no limit.
	MaxConcurrency int `json:"maxConcurrency,omitempty"`

	// Turns is the mean number of turns of a conversation, at least 1. 0 means that there are no conversations. With a
	// trace, all values except 0 have the same effect: the hashes in the trace show which rows are turns of a
	// conversation.
	Turns float64 `json:"turns,omitempty"`
	// Think is the mean time, in seconds, from an answer to the next turn. With a trace it is the minimum time.
	Think float64 `json:"think,omitempty"`

	Goodput sim.Goodput `json:"goodput,omitzero"`
}

func (c *Clients) check() error {
	if err := checkAmounts(amount{"requests at once: %v", float64(c.MaxConcurrency), maxAmount},
		amount{"turns of a conversation: %v", c.Turns, maxAmount},
		amount{"seconds between turns: %v", c.Think, maxAmount}); err != nil {
		return err
	}
	switch {
	case c.Turns > 0 && c.Turns < 1:
		return bad("conversations of %v turns: want at least 1", c.Turns)
	case c.Think > 0 && c.Turns == 0:
		return bad("pauses of %v s need conversations: set the number of turns (--turns)", c.Think)
	}
	return nil
}

// A Window is the part of a run that Result.Window averages over.
type Window struct {
	From  float64 `json:"from,omitempty"`  // s
	Until float64 `json:"until,omitempty"` // s; if 0, Load.Duration, or the end of the run if there is no Duration
	Stop  bool    `json:"stop,omitempty"`  // the run ends with the window, even if requests are not answered
}

func (w *Window) check(duration float64) error {
	if err := checkAmounts(amount{"averages from %v s", w.From, maxAmount},
		amount{"averages until %v s", w.Until, maxAmount}); err != nil {
		return err
	}
	if end := w.end(duration); end > 0 && w.From >= end {
		return bad("averages from %v s until %v s cover no time: begin earlier, or end later", w.From, end)
	}
	return nil
}

// end returns the time at which the window ends: Until, or else the end of the arrivals. It returns 0 if the
// window ends with the run.
func (w *Window) end(duration float64) float64 { return cmp.Or(w.Until, duration) }
