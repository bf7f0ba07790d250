package sampling

import "slices"

// Counts are the different tokens of a sequence to which penalties apply. The zero Counts has none.
type Counts struct {
	list           []Count
	prompt, output int // tokens that were counted
}

// A Count says how often a token is in the output. This is 0 for a token of the prompt only.
type Count struct{ Token, Output int32 }

// Of returns a Count for each different token of a sequence. If the sequence of the last call had the same prompt and the
// first tokens of this output, Of counts only the other tokens of the output. The caller must call Reset before it counts
// another sequence. The result is valid until the next call.
func (c *Counts) Of(prompt, output []int32) []Count {
	if c.prompt != len(prompt) || c.output > len(output) {
		c.Reset()
	}
	if c.prompt < len(prompt) {
		c.prompt = len(prompt)
		for _, id := range prompt {
			c.list = append(c.list, Count{Token: id})
		}
		slices.SortFunc(c.list, func(a, b Count) int { return int(a.Token - b.Token) })
		c.list = slices.Compact(c.list)
	}
	for _, id := range output[c.output:] {
		place := slices.IndexFunc(c.list, func(x Count) bool { return x.Token == id })
		if place < 0 {
			place = len(c.list)
			c.list = append(c.list, Count{Token: id})
		}
		c.list[place].Output++
	}
	c.output = len(output)
	return c.list
}

// Reset removes all tokens.
func (c *Counts) Reset() { *c = Counts{list: c.list[:0]} }
