package openai

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"llmmemory/internal/engine"
	"llmmemory/internal/model/chat"
	"llmmemory/internal/model/tokenizer"
)

// A source makes the prompts of a request. That takes time and memory, so it comes after all checks that need no
// tokens.
type source struct {
	count int // prompts
	make  func(ctx context.Context) ([]prompt, error)
}

// turns bound how many texts become tokens at a time. Short ones do not wait for long ones.
type turns struct{ short, long chan struct{} }

// shortBody is the largest body whose texts count as short, in bytes.
const shortBody = 32 << 10

func newTurns() turns {
	n := runtime.GOMAXPROCS(0)
	return turns{short: make(chan struct{}, n), long: make(chan struct{}, max(1, n/4))}
}

// take waits for a turn. done ends it.
func (t *turns) take(r *http.Request) (done func(), err error) {
	places := t.long
	if r.ContentLength >= 0 && r.ContentLength <= shortBody {
		places = t.short
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-r.Context().Done():
		return nil, errGone
	}
}

// prompts makes the prompts of a request when there is a turn for it.
func (s *Server) prompts(r *http.Request, from source) ([]prompt, error) {
	done, err := s.turns.take(r)
	if err != nil {
		return nil, err
	}
	defer done()
	return from.make(r.Context())
}

// A limit is how many tokens a text may have.
type limit struct {
	tokens int
	err    error // if it has more
	keep   int   // of its tokens, the last ones; 0: all
}

// cut returns the tokens that are kept.
func (l *limit) cut(tokens []int32) []int32 {
	if l.keep == 0 || len(tokens) <= l.keep {
		return tokens
	}
	return slices.Clone(tokens[len(tokens)-l.keep:])
}

// limit is that of the prompts of a request: as many tokens as leave room for an answer or, with truncate_prompt_tokens,
// as many as are counted, of which the last ones are kept. -1 keeps what leaves room for maxTokens, if anything does.
func (s *Server) limit(truncate *int, maxTokens int) (limit, error) {
	if truncate == nil {
		return s.room(), nil
	}
	l, most := s.countable(), s.config.Engine.Config().MaxModelLen
	switch l.keep = *truncate; {
	case l.keep == -1 && maxTokens > 0 && maxTokens < most:
		l.keep = most - maxTokens
	case l.keep == -1:
		l.keep = most - 1
	case l.keep < 1 || l.keep >= most:
		return l, invalid("truncate_prompt_tokens", "truncate_prompt_tokens is %d; it must be from 1 to %d, or -1.", l.keep, most-1)
	}
	return l, nil
}

// room is the limit of a prompt, which leaves room for an answer.
func (s *Server) room() limit {
	most := s.config.Engine.Config().MaxModelLen
	return limit{tokens: most - 1, err: &engine.TooLong{Field: "prompt", Tokens: most, AtLeast: true, MaxModelLen: most}}
}

// maxCounted is how many tokens /tokenize returns and /detokenize takes, if the model has no longer sequences.
const maxCounted = 1 << 17

// countable is the limit of /tokenize and /detokenize.
func (s *Server) countable() limit {
	most := max(maxCounted, s.config.Engine.Config().MaxModelLen)
	return limit{tokens: most, err: invalid("prompt", "The text has more than %d tokens, which is the most that is counted.", most)}
}

// encode makes the tokens of a text.
func (s *Server) encode(ctx context.Context, text string, special bool, most limit) ([]int32, error) {
	tokens, err := s.config.Engine.Config().Tokenizer.EncodeUpTo(ctx, text, special, most.tokens)
	switch {
	case errors.Is(err, tokenizer.ErrTooMany):
		return nil, most.err
	case err != nil:
		return nil, errGone
	}
	return most.cut(tokens), nil
}

// chatTokens makes the tokens of the text that the chat template makes of messages.
func (s *Server) chatTokens(ctx context.Context, body *chatRequest, most limit) ([]int32, error) {
	messages, err := body.forTemplate()
	if err != nil {
		return nil, err
	}
	cut := func(prompt string) (string, error) { return prompt, nil }
	if body.ContinueFinalMessage {
		messages, cut = chat.Continue(messages)
	}
	var text strings.Builder
	fits := s.config.Engine.Config().Tokenizer.Room(most.tokens)
	err = s.config.Template.RenderTo(func(piece string) error {
		switch {
		case ctx.Err() != nil:
			return errGone
		case !fits(piece):
			return most.err
		}
		text.WriteString(piece)
		return nil
	}, messages, body.opensAnswer(), body.ChatTemplateKwargs)
	if err != nil {
		return nil, argumentsError(messages, err)
	}
	prompt, err := cut(text.String())
	if err != nil {
		return nil, err
	}
	// Most templates write the tokens that begin a text by themselves.
	return s.encode(ctx, prompt, body.AddSpecialTokens, most)
}
