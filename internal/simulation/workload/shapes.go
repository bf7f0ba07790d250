package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// alpaca draws lengths like Alpaca's. Its distribution was inferred from the longest request of each batch of 14
// (simulation/PAPER.md §1). Outputs are 1 plus a rounded-down exponential variable, at most 2,000; their mean is
// 58.45. Prompts are independent of outputs: log-normal with the mean 19.31 and sigma 0.6, rounded, at least 3.
type alpaca struct{}

func (alpaca) Draw(r *rand.Rand) (prompt, output int) {
	const mean, sigma = 19.31, 0.6
	prompt = max(3, toLength(logNormal(mean, sigma, r.NormFloat64())))
	return prompt, min(2000, 1+int(57.95*r.ExpFloat64()))
}

// alpacaInputs is a second distribution that agrees with what is known of Alpaca. It has the same mean prompt as
// alpaca. It also agrees with the paper's artifact, where requests are in batches of 14. The longest prompt of a batch
// there has 50.8 tokens on average. With alpacaInputs, the longest of 14 prompts has 48.9 tokens on average. With
// alpaca, it has 47.5.
//
// About 40 % of Alpaca's instructions have an input (Alpaca's README). Here their prompts are log-normal with mean 28.8
// and sigma 0.5. The other prompts are normal with mean 13 and standard deviation 3. These four numbers are
// assumptions.
type alpacaInputs struct{ alpaca }

func (a alpacaInputs) Draw(r *rand.Rand) (prompt, output int) {
	_, output = a.alpaca.Draw(r)
	if r.Float64() < 0.4 {
		return max(3, toLength(logNormal(28.8, 0.5, r.NormFloat64()))), output
	}
	return max(3, toLength(13+float64(3*r.NormFloat64()))), output
}

func logNormal(mean, sigma, z float64) float64 {
	return mean * math.Exp(float64(sigma*z)-sigma*sigma/2)
}

// wmt16 draws lengths of sentence pairs of WMT16 English to German. No source for these lengths was found. They are
// assumed to be log-normal with sigma 0.5 and means of 30 (English) and 35 (German) LLaMA tokens. The correlation of
// their normal scores is assumed to be 0.9.
type wmt16 struct{}

func (wmt16) Draw(r *rand.Rand) (prompt, output int) {
	const english, german, sigma, rho = 30, 35, 0.5, 0.9
	a := r.NormFloat64()
	b := float64(rho*a) + float64(math.Sqrt(1-rho*rho)*r.NormFloat64())
	return toLength(logNormal(english, sigma, a)), toLength(logNormal(german, sigma, b))
}

// chat draws the requests of the paper's chatbot (Fig. 17). The prompt is the last 1,024 tokens of a
// conversation followed by a query, and the answer has at most 1,024 tokens.
//
// Only the lengths of the first rounds of ShareGPT's conversations are known. Two things are therefore assumed. All
// rounds have the distribution of first rounds. The number of rounds before the query is geometrically distributed
// with mean 4, at least 1. The paper says that prompts have about 1,024 tokens (simulation/PAPER.md §2, Fig. 17).
// Here 66 % have exactly 1,024, and the mean is 862.
type chat struct{ rounds Lengths }

func (c chat) Draw(r *rand.Rand) (prompt, output int) {
	const longest, meanRounds = 1024, 4
	for more := true; more; more = r.Float64() >= 1.0/meanRounds {
		p, o := c.rounds.Draw(r)
		prompt += p + o
	}
	query, answer := c.rounds.Draw(r)
	return min(longest, prompt+query), min(longest, answer)
}

// random draws lengths as vLLM's "bench serve --dataset-name random" does: uniform integers from floor(mean
// (1 - ratio)) to ceil(mean (1 + ratio)).
type random struct {
	prompt, output int
	ratio          float64
}

// Random returns lengths around the given mean lengths. ratio is vLLM's random_range_ratio. The error wraps
// ErrSetting.
func Random(prompt, output int, ratio float64) (Lengths, error) {
	if prompt < 1 || output < 1 || max(prompt, output) > maxTokens || !(ratio >= 0 && ratio < 1) {
		return nil, fmt.Errorf("%w: prompts of %d tokens, answers of %d, a range ratio of %v; want lengths from 1 to %d and "+
			"a ratio of at least 0 and less than 1", ErrSetting, prompt, output, ratio, maxTokens)
	}
	return random{prompt, output, ratio}, nil
}

func (l random) Draw(r *rand.Rand) (prompt, output int) {
	return l.draw(r, l.prompt), l.draw(r, l.output)
}

func (l random) draw(r *rand.Rand, mean int) int {
	if l.ratio == 0 {
		return mean
	}
	low := max(1, int(math.Floor(float64(mean)*(1-l.ratio))))
	return low + r.IntN(int(math.Ceil(float64(mean)*(1+l.ratio)))-low+1)
}

// prefixed has lengths with a prefix that all prompts share.
type prefixed struct {
	Lengths
	tokens int // in front of every prompt; Request.Shared counts them
}

func (p prefixed) Draw(r *rand.Rand) (prompt, output int) {
	prompt, output = p.Lengths.Draw(r)
	return prompt + p.tokens, output
}
