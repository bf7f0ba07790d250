package openai

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/marks"
	"llmmemory/internal/serving/model/tokenizer"
)

// A source makes the prompts of a request. Tokenizing takes time and memory, so make is called after all checks that
// need no tokens.
type source struct {
	count int // prompts
	make  func(ctx context.Context) ([]prompt, error)
}

// turns limit the number of requests that are decoded and tokenized at a time. Short bodies do not wait for long ones.
type turns struct{ short, long chan struct{} }

// shortBody is the largest size of a short body in bytes.
const shortBody = 32 << 10

func newTurns() turns {
	n := runtime.GOMAXPROCS(0)
	return turns{short: make(chan struct{}, n), long: make(chan struct{}, max(1, n/4))}
}

// take waits for a turn. The caller must call end.
func (t *turns) take(ctx context.Context, bytes int) (end func(), err error) {
	places := t.long
	if bytes <= shortBody {
		places = t.short
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, errGone
	}
}

// prompts makes the prompts of a request and frees its body.
func (s *Server) prompts(r *http.Request, from source) ([]prompt, error) {
	defer free(r)
	return from.make(r.Context())
}

// A limit is the largest number of tokens of a text.
type limit struct {
	tokens int
	err    error // for a text with more tokens
	keep   int   // keep only the last tokens of the text; 0 means all
}

// cut returns the tokens to keep.
func (l *limit) cut(tokens []int32) []int32 {
	if l.keep == 0 || len(tokens) <= l.keep {
		return tokens
	}
	return slices.Clone(tokens[len(tokens)-l.keep:])
}

// limit returns the limit of each prompt of a request. Without truncate_prompt_tokens it is
// promptLimit. With it, longer prompts are accepted, and their last tokens are kept. The number of
// kept tokens is truncate or, if that is -1, as many as fit before maxTokens tokens of an answer.
func (s *Server) limit(truncate *int, maxTokens int) (limit, error) {
	if truncate == nil {
		return s.promptLimit(), nil
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

// promptLimit returns the limit of a prompt. At least one token of an answer must fit after the
// prompt.
func (s *Server) promptLimit() limit {
	most := s.config.Engine.Config().MaxModelLen
	return limit{tokens: most - 1, err: &engine.TooLong{Field: "prompt", Tokens: most, AtLeast: true, MaxModelLen: most}}
}

// maxCounted is the limit of /tokenize and /detokenize. It is higher if the model has longer
// sequences.
const maxCounted = 1 << 17

// countable returns the limit of /tokenize and /detokenize.
func (s *Server) countable() limit {
	most := max(maxCounted, s.config.Engine.Config().MaxModelLen)
	return limit{tokens: most, err: invalid("prompt", "The text has more than %d tokens, which is the most that is counted.", most)}
}

func (s *Server) encode(ctx context.Context, text string, special bool, most limit) ([]int32, error) {
	return most.kept(s.config.Engine.Config().Tokenizer.EncodeUpTo(ctx, text, special, most.tokens))
}

// kept returns the tokens to keep. If the tokenizer returned an error, kept returns the error of the
// request.
func (l *limit) kept(tokens []int32, err error) ([]int32, error) {
	switch {
	case errors.Is(err, tokenizer.ErrTooMany):
		return nil, l.err
	case err != nil:
		return nil, errGone
	}
	return l.cut(tokens), nil
}

// maxEnd is the length of prompt.end in bytes. Markers of reasoning are shorter.
const maxEnd = 64

// chatPrompt renders messages with the chat template and tokenizes the result. If the template cannot use the arguments
// of calls as values, it gets them as texts.
func (s *Server) chatPrompt(ctx context.Context, c *conversation, most limit) (prompt, error) {
	p, err := s.render(ctx, c, most)
	if err == nil || errors.Is(err, most.err) || ctx.Err() != nil {
		return p, err
	}
	if messages, changed, other := chat.WithTextArguments(c.messages); changed && other == nil {
		with := *c
		with.messages = messages
		if p, other := s.render(ctx, &with, most); other == nil {
			return p, nil
		}
	}
	return p, argumentsError(c.messages, err)
}

// render makes the prompt of a conversation. Unless Config.ParseSpecial is set, special tokens in texts of the client stay
// text.
func (s *Server) render(ctx context.Context, c *conversation, most limit) (p prompt, err error) {
	messages := c.messages
	cut := func(prompt string) (string, error) { return prompt, nil }
	if c.resume {
		messages, cut = chat.Continue(messages)
	}
	vocabulary := s.config.Engine.Config().Tokenizer
	options := chat.Options{Answer: c.answer, Kwargs: c.variables}
	if !s.config.ParseSpecial {
		options.Marked = vocabulary.Edges()
	}
	var text strings.Builder
	fits := vocabulary.Fits(most.tokens)
	marked, err := s.config.Template.RenderTo(func(piece string, m *marks.Marks) error {
		switch {
		case ctx.Err() != nil:
			return errGone
		case !fits(m.Plain(piece)):
			return most.err
		}
		text.WriteString(piece)
		return nil
	}, messages, options)
	if err != nil {
		return p, err
	}
	whole, err := cut(text.String())
	if err != nil {
		return p, err
	}
	p.end = strings.Clone(whole[max(0, len(whole)-maxEnd):])
	p.tokens, err = most.kept(vocabulary.EncodeMarked(ctx, whole, marked, c.special, most.tokens))
	return p, err
}
