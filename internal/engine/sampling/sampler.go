package sampling

import (
	"math"
	"math/rand/v2"
)

// A Logprob is a token with the logarithm of its probability.
type Logprob struct {
	Token int32
	Value float32
}

// A Sampler has scratch memory for one thread.
type Sampler struct {
	logits []float32
	order  []int32 // a heap of tokens, and behind it those taken out
	popped int
	seen   map[int32]bool
}

// A State is what a sequence has said.
type State struct {
	Prompt, Output []int32
	Forbidden      []int32 // tokens that must not come now: those that end a sequence too short
}

// Sample chooses the next token. logits stay as they are.
func (s *Sampler) Sample(p *Params, st State, logits []float32) int32 {
	s.logits = append(s.logits[:0], logits...)
	s.adjust(p, st)
	best := argmax(s.logits)
	if p.greedy() {
		return best
	}
	top := float64(s.logits[best])
	inverse := 1 / p.Temperature
	for i, v := range s.logits {
		s.logits[i] = float32(math.Exp((float64(v) - top) * inverse)) // the largest becomes 1
	}
	u := uniform(p.Seed, len(st.Output))
	if p.TopK == 0 && p.TopP == 1 {
		return draw(s.logits, float32(p.MinP), u, best)
	}
	return s.drawTop(p, u)
}

// uniform is the random number of output token i, from 0 up to 1.
func uniform(seed uint64, i int) float64 {
	return rand.New(rand.NewPCG(seed, uint64(i)+0x9e3779b97f4a7c15)).Float64()
}

// adjust applies bias and penalties, in vLLM's order.
func (s *Sampler) adjust(p *Params, st State) {
	for id, bias := range p.LogitBias {
		s.logits[id] += bias
	}
	for _, id := range st.Forbidden {
		s.logits[id] = float32(math.Inf(-1))
	}
	if r := float32(p.RepetitionPenalty); r != 1 {
		s.once(st.Prompt, st.Output, func(id int32) {
			if s.logits[id] > 0 {
				s.logits[id] /= r
			} else {
				s.logits[id] *= r
			}
		})
	}
	if f := float32(p.FrequencyPenalty); f != 0 {
		for _, id := range st.Output {
			s.logits[id] -= f
		}
	}
	if q := float32(p.PresencePenalty); q != 0 {
		s.once(nil, st.Output, func(id int32) { s.logits[id] -= q })
	}
}

// once calls f for each token that occurs.
func (s *Sampler) once(a, b []int32, f func(int32)) {
	if s.seen == nil {
		s.seen = map[int32]bool{}
	}
	clear(s.seen)
	for _, list := range [2][]int32{a, b} {
		for _, id := range list {
			if !s.seen[id] {
				s.seen[id] = true
				f(id)
			}
		}
	}
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// draw draws from weights of which those below least count nothing. best is
// returned if rounding leaves nothing to draw.
func draw(weights []float32, least float32, u float64, best int32) int32 {
	sum := 0.0
	for _, w := range weights {
		if w >= least {
			sum += float64(w)
		}
	}
	u *= sum
	for i, w := range weights {
		if w < least || w == 0 {
			continue
		}
		if u -= float64(w); u < 0 {
			return int32(i)
		}
	}
	return best
}

// drawTop draws from the most likely tokens: top-k of them, and of these as many
// as it takes to reach top-p.
func (s *Sampler) drawTop(p *Params, u float64) int32 {
	total := 0.0
	for _, w := range s.logits {
		if w >= float32(p.MinP) {
			total += float64(w)
		}
	}
	s.heapify()
	k := len(s.logits)
	if p.TopK > 0 {
		k = min(k, p.TopK)
	}
	s.pop(k, func(kept int, sum float64) bool {
		// With top-k, top-p is of what top-k leaves; that is known in the end.
		return p.TopK == 0 && sum >= p.TopP*total
	})
	kept, sum := s.kept(), 0.0
	for i, id := range kept {
		if w := s.logits[id]; w < float32(p.MinP) && i > 0 {
			kept = kept[:i]
			break
		}
		sum += float64(s.logits[id])
	}
	if p.TopK > 0 && p.TopP < 1 {
		kept, sum = s.cut(kept, p.TopP*sum)
	}
	u *= sum
	for _, id := range kept {
		if u -= float64(s.logits[id]); u < 0 {
			return id
		}
	}
	return kept[0]
}

// cut keeps the tokens that it takes to reach a sum.
func (s *Sampler) cut(kept []int32, enough float64) ([]int32, float64) {
	sum := 0.0
	for i, id := range kept {
		if sum += float64(s.logits[id]); sum >= enough {
			return kept[:i+1], sum
		}
	}
	return kept, sum
}

// TopLogprobs returns the logarithms of the probabilities of a token and of the n
// most likely ones, before any of the user's wishes (vLLM's raw_logprobs).
func (s *Sampler) TopLogprobs(logits []float32, token int32, n int) (own Logprob, top []Logprob) {
	s.logits = append(s.logits[:0], logits...)
	largest := float64(logits[argmax(logits)])
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - largest)
	}
	norm := largest + math.Log(sum)
	own = Logprob{token, float32(float64(logits[token]) - norm)}
	if n > 0 {
		s.heapify()
		s.pop(min(n, len(logits)), func(int, float64) bool { return false })
		for _, id := range s.kept() {
			top = append(top, Logprob{id, float32(float64(logits[id]) - norm)})
		}
	}
	return own, top
}
