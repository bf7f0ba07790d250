package sampling

import (
	"math"
	"math/rand/v2"

	"llmmemory/internal/serving/model/matrix"
)

// A Logprob is a token with the logarithm of its probability.
type Logprob struct {
	Token int32
	Value float32
}

// A Sampler chooses tokens. It has only scratch memory: any request can use any Sampler, but one
// Sampler serves one goroutine at a time. The zero Sampler is ready.
type Sampler struct {
	logits []float32
	sums   []float64
	order  []int32
	seen   map[int32]bool

	buckets *buckets
}

// A State is the tokens of a sequence.
type State struct {
	Prompt, Output []int32
	Forbidden      []int32 // tokens that must not come now: those that end a sequence too short
}

// Sample chooses the next token. logits stay as they are. If there is none to choose, because a logit is NaN or +Inf
// or all are -Inf, it returns -1.
func (s *Sampler) Sample(p *Params, st State, logits []float32) int32 {
	if p.TakesLargest(st) {
		best, largest := matrix.ArgMax(logits)
		return ifFinite(best, largest)
	}
	s.logits = append(s.logits[:0], logits...)
	s.adjust(p, st)
	place, largest := matrix.ArgMax(s.logits)
	best := ifFinite(place, largest)
	if best < 0 || p.greedy() {
		return best
	}
	matrix.Exp(s.logits, largest, float32(1/p.Temperature)) // the largest becomes 1
	if p.MinP > 0 {
		for i, w := range s.logits {
			if w < float32(p.MinP) {
				s.logits[i] = 0
			}
		}
	}
	if p.TopK > 0 && p.TopK < len(logits) {
		s.keepK(p.TopK)
	}
	if p.TopP < 1 {
		s.keepP(p.TopP)
	}
	return s.draw(uniform(p.Seed, len(st.Output)), best)
}

// ifFinite returns the token with the largest logit, or -1 if that is NaN or infinite.
func ifFinite(token int, largest float32) int32 {
	if largest-largest != 0 {
		return -1
	}
	return int32(token)
}

// uniform is the random number of output token i, from 0 up to 1.
func uniform(seed uint64, i int) float64 {
	pcg := rand.NewPCG(seed, uint64(i)+0x9e3779b97f4a7c15)
	return float64(pcg.Uint64()<<11>>11) / (1 << 53) // as rand.Float64 does
}

// An adjustment changes logits before a token is chosen.
type adjustment struct {
	applies func(p *Params, st State) bool
	apply   func(s *Sampler, p *Params, st State)
}

// adjustments are all changes of logits, in vLLM's order. Sample and TakesLargest read this list, so a parameter that
// is added here takes effect in both.
var adjustments = [...]adjustment{
	{func(p *Params, _ State) bool { return len(p.LogitBias) > 0 }, (*Sampler).bias},
	{func(_ *Params, st State) bool { return len(st.Forbidden) > 0 }, (*Sampler).forbid},
	{func(p *Params, _ State) bool { return p.RepetitionPenalty != 1 }, (*Sampler).penalizeRepetition},
	{func(p *Params, _ State) bool { return p.FrequencyPenalty != 0 }, (*Sampler).penalizeFrequency},
	{func(p *Params, _ State) bool { return p.PresencePenalty != 0 }, (*Sampler).penalizePresence},
}

func (s *Sampler) adjust(p *Params, st State) {
	for i := range adjustments {
		if adjustments[i].applies(p, st) {
			adjustments[i].apply(s, p, st)
		}
	}
}

func (s *Sampler) bias(p *Params, _ State) {
	for id, bias := range p.LogitBias {
		s.logits[id] += bias
	}
}

func (s *Sampler) forbid(_ *Params, st State) {
	for _, id := range st.Forbidden {
		s.logits[id] = float32(math.Inf(-1))
	}
}

func (s *Sampler) penalizeRepetition(p *Params, st State) {
	r := float32(p.RepetitionPenalty)
	s.once(st.Prompt, st.Output, func(id int32) {
		if s.logits[id] > 0 {
			s.logits[id] /= r
		} else {
			s.logits[id] *= r
		}
	})
}

func (s *Sampler) penalizeFrequency(p *Params, st State) {
	for _, id := range st.Output {
		s.logits[id] -= float32(p.FrequencyPenalty)
	}
}

func (s *Sampler) penalizePresence(p *Params, st State) {
	s.once(nil, st.Output, func(id int32) { s.logits[id] -= float32(p.PresencePenalty) })
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

// chunk is the number of weights that are summed up at a time.
const chunk = 512

// draw draws from all weights: first one of the chunks by its sum, then in it. best is
// returned if rounding leaves nothing to draw.
func (s *Sampler) draw(u float64, best int32) int32 {
	s.sums = s.sums[:0]
	total := 0.0
	for at := 0; at < len(s.logits); at += chunk {
		sum := sumOf(s.logits[at:min(at+chunk, len(s.logits))])
		s.sums = append(s.sums, sum)
		total += sum
	}
	u *= total
	for i, sum := range s.sums {
		if u >= sum {
			u -= sum
			continue
		}
		last := best
		for k, w := range s.logits[i*chunk : min((i+1)*chunk, len(s.logits))] {
			if w == 0 {
				continue
			}
			last = int32(i*chunk + k)
			if u -= float64(w); u < 0 {
				break
			}
		}
		return last
	}
	return best
}

// sumOf adds in four lanes, which the processor can do at the same time.
func sumOf(x []float32) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = a+float64(x[0]), b+float64(x[1]), c+float64(x[2]), d+float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return (a + b) + (c + d)
}

// Rank is the place of a token among all by their logits, from 1. As in vLLM, equal ones are before it.
func Rank(logits []float32, token int32) (n int) {
	for _, v := range logits {
		if v >= logits[token] {
			n++
		}
	}
	return n
}

// TopLogprobs returns the logarithms of the probabilities of a token and of the n
// most likely ones, before bias, penalties and temperature (vLLM's raw_logprobs). ok is false if a logit is NaN or
// +Inf, or all are -Inf.
func (s *Sampler) TopLogprobs(logits []float32, token int32, n int) (own Logprob, top []Logprob, ok bool) {
	place, largest := matrix.ArgMax(logits)
	if ifFinite(place, largest) < 0 {
		return own, nil, false
	}
	s.logits = append(s.logits[:0], logits...)
	matrix.Exp(s.logits, largest, 1)
	norm := float64(largest) + math.Log(sumOf(s.logits))
	own = Logprob{token, float32(float64(logits[token]) - norm)}
	if n > 0 {
		copy(s.logits, logits)
		for _, id := range s.heaviest(min(n, len(logits))) {
			top = append(top, Logprob{id, float32(float64(logits[id]) - norm)})
		}
	}
	return own, top, true
}
