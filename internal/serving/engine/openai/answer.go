package openai

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
)

// An answer writes what the engine generates as one of the two interfaces has it.
type answer struct {
	server   *Server
	chat     bool
	echo     bool // completions: the prompt comes first
	special  bool // texts have the names of special tokens
	tokenIDs bool // the tokens of prompts and answers are wanted

	top, promptTop int // the most likely tokens to report for each token; -1: none, and not the token itself
	logprobs       bool
	body           answerBody // without choices
}

type (
	answerBody struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   *usage   `json:"usage,omitempty"`
		Timings *timings `json:"timings,omitempty"`

		// vLLM's, in chats.
		PromptTokenIDs *tokenIDs      `json:"prompt_token_ids,omitempty"`
		PromptLogprobs promptLogprobs `json:"prompt_logprobs,omitempty"`
	}
	// A choice has a text of completions, or the message of a chat or a part of it.
	choice struct {
		Index    int            `json:"index"`
		Text     *string        `json:"text,omitempty"`
		Message  *message       `json:"message,omitempty"`
		Delta    *delta         `json:"delta,omitempty"`
		Logprobs any            `json:"logprobs"`
		Finish   *engine.Finish `json:"finish_reason"`

		// vLLM's.
		StopReason     any            `json:"stop_reason"` // a text, a token or null
		TokenIDs       *tokenIDs      `json:"token_ids,omitempty"`
		PromptTokenIDs *tokenIDs      `json:"prompt_token_ids,omitempty"` // in completions
		PromptLogprobs promptLogprobs `json:"prompt_logprobs,omitempty"`  // in completions
	}
	tokenIDs = []int32
	message  struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"` // always null
	}
	delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	}
	usage struct {
		PromptTokens     int            `json:"prompt_tokens"`
		CompletionTokens int            `json:"completion_tokens"`
		TotalTokens      int            `json:"total_tokens"`
		Details          *promptDetails `json:"prompt_tokens_details,omitempty"`
	}
	promptDetails struct {
		CachedTokens int `json:"cached_tokens"`
	}
)

func (s *Server) answer(chat bool, c *common, r *engine.Request) *answer {
	a := &answer{server: s, chat: chat, logprobs: r.Logprobs >= 0, special: r.SpecialTokens, tokenIDs: c.ReturnTokenIDs,
		top: r.Logprobs, promptTop: r.PromptLogprobs}
	prefix, object := "cmpl-", "text_completion"
	if chat {
		prefix, object = "chatcmpl-", "chat.completion"
	}
	if chat && c.Stream {
		object = "chat.completion.chunk"
	}
	var b [12]byte
	rand.Read(b[:]) // never fails
	a.body = answerBody{ID: prefix + hex.EncodeToString(b[:]), Object: object, Created: time.Now().Unix(),
		Model: s.config.Name}
	return a
}

// field is the field of a request that has the prompt.
func (a *answer) field() string {
	if a.chat {
		return "messages"
	}
	return "prompt"
}

// of adds to a chat what is reported of its prompt. A stream has it once for each answer.
func (a *answer) of(p *part) *answer {
	if !a.chat {
		return a
	}
	to := *a
	to.body.PromptLogprobs = p.promptLogprobs
	if a.tokenIDs {
		to.body.PromptTokenIDs = &p.prompt.tokens
	}
	return &to
}

// with is the body with some choices, and perhaps the usage.
func (a *answer) with(u *usage, choices ...choice) answerBody {
	b := a.body
	b.Choices, b.Usage = append([]choice{}, choices...), u
	return b
}

// whole is the choice of an answer that is complete.
func (a *answer) whole(p *part) choice {
	c := a.choice(p)
	if a.chat {
		c.Message = &message{Role: "assistant", Content: p.text}
	}
	return c
}

// chunk is the choice of what is new of an answer.
func (a *answer) chunk(p *part) choice {
	c := a.choice(p)
	if a.chat {
		c.Delta = &delta{}
		if p.text != "" {
			c.Delta.Content = &p.text
		}
	}
	return c
}

// opening is the choice of the first chunk of a chat's answer, which has the role.
func (a *answer) opening(index int) choice {
	return choice{Index: index, Delta: &delta{"assistant", new(string)}}
}

func (a *answer) choice(p *part) choice {
	c := choice{Index: p.index, StopReason: p.stopReason}
	if !a.chat {
		text := p.text
		if a.echo && p.first {
			text = a.promptText(p.prompt) + text
		}
		c.Text = &text
		c.PromptLogprobs = p.promptLogprobs
	}
	switch {
	case a.logprobs && a.chat:
		c.Logprobs = a.server.chatLogprobs(p)
	case a.logprobs:
		c.Logprobs = a.completionLogprobs(p)
	}
	if a.tokenIDs {
		ids := tokenIDs{}
		for _, t := range p.tokens {
			ids = append(ids, t.ID)
		}
		c.TokenIDs = &ids
		if p.first && !a.chat {
			c.PromptTokenIDs = &p.prompt.tokens
		}
	}
	if p.finish != "" {
		c.Finish = &p.finish
	}
	return c
}

// promptText is a prompt as it was given. Its tokens may decode to another text: with a space before it,
// normalized, or without the names of special tokens.
func (a *answer) promptText(p prompt) string {
	if p.text != "" {
		return p.text
	}
	return a.text(p.tokens)
}

// text is the text of tokens.
func (a *answer) text(tokens []int32) string {
	tokenizer := a.server.config.Engine.Config().Tokenizer
	if !a.special {
		return tokenizer.Decode(tokens)
	}
	var b strings.Builder
	for _, id := range tokens {
		b.Write(tokenizer.Piece(id))
	}
	return b.String()
}
