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

// A Sampler chooses tokens. Its fields are only scratch memory, so no call affects a later one. Only one goroutine may
// use a Sampler at a time. The zero Sampler is ready to use.
type Sampler struct {
	logits []float32
	sums   []float64
	order  []int32
	seen   map[int32]bool

	buckets *buckets
}

// A State has what sampling needs besides Params: the tokens of a sequence, and which tokens may be next.
type State struct {
	Prompt, Output []int32
	Forbidden      []int32  // end tokens, while the answer is shorter than its minimum
	Allowed        []uint64 // the tokens that may be next: bit t%64 of word t/64 is token t; nil means all
}

// Allows reports whether Allowed has a token.
func (st *State) Allows(token int32) bool {
	word := int(token >> 6)
	return st.Allowed == nil || word < len(st.Allowed) && st.Allowed[word]>>(token&63)&1 == 1
}

// Sample returns the next token. It does not change logits. If a logit is NaN or +Inf after the adjustments, or all are
// -Inf, it returns -1.
func (s *Sampler) Sample(p *Params, st State, logits []float32) int32 {
	if p.TakesLargest(st) {
		best, largest := matrix.ArgMax(logits)
		return ifFinite(best, largest)
	}
	s.logits = append(s.logits[:0], logits...)
	for _, a := range adjustments {
		if a.applies(p, st) {
			a.apply(s, p, st)
		}
	}
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

// ifFinite returns token, or -1 if largest, the token's logit, is NaN or infinite.
func ifFinite(token int, largest float32) int32 {
	if largest-largest != 0 {
		return -1
	}
	return int32(token)
}

// uniform returns the random number for output token i, which is at least 0 and below 1.
func uniform(seed uint64, i int) float64 {
	pcg := rand.NewPCG(seed, uint64(i)+0x9e3779b97f4a7c15)
	return float64(pcg.Uint64()<<11>>11) / (1 << 53) // as rand.Float64 does
}

// An adjustment changes logits before a token is chosen.
type adjustment struct {
	applies func(p *Params, st State) bool
	apply   func(s *Sampler, p *Params, st State)
}

// adjustments are all changes of logits, in their order. Penalties come last, as in vLLM. Add new changes here: Sample
// applies the entries, and TakesLargest checks whether a request needs any of them.
var adjustments = [...]adjustment{
	{func(p *Params, _ State) bool { return len(p.LogitBias) > 0 }, (*Sampler).bias},
	{func(_ *Params, st State) bool { return len(st.Forbidden) > 0 }, (*Sampler).forbid},
	{func(_ *Params, st State) bool { return st.Allowed != nil }, (*Sampler).restrict},
	{func(p *Params, _ State) bool { return p.RepetitionPenalty != 1 }, (*Sampler).penalizeRepetition},
	{func(p *Params, _ State) bool { return p.FrequencyPenalty != 0 }, (*Sampler).penalizeFrequency},
	{func(p *Params, _ State) bool { return p.PresencePenalty != 0 }, (*Sampler).penalizePresence},
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

func (s *Sampler) restrict(_ *Params, st State) {
	lowest := float32(math.Inf(-1))
	for start := 0; start < len(s.logits); start += 64 {
		word, logits := uint64(0), s.logits[start:min(start+64, len(s.logits))]
		if start/64 < len(st.Allowed) {
			word = st.Allowed[start/64]
		}
		if word == math.MaxUint64 {
			continue
		}
		for i := range logits {
			if word>>i&1 == 0 {
				logits[i] = lowest
			}
		}
	}
}

func (s *Sampler) penalizeRepetition(p *Params, st State) {
	r := float32(p.RepetitionPenalty)
	s.forEachToken(st.Prompt, st.Output, func(id int32) {
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
	s.forEachToken(nil, st.Output, func(id int32) { s.logits[id] -= float32(p.PresencePenalty) })
}

// forEachToken calls f once for each different token in a and b.
func (s *Sampler) forEachToken(a, b []int32, f func(int32)) {
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

// chunk is the number of weights in a chunk of draw.
const chunk = 512

// draw returns a token, with a probability proportional to its weight. The parameter u is a random number that is at
// least 0 and below 1. To be fast, draw first finds the chunk of tokens that u falls into, by the sum of the weights of
// each chunk. Then it finds the token in this chunk. Because of rounding errors u can reach the end of the chunk. In
// this case, draw returns the chunk's last token whose weight is not 0. If u reaches the end of all chunks, draw
// returns best.
func (s *Sampler) draw(u float64, best int32) int32 {
	s.sums = s.sums[:0]
	total := 0.0
	for start := 0; start < len(s.logits); start += chunk {
		sum := sumOf(s.logits[start:min(start+chunk, len(s.logits))])
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

// sumOf returns the sum of x. It computes four partial sums, which a processor can do at the same time.
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

// Rank returns the rank of a token by its logit. The largest logit has rank 1. As in vLLM, a token ranks after all
// other tokens that have the same logit.
func Rank(logits []float32, token int32) (n int) {
	for _, v := range logits {
		if v >= logits[token] {
			n++
		}
	}
	return n
}

// TopLogprobs returns the log probabilities of a token and of the n most likely tokens that st allows, before bias,
// penalties and temperature (vLLM's raw_logprobs). ok is false if a logit is NaN or +Inf, or all are -Inf.
func (s *Sampler) TopLogprobs(logits []float32, token int32, n int, st State) (chosen Logprob, top []Logprob, ok bool) {
	place, largest := matrix.ArgMax(logits)
	if ifFinite(place, largest) < 0 {
		return chosen, nil, false
	}
	s.logits = append(s.logits[:0], logits...)
	matrix.Exp(s.logits, largest, 1)
	norm := float64(largest) + math.Log(sumOf(s.logits))
	chosen = Logprob{token, float32(float64(logits[token]) - norm)}
	if n > 0 {
		copy(s.logits, logits)
		for _, id := range s.heaviest(min(n, len(logits)), &st) {
			top = append(top, Logprob{id, float32(float64(logits[id]) - norm)})
		}
	}
	return chosen, top, true
}
