package openai

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
)

// An answer makes the JSON of answers to a request, for completions or for chats.
type answer struct {
	server   *Server
	chat     bool
	echo     bool // in completions: the prompt precedes the answer
	special  bool // texts include the names of special tokens
	tokenIDs bool // the tokens of prompts and answers are included

	top, promptTop int // most likely tokens to include for each token; -1 means no log probabilities at all
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

		// Fields of vLLM, in chats.
		PromptTokenIDs *tokenIDs      `json:"prompt_token_ids,omitempty"`
		PromptLogprobs promptLogprobs `json:"prompt_logprobs,omitempty"`
	}
	// A choice has a Text in completions, and a Message or in streams a Delta in chats.
	choice struct {
		Index    int            `json:"index"`
		Text     *string        `json:"text,omitempty"`
		Message  *message       `json:"message,omitempty"`
		Delta    *delta         `json:"delta,omitempty"`
		Logprobs any            `json:"logprobs"`
		Finish   *engine.Finish `json:"finish_reason"`

		// Fields of vLLM.
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
	rand.Read(b[:])
	a.body = answerBody{ID: prefix + hex.EncodeToString(b[:]), Object: object, Created: time.Now().Unix(),
		Model: s.config.Name}
	return a
}

// field returns the field of a request that contains the prompt.
func (a *answer) field() string {
	if a.chat {
		return "messages"
	}
	return "prompt"
}

// withPrompt returns a with the tokens and log probabilities of the prompt of a chat. A stream sends them once for each
// answer.
func (a *answer) withPrompt(p *part) *answer {
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

// with returns the body with choices, and with the usage unless that is nil.
func (a *answer) with(u *usage, choices ...choice) answerBody {
	b := a.body
	b.Choices, b.Usage = append([]choice{}, choices...), u
	return b
}

// whole returns the choice of a complete answer.
func (a *answer) whole(p *part) choice {
	c := a.choice(p)
	if a.chat {
		c.Message = &message{Role: "assistant", Content: p.text}
	}
	return c
}

// chunk returns the choice of a new part of an answer, for a stream.
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

// opening returns the choice of the first chunk of an answer in a chat, which has the role.
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

// promptText returns a prompt as the client gave it. Its tokens may decode to another text: with a space before it,
// normalized, or without the names of special tokens.
func (a *answer) promptText(p prompt) string {
	if p.text != "" {
		return p.text
	}
	return a.text(p.tokens)
}

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
