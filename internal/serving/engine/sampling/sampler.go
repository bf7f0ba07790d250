package sampling

import (
	"math"
	"math/bits"
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
	sums   []uint64
	order  []int32

	counted Counts // of a State without Counts

	buckets *buckets
}

// A State has what sampling needs besides Params: the tokens of a sequence, and which tokens may be next.
type State struct {
	Prompt, Output []int32
	Counts         *Counts  // of Prompt and Output, kept from token to token; may be nil
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
	if st.Counts == nil {
		s.counted.Reset()
		st.Counts = &s.counted
	}
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
	matrix.Exp(s.logits, largest, p.scale()) // the largest becomes 1
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
	return s.draw(Random(p.Seed, len(st.Output)))
}

// ifFinite returns token, or -1 if largest, the token's logit, is NaN or infinite.
func ifFinite(token int, largest float32) int32 {
	if largest-largest != 0 {
		return -1
	}
	return int32(token)
}

// Random returns the random number for output token i. It depends on nothing but the seed and i.
func Random(seed uint64, i int) uint64 {
	return rand.NewPCG(seed, uint64(i)+0x9e3779b97f4a7c15).Uint64()
}

// unit is the integer for the weight 1, which the most likely token has.
const unit = 1 << 40

// integer returns a weight, which is at most 1, as an integer. Sums of integers do not depend on an order, so each
// processor and GPU computes the same ones. A weight below 1/unit becomes 0, and its token is never drawn.
func integer(weight float32) uint64 { return uint64(int64(weight * unit)) }

// fraction returns part/2^64 of a sum, rounded down.
func fraction(part, sum uint64) uint64 {
	high, _ := bits.Mul64(part, sum)
	return high
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
	for _, c := range p.counted(st) {
		if l := &s.logits[c.Token]; *l > 0 {
			*l /= r
		} else {
			*l *= r
		}
	}
}

func (s *Sampler) penalizeFrequency(p *Params, st State) {
	for _, c := range p.counted(st) {
		s.logits[c.Token] -= float32(float32(p.FrequencyPenalty) * float32(c.Output))
	}
}

func (s *Sampler) penalizePresence(p *Params, st State) {
	for _, c := range p.counted(st) {
		if c.Output > 0 {
			s.logits[c.Token] -= float32(p.PresencePenalty)
		}
	}
}

// chunk is the number of weights in a chunk of draw.
const chunk = 512

// draw returns a token, with a probability proportional to its weight. The parameter random is any number of 64 bits. To
// be fast, draw first finds the chunk of tokens that the number falls into, by the sum of the weights of each chunk. Then
// it finds the token in this chunk.
func (s *Sampler) draw(random uint64) int32 {
	s.sums = s.sums[:0]
	total := uint64(0)
	for start := 0; start < len(s.logits); start += chunk {
		sum := sumOf(s.logits[start:min(start+chunk, len(s.logits))])
		s.sums = append(s.sums, sum)
		total += sum
	}
	rest, i := fraction(random, total), 0
	for ; rest >= s.sums[i]; i++ {
		rest -= s.sums[i]
	}
	token := i * chunk
	for w := integer(s.logits[token]); rest >= w; w = integer(s.logits[token]) {
		rest -= w
		token++
	}
	return int32(token)
}

// sumOf returns the sum of weights as integers.
func sumOf(weights []float32) (sum uint64) {
	for _, w := range weights {
		sum += integer(w)
	}
	return sum
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
	norm := float64(largest) + math.Log(float64(sumOf(s.logits))/unit)
	chosen = Logprob{token, float32(float64(logits[token]) - norm)}
	if n > 0 {
		copy(s.logits, logits)
		for _, id := range s.heaviest(min(n, len(logits)), &st) {
			top = append(top, Logprob{id, float32(float64(logits[id]) - norm)})
		}
	}
	return chosen, top, true
}
