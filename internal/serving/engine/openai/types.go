package openai

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"llmmemory/internal/serving/engine"
)

// common has the fields of both completions and chat completions. They are OpenAI's or vLLM's, unless another origin is
// noted.
type common struct {
	formFields
	Model             string             `json:"model"`
	N                 *int               `json:"n"`
	MaxTokens         *int               `json:"max_tokens"`
	MinTokens         int                `json:"min_tokens"`
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              float64            `json:"min_p"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              *int64             `json:"seed"`
	Stop              texts              `json:"stop"`
	StopTokenIDs      []int32            `json:"stop_token_ids"`
	IgnoreEOS         bool               `json:"ignore_eos"`
	IncludeStop       bool               `json:"include_stop_str_in_output"`
	SkipSpecialTokens *bool              `json:"skip_special_tokens"`
	PromptLogprobs    *int               `json:"prompt_logprobs"`
	ReturnTokenIDs    bool               `json:"return_token_ids"`
	Truncate          *int               `json:"truncate_prompt_tokens"`
	Stream            bool               `json:"stream"`
	StreamOptions     *streamOptions     `json:"stream_options"`
	User              string             `json:"user"`
	CacheSalt         *string            `json:"cache_salt"`
	UseBeamSearch     bool               `json:"use_beam_search"`
	LengthPenalty     *float64           `json:"length_penalty"`
	TimingsPerToken   bool               `json:"timings_per_token"` // llama.cpp's
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"` // vLLM's
}

// texts is the value of the field stop: a string or a list of strings. Decoding drops empty strings.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	var list []string
	if json.Unmarshal(data, &one) == nil { // also null
		list = []string{one}
	} else if json.Unmarshal(data, &list) != nil {
		return invalid("stop", "stop must be a string or a list of strings.")
	}
	*t = slices.DeleteFunc(list, func(text string) bool { return text == "" })
	return nil
}

// tokenLimit returns the engine's limit for a max_tokens of n. As in llama.cpp, -1 means no limit.
func tokenLimit(n int) int {
	if n == -1 {
		return math.MaxInt
	}
	return n
}

// setIfGiven sets *dst to *given, unless given is nil.
func setIfGiven[T any](dst, given *T) {
	if given != nil {
		*dst = *given
	}
}

// request returns the engine's request, without a prompt.
func (c *common) request() (engine.Request, error) {
	r := NewRequest(c.Temperature, c.TopP)
	r.MinTokens, r.Stop, r.StopTokenIDs, r.IgnoreEOS, r.IncludeStop = c.MinTokens, c.Stop, c.StopTokenIDs, c.IgnoreEOS, c.IncludeStop
	r.SpecialTokens = c.SkipSpecialTokens != nil && !*c.SkipSpecialTokens
	setIfGiven(&r.N, c.N)
	if c.MaxTokens != nil {
		r.MaxTokens = tokenLimit(*c.MaxTokens)
	}
	if c.TopK != nil && *c.TopK != -1 { // in vLLM, -1 also means all tokens
		r.TopK = *c.TopK
	}
	r.MinP = c.MinP
	setIfGiven(&r.PresencePenalty, c.PresencePenalty)
	setIfGiven(&r.FrequencyPenalty, c.FrequencyPenalty)
	setIfGiven(&r.RepetitionPenalty, c.RepetitionPenalty)
	if c.Seed != nil && *c.Seed != -1 { // -1 means a random seed, as in vLLM and llama.cpp
		r.Seed = uint64(*c.Seed)
	}
	setIfGiven(&r.CacheSalt, c.CacheSalt)
	if err := c.check(&r); err != nil {
		return r, err
	}
	var err error
	if c.PromptLogprobs != nil {
		if r.PromptLogprobs, err = logprobs("prompt_logprobs", *c.PromptLogprobs); err != nil {
			return r, err
		}
	}
	r.LogitBias, err = c.biases()
	return r, err
}

// check checks what the engine's Request.Check does not.
func (c *common) check(r *engine.Request) error {
	switch {
	case r.N < 1:
		return invalid("n", "n is %d; it must be at least 1.", r.N)
	case c.PromptLogprobs != nil && c.Stream:
		return invalid("prompt_logprobs", "prompt_logprobs is not available when stream is true.")
	case c.LengthPenalty != nil && *c.LengthPenalty != 1 && !c.UseBeamSearch:
		return invalid("length_penalty", "length_penalty is only used with use_beam_search; leave it out.")
	case c.StreamOptions != nil && !c.Stream:
		return invalid("stream_options", "stream_options is only allowed when stream is true.")
	case c.StreamOptions != nil && c.StreamOptions.ContinuousUsageStats:
		return invalid("stream_options.continuous_usage_stats",
			"continuous_usage_stats is not supported by this server; include_usage is.")
	case c.CacheSalt != nil && *c.CacheSalt == "":
		return invalid("cache_salt", "cache_salt is empty; give a text, or leave the field out.")
	}
	return nil
}

// biases returns the entries of logit_bias by token.
func (c *common) biases() (map[int32]float32, error) {
	if len(c.LogitBias) == 0 {
		return nil, nil
	}
	all := map[int32]float32{}
	for key, bias := range c.LogitBias {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || math.IsNaN(bias) || strconv.FormatInt(id, 10) != key { // "07" would be a second "7"
			return nil, invalid("logit_bias", "logit_bias has the key %q; keys must be the numbers of tokens.", key)
		}
		all[int32(id)] = float32(bias)
	}
	return all, nil
}
