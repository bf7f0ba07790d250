package engine

import (
	"errors"
	"fmt"
	"strconv"

	"llmmemory/internal/serving/engine/sampling"
)

// A Request is what a user wants.
type Request struct {
	Prompt    []int32
	N         int // answers; 0: 1
	MaxTokens int // most tokens of an answer; what does not fit into the model is left out
	MinTokens int
	sampling.Params

	Stop         []string // an answer ends before one of these
	StopTokenIDs []int32  // an answer ends after one of these
	IgnoreEOS    bool     // the model's own end of a sequence does not end an answer

	IncludeStop   bool // the text has the stop sequence or the token that ends it (vLLM's include_stop_str_in_output)
	SpecialTokens bool // the text has the names of special tokens (vLLM's skip_special_tokens is false)

	// CacheSalt keeps prefix hits among requests with the same salt.
	CacheSalt string
}

// Errors of Submit. Those of Request.Check are others.
var (
	ErrBusy   = errors.New("too many requests are waiting")
	ErrClosed = errors.New("the server is shutting down")
)

// MaxN is how many answers a request can ask for.
const MaxN = 128

// maxStopTokens is vLLM's MAX_NUM_STOP_TOKEN_IDS. Each token of an answer is compared with all of them.
const maxStopTokens = 128

// What a request keeps while it waits: each token of an answer is compared with the stop sequences.
const (
	maxStopBytes = 1 << 10
	maxSaltBytes = 1 << 10
)

// A TooLong is the error of a prompt that leaves no room for an answer.
type TooLong struct {
	Field       string // that has the prompt: prompt or messages
	Tokens      int    // of the prompt
	AtLeast     bool   // the prompt has this many tokens or more: it was not tokenized to its end
	MaxModelLen int
}

// Error begins with OpenAI's sentence, which clients search for.
func (e *TooLong) Error() string {
	number := strconv.Itoa(e.Tokens)
	if e.AtLeast {
		number = "at least " + number
	}
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, your %s resulted in %s tokens, "+
		"and an answer needs at least 1. Please reduce the length of the %s.", e.MaxModelLen, e.Field, number, e.Field)
}

// Check refuses what an engine cannot answer whose longest sequence has maxModelLen tokens of a vocabulary.
// The error is a *sampling.Invalid or a *TooLong.
func (r *Request) Check(maxModelLen, vocab int) error {
	switch {
	case len(r.Prompt) == 0:
		return bad("prompt", "The prompt is empty.")
	case len(r.Prompt) >= maxModelLen:
		return &TooLong{Field: "prompt", Tokens: len(r.Prompt), MaxModelLen: maxModelLen}
	}
	for _, id := range r.Prompt {
		if id < 0 || int(id) >= vocab {
			return unknown("prompt", id, vocab)
		}
	}
	return r.CheckSettings(vocab)
}

// CheckSettings is Check without the prompt. The error is a *sampling.Invalid.
func (r *Request) CheckSettings(vocab int) error {
	switch {
	case r.N < 0 || r.N > MaxN:
		return bad("n", "n is %d; it must be from 1 to %d.", r.N, MaxN)
	case r.MaxTokens < 1:
		return bad("max_tokens", "max_tokens is %d; it must be at least 1.", r.MaxTokens)
	case r.MinTokens < 0 || r.MinTokens > r.MaxTokens:
		return bad("min_tokens", "min_tokens is %d; it must be from 0 to max_tokens, which is %d.", r.MinTokens, r.MaxTokens)
	case len(r.Stop) > 16:
		return bad("stop", "There are %d stop sequences; at most 16 are possible.", len(r.Stop))
	case len(r.StopTokenIDs) > maxStopTokens:
		return bad("stop_token_ids", "stop_token_ids has %d tokens; at most %d are possible.",
			len(r.StopTokenIDs), maxStopTokens)
	}
	for _, text := range r.Stop {
		switch {
		case text == "":
			return bad("stop", "A stop sequence is empty.")
		case len(text) > maxStopBytes:
			return bad("stop", "A stop sequence has %d bytes; at most %d are possible.", len(text), maxStopBytes)
		}
	}
	if len(r.CacheSalt) > maxSaltBytes {
		return bad("cache_salt", "cache_salt has %d bytes; at most %d are possible.", len(r.CacheSalt), maxSaltBytes)
	}
	for _, id := range r.StopTokenIDs {
		if id < 0 || int(id) >= vocab {
			return unknown("stop_token_ids", id, vocab)
		}
	}
	return r.Params.Check(vocab)
}

func bad(param, format string, args ...any) error {
	return &sampling.Invalid{Param: param, Message: fmt.Sprintf(format, args...)}
}

func unknown(param string, id int32, vocab int) error {
	return bad(param, "Token %d is not in the vocabulary, which has %d.", id, vocab)
}

// Finish is why an answer ended; OpenAI's finish_reason.
type Finish string

const (
	FinishStop   Finish = "stop"   // a token or a string that ends it
	FinishLength Finish = "length" // no room for more, or max_tokens
	FinishError  Finish = "error"  // the engine failed; see Event.Err
)

// A Token is a token of an answer or, with PromptLogprobs ≥ 0, of the prompt.
type Token struct {
	ID      int32
	Logprob sampling.Logprob   // with Logprobs ≥ 0; of the first token of a prompt there is none
	Top     []sampling.Logprob // the most likely ones, with Logprobs > 0
	Rank    int                // of a token of the prompt; see sampling.Rank
}

// An Event is news of one answer.
type Event struct {
	Index  int    // of the answer, from 0 to N-1
	Text   string // to be appended; it may lag behind Tokens
	Tokens []Token
	Prompt []Token // with PromptLogprobs ≥ 0: all tokens of the prompt, once, with answer 0
	Finish Finish  // "" as long as it goes on

	// StopReason is vLLM's: with FinishStop the stop sequence, or the token of StopTokenIDs (an int32), that ended the
	// answer; nil if the model's own end did.
	StopReason any
	Err        error // with FinishError
}
