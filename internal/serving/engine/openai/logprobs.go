package openai

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
)

// completionLogprobs are the log probabilities of /v1/completions.
type completionLogprobs struct {
	Tokens      []string             `json:"tokens"`
	Values      []*float32           `json:"token_logprobs"`
	Top         []map[string]float32 `json:"top_logprobs"`
	TextOffsets []int                `json:"text_offset"`
}

// name returns the text of a token, or the name of a special token.
func (s *Server) name(id int32) string { return string(s.config.Engine.Config().Tokenizer.Piece(id)) }

// tokenKey returns the key of a token in the maps of completions. The key is the token's name. If the name is not
// UTF-8, the key is its bytes as OpenAI writes them. Otherwise JSON would replace the invalid bytes, and several
// tokens would get the same key.
func (s *Server) tokenKey(id int32) string {
	name := s.name(id)
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range []byte(name) {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return b.String()
}

// logprobs returns n, the number of most likely tokens that a field asks for, or an error if n is out of range.
func logprobs(field string, n int) (int, error) {
	if n < 0 || n > sampling.MaxLogprobs {
		return 0, invalid(field, "%s is %d; it must be from 0 to %d.", field, n, sampling.MaxLogprobs)
	}
	return n, nil
}

// A textPosition is the position in a text at which the next token begins. A character that consists of several tokens
// belongs to the last of them.
type textPosition struct {
	offset int    // characters
	begun  []byte // of an incomplete character
}

// advance returns the position of a token, and moves the position to the end of the token.
func (p *textPosition) advance(piece []byte) int {
	offset := p.offset
	p.begun = append(p.begun, piece...)
	for utf8.FullRune(p.begun) {
		_, n := utf8.DecodeRune(p.begun)
		p.begun = p.begun[n:]
		p.offset++
	}
	return offset
}

func (a *answer) completionLogprobs(p *part) *completionLogprobs {
	s := a.server
	l := &completionLogprobs{Tokens: []string{}, Values: []*float32{}, Top: []map[string]float32{}, TextOffsets: []int{}}
	tokenizer := s.config.Engine.Config().Tokenizer
	add := func(t engine.Token, known bool) {
		name, inText := s.tokenKey(t.ID), tokenizer.Piece(t.ID)
		if tokenizer.Special(t.ID) && !a.special {
			inText = nil
		}
		l.Tokens = append(l.Tokens, name)
		l.TextOffsets = append(l.TextOffsets, p.position.advance(inText))
		if !known {
			// The official client for Go reads a list of maps that contains null as an empty list. So the list has an
			// empty map here.
			l.Values, l.Top = append(l.Values, nil), append(l.Top, map[string]float32{})
			return
		}
		top := map[string]float32{name: t.Logprob.Value}
		for _, o := range t.Top {
			top[s.tokenKey(o.Token)] = o.Value
		}
		l.Values, l.Top = append(l.Values, &t.Logprob.Value), append(l.Top, top)
	}
	prefix := p.prefix
	if !a.echo {
		prefix = nil
	}
	for i, t := range prefix {
		t.Top = t.Top[:min(len(t.Top), a.top)] // prompt_logprobs may ask for more
		add(t, i > 0)
	}
	if len(prefix) > 0 && p.prompt.text != "" {
		*p.position = textPosition{offset: utf8.RuneCountInString(p.prompt.text)}
	}
	for _, t := range p.tokens {
		add(t, true)
	}
	return l
}

// promptLogprobs are vLLM's prompt_logprobs: a map for each token of the prompt, with this token and the most likely
// tokens. For the first token it is null.
type promptLogprobs []map[int32]promptLogprob

type promptLogprob struct {
	Logprob float32 `json:"logprob"`
	Rank    int     `json:"rank"`
	Decoded string  `json:"decoded_token"`
}

// promptLogprobs returns nil unless the client asks for prompt_logprobs.
func (a *answer) promptLogprobs(prompt []engine.Token) promptLogprobs {
	if a.promptTop < 0 {
		return nil
	}
	l := make(promptLogprobs, len(prompt))
	for i, t := range prompt {
		if i == 0 {
			continue
		}
		l[i] = map[int32]promptLogprob{t.ID: {t.Logprob.Value, t.Rank, a.server.name(t.ID)}}
		for k, o := range t.Top[:min(len(t.Top), a.promptTop)] {
			l[i][o.Token] = promptLogprob{o.Value, k + 1, a.server.name(o.Token)}
		}
	}
	return l
}

// maxPromptLogprobs is the largest number of log probabilities of prompt tokens that a request may ask for, for all
// its prompts and answers together. Each takes about 200 bytes.
const maxPromptLogprobs = 1 << 20

// checkPromptLogprobs returns an error for a request for more than maxPromptLogprobs.
func (j *job) checkPromptLogprobs(r *engine.Request) error {
	if r.PromptLogprobs < 0 {
		return nil
	}
	tokens := 0
	for _, p := range j.prompts {
		tokens += len(p.tokens)
	}
	if tokens*r.N*(r.PromptLogprobs+1) <= maxPromptLogprobs {
		return nil
	}
	field := "prompt_logprobs"
	if j.answer.promptTop < 0 {
		field = "logprobs" // with echo
	}
	return invalid(field, "%s is %d for %d tokens of prompts and %d answers, which are more than %d log probabilities; "+
		"ask for fewer, or send the prompts one by one.", field, r.PromptLogprobs, tokens, r.N, maxPromptLogprobs)
}

// chatLogprobs are the log probabilities of /v1/chat/completions.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	Token   string         `json:"token"`
	Logprob float32        `json:"logprob"`
	Bytes   []int          `json:"bytes"`
	Top     *[]chatLogprob `json:"top_logprobs,omitempty"`
}

func (s *Server) chatLogprob(l sampling.Logprob) chatLogprob {
	bytes := []int{}
	for _, b := range []byte(s.name(l.Token)) {
		bytes = append(bytes, int(b))
	}
	return chatLogprob{Token: s.name(l.Token), Logprob: l.Value, Bytes: bytes}
}

func (s *Server) chatLogprobs(p *part) *chatLogprobs {
	l := &chatLogprobs{Content: []chatLogprob{}}
	for _, t := range p.tokens {
		entry, top := s.chatLogprob(t.Logprob), []chatLogprob{}
		for _, o := range t.Top {
			top = append(top, s.chatLogprob(o))
		}
		entry.Top = &top
		l.Content = append(l.Content, entry)
	}
	return l
}
