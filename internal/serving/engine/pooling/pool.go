package pooling

import "fmt"

// A Type says which hidden states of a prompt make its vector (vLLM's pooling_type). "" means none.
type Type string

const (
	Last Type = "LAST" // the state of the last token
	Mean Type = "MEAN" // the mean of the states of all tokens
)

// Check returns an error unless t is Last or Mean.
func (t Type) Check() error {
	if t != Last && t != Mean {
		return fmt.Errorf("the pooling type is %q; %s and %s are possible", string(t), Last, Mean)
	}
	return nil
}

// A Pool makes the vector of a prompt. It adds in float64 and in the order of tokens, so the bits of the vector do not
// depend on how the prompt was divided into steps.
type Pool struct {
	kind   Type
	tokens int // whose states were added
	sum    []float64
}

// New returns an empty Pool.
func New(kind Type) *Pool { return &Pool{kind: kind} }

// First returns the first token of the tokens [start, end) whose state the Pool needs; last says that the prompt ends
// there. The result is end if the Pool needs none.
func (p *Pool) First(start, end int, last bool) int {
	switch {
	case p.kind == Mean:
		return min(max(start, p.tokens), end)
	case last:
		return end - 1
	}
	return end
}

// Add adds the states of consecutive tokens, each of size elements. The first of these tokens has the given position.
// Of Mean, Add ignores tokens that were added before; there must be no gap.
func (p *Pool) Add(states []float32, size, position int) {
	if p.sum == nil {
		p.sum = make([]float64, size)
	}
	for ; len(states) > 0; states, position = states[size:], position+1 {
		switch {
		case p.kind == Last:
			for i, v := range states[:size] {
				p.sum[i] = float64(v)
			}
			p.tokens = 1
		case position == p.tokens:
			for i, v := range states[:size] {
				p.sum[i] += float64(v)
			}
			p.tokens++
		}
	}
}

// Vector returns the vector. ok is false if an element is not a finite number.
func (p *Pool) Vector() (vector []float32, ok bool) {
	vector, ok = make([]float32, len(p.sum)), len(p.sum) > 0
	for i, v := range p.sum {
		vector[i] = float32(v / float64(p.tokens))
		ok = ok && vector[i]-vector[i] == 0
	}
	return vector, ok
}
