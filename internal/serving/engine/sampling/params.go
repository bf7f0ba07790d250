package sampling

import (
	"fmt"
	"math"
	"slices"
)

// Params are a request's sampling parameters. Names and meanings are those of vLLM's SamplingParams.
type Params struct {
	Temperature float64 // below 1e-5 means the most likely token
	TopP        float64 // 1 means all tokens
	TopK        int     // 0 means all tokens
	MinP        float64 // part of the largest probability; 0 means all tokens

	PresencePenalty   float64
	FrequencyPenalty  float64
	RepetitionPenalty float64 // 1 means none

	LogitBias map[int32]float32
	Seed      uint64
	Logprobs  int // most likely tokens to report for each token; -1 means no log probabilities at all

	PromptLogprobs int // the same for each token of the prompt
}

// Default returns OpenAI's defaults.
func Default() Params {
	return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1, Logprobs: -1, PromptLogprobs: -1}
}

// Invalid is the error for a parameter that is out of range.
type Invalid struct{ Param, Message string }

func (e *Invalid) Error() string { return e.Message }

// MaxLogprobs is the largest Logprobs and PromptLogprobs.
const MaxLogprobs = 20

// maxLogitBias is vLLM's MAX_NUM_LOGIT_BIAS_TOKENS.
const maxLogitBias = 1024

// Check returns an *Invalid for the first value that is out of range.
func (p *Params) Check(vocabSize int) error {
	ranges := []struct {
		name      string
		value     float64
		low, high float64
		open      bool // the value must be above low
	}{
		{"temperature", p.Temperature, 0, 2, false},
		{"top_p", p.TopP, 0, 1, true},
		{"top_k", float64(p.TopK), 0, math.MaxInt32, false},
		{"min_p", p.MinP, 0, 1, false},
		{"presence_penalty", p.PresencePenalty, -2, 2, false},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2, false},
		{"repetition_penalty", p.RepetitionPenalty, 0, 2, true},
		{"logprobs", float64(p.Logprobs), -1, MaxLogprobs, false},
		{"prompt_logprobs", float64(p.PromptLogprobs), -1, MaxLogprobs, false},
	}
	for _, r := range ranges {
		if !(r.value >= r.low && r.value <= r.high) || r.open && r.value == r.low {
			want := fmt.Sprintf("from %v to %.10g", r.low, r.high)
			if r.open {
				want = fmt.Sprintf("above %v and at most %v", r.low, r.high)
			}
			return &Invalid{r.name, fmt.Sprintf("%s is %v; it must be %s.", r.name, r.value, want)}
		}
	}
	if n := len(p.LogitBias); n > maxLogitBias {
		message := fmt.Sprintf("logit_bias has %d tokens; at most %d are possible.", n, maxLogitBias)
		return &Invalid{"logit_bias", message}
	}
	for id, bias := range p.LogitBias {
		switch {
		case id < 0 || int(id) >= vocabSize:
			return &Invalid{"logit_bias", fmt.Sprintf("logit_bias names token %d; the vocabulary has %d.", id, vocabSize)}
		case !(bias >= -100 && bias <= 100):
			return &Invalid{"logit_bias", fmt.Sprintf("logit_bias of token %d is %v; it must be from -100 to 100.", id, bias)}
		}
	}
	return nil
}

// TakesLargest reports whether Sample would change no logit and return the first token with the largest logit.
func (p *Params) TakesLargest(st State) bool {
	return p.greedy() && !slices.ContainsFunc(adjustments[:], func(a adjustment) bool { return a.applies(p, st) })
}

// greedy reports whether Sample draws nothing (vLLM's _SAMPLING_EPS).
func (p *Params) greedy() bool { return p.Temperature < 1e-5 }

// scale returns the factor of the differences to the largest logit.
func (p *Params) scale() float32 { return float32(1 / p.Temperature) }

// Penalizes reports whether penalties change logits.
func (p *Params) Penalizes() bool {
	return p.RepetitionPenalty != 1 || p.FrequencyPenalty != 0 || p.PresencePenalty != 0
}

// counted returns the tokens to which penalties apply. Only the repetition penalty is also for tokens of the prompt.
func (p *Params) counted(st State) []Count {
	if p.RepetitionPenalty == 1 {
		return st.Counts.Of(nil, st.Output)
	}
	return st.Counts.Of(st.Prompt, st.Output)
}
