package sizing

import (
	"fmt"
	"io"
)

// Money is what the answer costs, where the price of the GPU is known.
type Money struct {
	GPU     float64 `json:"dollarsPerGPUHour"`
	Server  float64 `json:"dollarsPerServerHour"`
	Million float64 `json:"dollarsPerMillionTokens"` // of prompts and answers, at the capacity
	Source  string  `json:"source"`                  // of the price
	tokens  float64 // of a request, on average
}

// money is nil if no price is known.
func (s *sizer) money() *Money {
	price := s.Prices.GPUs[s.plan.Setup.GPU.Name].Dollars
	if price == 0 {
		return nil
	}
	prompt, output := s.load.Means()
	m := &Money{GPU: price, Server: price * float64(s.plan.Setup.GPUs()), Source: s.Prices.Source, tokens: prompt + output}
	m.Million = m.million(s.base.Rate)
	return m
}

// million is what a million tokens cost at a rate of one server.
func (m *Money) million(rate float64) float64 { return m.Server / (3600 * rate * m.tokens) * 1e6 }

// worth is what a server with a change may cost more in an hour, so that tokens cost the
// same.
func (m *Money) worth(c Change) float64 { return m.Server * c.Gain }

func (m *Money) String() string {
	return fmt.Sprintf("$%.3f for a million tokens at the capacity; a server costs $%.2f an hour. %s", m.Million, m.Server, m.Source)
}

// writeMoney is what each change would buy.
func (r *Report) writeMoney(w io.Writer) {
	fmt.Fprint(w, "\nin money, at the same price\t$/M tokens\ta server may cost more, $/hour\n")
	for _, c := range r.Limits {
		if c.Trouble == "" && c.Is != Objective {
			fmt.Fprintf(w, "%s\t%.3f\t%.2f\n", c.Name, r.Money.million(c.Rate), r.Money.worth(c))
		}
	}
}
