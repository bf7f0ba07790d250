package scenario

import (
	"cmp"

	"llmmemory/internal/simulation/sim"
)

// Clients say how requests wait for answers, as those of vLLM's "bench serve" do. Requests of a conversation count as
// others do for the number and the rate of a load.
type Clients struct {
	MaxConcurrency int `json:"maxConcurrency,omitempty"` // sent and not answered; any number

	// Turns is the mean number of turns of a conversation; none. With a trace that has hashes 1 finds the turns.
	Turns float64 `json:"turns,omitempty"`
	// Think is how many seconds pass from an answer to the next turn: the mean, of a trace the least.
	Think float64 `json:"think,omitempty"`

	Goodput sim.Goodput `json:"goodput,omitzero"`
}

func (c *Clients) check() error {
	if err := checkAmounts(amount{"requests at once: %v", float64(c.MaxConcurrency), mostAmount},
		amount{"turns of a conversation: %v", c.Turns, mostAmount},
		amount{"seconds between turns: %v", c.Think, mostAmount}); err != nil {
		return err
	}
	switch {
	case c.Turns > 0 && c.Turns < 1:
		return bad("conversations of %v turns: want at least 1", c.Turns)
	case c.Think > 0 && c.Turns == 0:
		return bad("pauses of %v s are between turns of a conversation: say how many there are (--turns)", c.Think)
	}
	return nil
}

// A Window is the time that averages are of.
type Window struct {
	From  float64 `json:"from,omitempty"`  // s
	Until float64 `json:"until,omitempty"` // s; the end of the arrivals
	Stop  bool    `json:"stop,omitempty"`  // the run at the end of the window, whatever is not answered
}

func (w *Window) check(duration float64) error {
	if err := checkAmounts(amount{"averages from %v s", w.From, mostAmount},
		amount{"averages until %v s", w.Until, mostAmount}); err != nil {
		return err
	}
	if end := w.end(duration); end > 0 && w.From >= end {
		return bad("averages from %v s until %v s are of nothing: begin earlier, or end later", w.From, end)
	}
	return nil
}

// end returns where the window ends if requests arrive for a duration, 0 if that is where the run does.
func (w *Window) end(duration float64) float64 { return cmp.Or(w.Until, duration) }
