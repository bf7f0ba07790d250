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

// NoPrice says what to do where the price of a GPU is not known.
const NoPrice = "no price is known: put one into a file for --prices"

// money returns nil if no price is known.
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

// million returns the cost of a million tokens at a rate of one server.
func (m *Money) million(rate float64) float64 { return m.Server / (3600 * rate * m.tokens) * 1e6 }

// ofTarget returns what a million tokens cost if servers get a rate that may be less than they can serve.
func (m *Money) ofTarget(s Server, rate float64) float64 {
	return m.GPU * float64(s.GPUs) / (3600 * rate * m.tokens) * 1e6
}

// worth returns what a server with a change may cost more in an hour, so that tokens cost the
// same.
func (m *Money) worth(c Change) float64 { return m.Server * c.Gain }

// inMoney describes what the answer costs, or that no price is known.
func (r *Report) inMoney() string {
	if r.Money == nil {
		return r.gpu + ": " + NoPrice
	}
	text := fmt.Sprintf("$%.3f", r.Money.Million)
	if r.Range != nil && r.Range.Dearest > 0 {
		text = fmt.Sprintf("$%.3f to $%.3f, most likely %s,", r.Range.Least, r.Range.Dearest, text)
	}
	return text + r.Money.String()
}

func (m *Money) String() string {
	text := fmt.Sprintf(" for a million tokens of prompts and answers at this rate; a server costs $%.2f an hour",
		m.Server)
	if m.Source != "" {
		text += "; price of the GPU: " + m.Source
	}
	return text
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
