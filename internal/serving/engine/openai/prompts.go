package openai

import (
	"cmp"
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

// A source makes the prompts of a request. The function make tokenizes the texts. This takes time and memory, so make
// is called after all checks that need no tokens.
type source struct {
	count int // prompts
	make  func(ctx context.Context) ([]prompt, error)
}

// slots limit the number of requests that are decoded and tokenized at the same time. Short bodies have slots of their
// own, so they do not wait for long ones.
type slots struct{ short, long chan struct{} }

// shortBody is the largest size of a short body in bytes.
const shortBody = 32 << 10

func newSlots() slots {
	n := runtime.GOMAXPROCS(0)
	return slots{short: make(chan struct{}, n), long: make(chan struct{}, max(1, n/4))}
}

// take waits for a free slot. The caller must call end to release it.
func (t *slots) take(ctx context.Context, bytes int) (end func(), err error) {
	free := t.long
	if bytes <= shortBody {
		free = t.short
	}
	select {
	case free <- struct{}{}:
		return func() { <-free }, nil
	case <-ctx.Done():
		return nil, errGone
	}
}

// prompts makes the prompts of a request and releases its slot.
func (s *Server) prompts(r *http.Request, src source) ([]prompt, error) {
	defer reservationOf(r).endSlot()
	return src.make(r.Context())
}

// A limit limits the number of tokens of a text.
type limit struct {
	tokens int
	err    error // for a text with more tokens
	keep   int   // keep only the last tokens of the text; 0 means all
}

// cut returns the last l.keep tokens, or all if keep is 0.
func (l *limit) cut(tokens []int32) []int32 {
	if l.keep == 0 || len(tokens) <= l.keep {
		return tokens
	}
	return slices.Clone(tokens[len(tokens)-l.keep:])
}

// limit returns the limit for each prompt of a request. The parameter truncate is the request's field
// truncate_prompt_tokens. If truncate is nil, the result is promptLimit. Otherwise longer prompts are accepted, up to
// the limit of countable, and only their last tokens are kept:
//   - If the value is from 1 to MaxModelLen-1, it is the number of tokens that are kept.
//   - If the value is -1, the tokens that are kept leave space for an answer of maxTokens tokens. If maxTokens is 0
//     or too large, they leave space for one token.
func (s *Server) limit(truncate *int, maxTokens int) (limit, error) {
	if truncate == nil {
		return s.promptLimit(), nil
	}
	l, maxLen := s.countable(), s.config.Engine.Config().MaxModelLen
	switch l.keep = *truncate; {
	case l.keep == -1 && maxTokens > 0 && maxTokens < maxLen:
		l.keep = maxLen - maxTokens
	case l.keep == -1:
		l.keep = maxLen - 1
	case l.keep < 1 || l.keep >= maxLen:
		return l, invalid("truncate_prompt_tokens", "truncate_prompt_tokens is %d; it must be from 1 to %d, or -1.", l.keep, maxLen-1)
	}
	return l, nil
}

// promptLimit returns the limit for a prompt that leaves space for one token of an answer.
func (s *Server) promptLimit() limit {
	n := s.config.Engine.Config().MaxModelLen
	return limit{tokens: n - 1, err: &engine.TooLong{Field: "prompt", Tokens: n, AtLeast: true, MaxModelLen: n}}
}

// countedLimit returns the limit for a prompt whose tokens are counted even if it leaves no space for an answer. The
// error of Request.Check then has their number, from which clients compute how much to leave out.
func (s *Server) countedLimit() limit {
	n := s.countable().tokens
	return limit{tokens: n, err: &engine.TooLong{Field: "prompt", Tokens: n + 1, AtLeast: true, MaxModelLen: s.config.Engine.Config().MaxModelLen}}
}

// maxCounted is the largest number of tokens that the server counts: in /tokenize, /detokenize and Count, in a text that
// is then cut, and in a chat of another interface. If the server allows longer sequences (MaxModelLen), MaxModelLen is
// the limit instead.
const maxCounted = 1 << 17

// countable returns the limit for texts whose tokens are counted (maxCounted).
func (s *Server) countable() limit {
	n := max(maxCounted, s.config.Engine.Config().MaxModelLen)
	return limit{tokens: n, err: invalid("prompt", "The text has more than %d tokens, which is the most that is counted.", n)}
}

func (s *Server) encode(ctx context.Context, text string, special bool, limit limit) ([]int32, error) {
	return limit.kept(s.config.Engine.Config().Tokenizer.EncodeUpTo(ctx, text, special, limit.tokens))
}

// kept returns cut(tokens). If err, the error of the tokenizer, is not nil, it returns the error for the client
// instead.
func (l *limit) kept(tokens []int32, err error) ([]int32, error) {
	switch {
	case errors.Is(err, tokenizer.ErrTooMany):
		return nil, l.err
	case err != nil:
		return nil, errGone
	}
	return l.cut(tokens), nil
}

// maxEnd is the largest length of prompt.end in bytes. The markers of reasoning are shorter, so prompt.end shows
// whether the prompt ends with one of them.
const maxEnd = 64

// chatPrompt renders messages with the chat template and tokenizes the result. Templates get the arguments of calls as
// values. If that fails, chatPrompt tries again with the arguments as JSON texts.
func (s *Server) chatPrompt(ctx context.Context, c *Chat, limit limit) (prompt, error) {
	p, err := s.render(ctx, c, limit)
	if err == nil || errors.Is(err, limit.err) || ctx.Err() != nil {
		return p, err
	}
	if messages, changed, other := chat.WithTextArguments(c.Messages); changed && other == nil {
		copied := *c
		copied.Messages = messages
		if p, other := s.render(ctx, &copied, limit); other == nil {
			return p, nil
		}
	}
	return p, argumentsError(c.Messages, err)
}

// render makes the prompt of a chat. Unless Config.ParseSpecial is set, names of special tokens in the client's texts
// do not become special tokens.
func (s *Server) render(ctx context.Context, c *Chat, limit limit) (p prompt, err error) {
	messages := c.Messages
	cut := func(prompt string) (string, error) { return prompt, nil }
	if c.Continue {
		messages, cut = chat.Continue(messages)
	}
	vocabulary := s.config.Engine.Config().Tokenizer
	options := chat.Options{Answer: !c.Continue && !c.noPrompt, Kwargs: c.variables}
	if !s.config.ParseSpecial {
		options.Marked = vocabulary.Edges()
	}
	var text strings.Builder
	fits := vocabulary.Fits(limit.tokens)
	marked, err := cmp.Or(c.template, s.config.Template).RenderTo(ctx, func(piece string, m *marks.Marks) error {
		if !fits(m.Plain(piece)) {
			return limit.err
		}
		text.WriteString(piece)
		return nil
	}, messages, options)
	switch {
	case ctx.Err() != nil:
		return p, errGone
	case err != nil:
		return p, err
	}
	whole, err := cut(text.String())
	if err != nil {
		return p, err
	}
	p.end = strings.Clone(whole[max(0, len(whole)-maxEnd):])
	p.tokens, err = limit.kept(vocabulary.EncodeMarked(ctx, whole, marked, c.special, limit.tokens))
	return p, err
}
