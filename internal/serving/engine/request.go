package engine

import (
	"errors"
	"fmt"
	"strconv"

	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/structured"
)

// A Request asks for answers to a prompt or, with Pooling, for its vector.
type Request struct {
	Prompt []int32

	// Pooling asks for a vector of the prompt's hidden states instead of answers. Of the other fields, only Prompt, Adapter
	// and CacheSalt then have an effect. With pooling.Mean the request needs the states of all tokens, so it finds nothing
	// in the prefix cache.
	Pooling pooling.Type

	N         int // number of answers; 0 means 1
	MaxTokens int // limit of an answer's tokens; an answer also ends when the sequence is as long as the model allows
	MinTokens int // an answer with fewer tokens is not ended by end tokens, stop tokens or stop strings
	sampling.Params

	Stop         []string // an answer ends before one of these
	StopTokenIDs []int32  // an answer ends after one of these
	IgnoreEOS    bool     // the model's own end tokens do not end an answer

	IncludeStop   bool // the text includes the stop string or token that ends it (vLLM's include_stop_str_in_output)
	SpecialTokens bool // the text includes the names of special tokens (vLLM's skip_special_tokens is false)

	// ShownTokens are special tokens whose names are part of the text even if SpecialTokens is false. But a token that
	// ends the answer is not part of the text unless IncludeStop is set.
	ShownTokens []int32

	// Constraint limits the answer to a form, unless Constraint is nil. The form must be compiled with the vocabulary of
	// the engine's model. This vocabulary has the Piece of each token that is neither special nor too long for
	// structured.NewVocabulary. It has the tokens in Config.End as end tokens. An answer ends when the form allows no
	// further token.
	Constraint *structured.Constraint

	// Matcher replaces Constraint if the prompt already contains the beginning of the constrained answer. The Matcher
	// must have accepted this beginning. Token.Top then has only tokens that the constraint allows. The engine does
	// not change Matcher.
	Matcher *structured.Matcher

	// CacheSalt limits prefix hits to requests with the same salt.
	CacheSalt string

	Adapter int // number of the adapter in Config.Adapters, from 1; 0 means none (vLLM's lora_int_id)
}

// Errors of Submit, besides those of Request.Check.
var (
	ErrBusy   = errors.New("too many requests are waiting")
	ErrClosed = errors.New("the server is shutting down")
)

// MaxN is the largest N.
const MaxN = 128

// Limits on the memory of a waiting request, and on the time for comparing a token of its answer with the request's
// stop tokens and strings.
const (
	maxStops      = 64  // Continue sends 19
	maxStopTokens = 128 // vLLM's MAX_NUM_STOP_TOKEN_IDS
	maxStopBytes  = 1 << 10
	maxSaltBytes  = 1 << 10
)

// TooLong is the error for a prompt that leaves no space for even one token of an answer. The scheduler has this limit
// also for requests with Pooling.
type TooLong struct {
	Field       string // of the request: prompt, messages, input, documents or input_prefix
	Pooling     bool   // the request has Pooling
	Tokens      int    // of the prompt
	AtLeast     bool   // the prompt was only tokenized up to Tokens
	MaxModelLen int
}

// Error begins with OpenAI's sentence, for which clients search.
func (e *TooLong) Error() string {
	number := strconv.Itoa(e.Tokens)
	if e.AtLeast {
		number = "at least " + number
	}
	more := "an answer needs at least 1"
	if e.Pooling {
		more = fmt.Sprintf("it may have at most %d", e.MaxModelLen-1)
	}
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, your %s resulted in %s tokens, "+
		"and %s. Please reduce the length of the %s.", e.MaxModelLen, e.Field, number, more, e.Field)
}

// Check returns an error if an engine with the given longest sequence and vocabulary size cannot answer the request. It
// is a *sampling.Invalid, a *TooLong, or the error of Pooling's method Check.
func (r *Request) Check(maxModelLen, vocab int) error {
	switch {
	case len(r.Prompt) == 0:
		return bad("prompt", "The prompt is empty.")
	case len(r.Prompt) >= maxModelLen:
		return &TooLong{Field: "prompt", Pooling: r.Pooling != "", Tokens: len(r.Prompt), MaxModelLen: maxModelLen}
	}
	for _, id := range r.Prompt {
		if id < 0 || int(id) >= vocab {
			return unknown("prompt", id, vocab)
		}
	}
	return r.CheckSettings(vocab)
}

// CheckSettings is like Check but ignores the prompt.
func (r *Request) CheckSettings(vocab int) error {
	switch {
	case len(r.CacheSalt) > maxSaltBytes:
		return bad("cache_salt", "cache_salt has %d bytes; at most %d are possible.", len(r.CacheSalt), maxSaltBytes)
	case r.Pooling != "":
		return r.Pooling.Check()
	case r.N < 0 || r.N > MaxN:
		return bad("n", "n is %d; it must be from 1 to %d.", r.N, MaxN)
	case r.MaxTokens < 1:
		return bad("max_tokens", "max_tokens is %d; it must be at least 1.", r.MaxTokens)
	case r.MinTokens < 0 || r.MinTokens > r.MaxTokens:
		return bad("min_tokens", "min_tokens is %d; it must be from 0 to max_tokens, which is %d.", r.MinTokens, r.MaxTokens)
	case len(r.Stop) > maxStops:
		return bad("stop", "There are %d stop sequences; at most %d are possible.", len(r.Stop), maxStops)
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
	FinishLength Finish = "length" // MaxTokens, or the longest sequence of the model
	FinishError  Finish = "error"  // see Event.Err
)

// A Token is a token of an answer or, if PromptLogprobs is at least 0, of the prompt.
type Token struct {
	ID      int32
	Logprob sampling.Logprob   // set if Logprobs (of a prompt: PromptLogprobs) is at least 0; a prompt's first token has none
	Top     []sampling.Logprob // the most likely tokens, if this number is above 0
	Rank    int                // of a token of the prompt; see sampling.Rank
}

// An Event reports new tokens of an answer, its end, or both.
type Event struct {
	Index  int    // of the answer, from 0 to N-1
	Text   string // new text; it may lag behind Tokens
	Tokens []Token
	Prompt []Token // the tokens of the prompt, in the first event of answer 0 if PromptLogprobs is at least 0
	Finish Finish  // "" while the answer continues

	// StopReason is vLLM's stop_reason. If a stop string or a token of StopTokenIDs ended the answer, it is this
	// string or token (an int32). If one of the model's end tokens ended the answer, it is nil.
	StopReason any
	Err        error // with FinishError

	Pooled []float32 // of a request with Pooling: the vector, of the model's HiddenSize
}
