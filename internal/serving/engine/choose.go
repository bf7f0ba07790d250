package engine

import "llmmemory/internal/serving/engine/sampling"

// chooseOnDevice makes the Device choose tokens from the first logits of s. All earlier tokens of the answers are known
// now. Tokens that depend on more than one row, or of which several are taken from a row, are left to sample.
func (e *Engine) chooseOnDevice(s *step) {
	if e.config.Device == nil || e.config.Model.ChangesLogits() || s.input.end == 0 || e.workers.failed() {
		return
	}
	s.choices = append(s.choices, make([]sampling.Choice, s.input.end)...)
	for _, d := range s.draws[:s.last] {
		r := &s.rows[d.row]
		switch q := r.q; {
		case d.position > 0 || q.waiting > 0:
		case len(r.drafts) == 0:
			s.choices[d.start] = q.choice()
		case q.takesLargest():
			for i := d.start; i < d.end; i++ {
				s.choices[i] = sampling.Choice{Params: &q.params, Only: -1}
			}
		}
	}
	e.workers.choose(s.choices)
}

// choice returns how the next token of q is chosen. If that token will be discarded, or if no token is possible, the
// choice is any token. Then sample does not ask for it.
func (q *sequence) choice() sampling.Choice {
	c := sampling.Choice{Params: &q.params, Only: -1, Logits: q.params.Logprobs >= 0}
	if q.isComplete(len(q.tokens)) {
		return sampling.Choice{Params: &q.params}
	}
	var err error
	if c.State, err = q.state(q.tokens); err != nil {
		return sampling.Choice{Params: &q.params}
	}
	if q.matcher != nil {
		c.Only = q.onlyToken
	}
	return c
}
