package openai

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/toolparser"
)

// An answer makes OpenAI's JSON from the parts of a job's answers, for completions or for chats.
type answer struct {
	server   *Server
	chat     bool
	echo     bool    // in completions: the prompt precedes the answer
	special  bool    // texts include the names of special tokens
	shown    []int32 // special tokens whose names texts include in any case
	tokenIDs bool    // the tokens of prompts and answers are included

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
	// A choice is one answer. In completions it has a Text. In chats it has a Message, or a Delta if the answer is
	// streamed.
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
		Content *string `json:"content"`
		Refusal *string `json:"refusal"` // always null
		thought
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
	}
	delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
		thought
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
	}
	// thought has the reasoning under both names that clients read.
	thought struct {
		Reasoning        string `json:"reasoning,omitempty"`
		ReasoningContent string `json:"reasoning_content,omitempty"`
	}
	toolCall struct {
		Index    *int         `json:"index,omitempty"` // in streams
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		Function functionCall `json:"function"`
	}
	functionCall struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	usage struct {
		PromptTokens     int            `json:"prompt_tokens"`
		CompletionTokens int            `json:"completion_tokens"`
		TotalTokens      int            `json:"total_tokens"`
		Details          *promptDetails `json:"prompt_tokens_details,omitempty"`

		CompletionDetails *completionDetails `json:"completion_tokens_details,omitempty"` // if answers are searched for reasoning, as in vLLM
	}
	completionDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	}
	promptDetails struct {
		CachedTokens int `json:"cached_tokens"`
	}
)

func (s *Server) answer(chat bool, c *common, r *engine.Request) *answer {
	a := &answer{server: s, chat: chat, logprobs: r.Logprobs >= 0, special: r.SpecialTokens, shown: r.ShownTokens, tokenIDs: c.ReturnTokenIDs,
		top: r.Logprobs, promptTop: r.PromptLogprobs}
	prefix, object := "cmpl-", "text_completion"
	if chat {
		prefix, object = "chatcmpl-", "chat.completion"
	}
	if chat && c.Stream {
		object = "chat.completion.chunk"
	}
	a.body = answerBody{ID: NewID(prefix), Object: object, Created: time.Now().Unix(),
		Model: s.Name(c.Model)}
	return a
}

// withPrompt adds information about the prompt of p to the answer. For a chat, it returns a copy of the answer. The
// body of this copy also has the log probabilities of the prompt and, if the request asks for token ids, the tokens
// of the prompt. A stream sends this body once for each choice. For completions, withPrompt returns the answer
// unchanged.
func (a *answer) withPrompt(p *part) *answer {
	if !a.chat {
		return a
	}
	changed := *a
	changed.body.PromptLogprobs = p.promptLogprobs
	if a.tokenIDs {
		changed.body.PromptTokenIDs = &p.prompt.tokens
	}
	return &changed
}

// withChoices returns the body of an answer with the given choices. If u is not nil, the body has this usage.
func (a *answer) withChoices(u *usage, choices ...choice) answerBody {
	b := a.body
	b.Choices, b.Usage = append([]choice{}, choices...), u
	return b
}

// whole returns the choice of a complete answer.
func (a *answer) whole(p *part) choice {
	c := a.choice(p)
	if a.chat {
		c.Message = p.message()
	}
	return c
}

// message returns the message of a complete answer. If the message has calls and no content, its content is null.
func (p *part) message() *message {
	said := p.spoken()
	m := &message{Role: "assistant", Content: &said.content, thought: thought{said.reasoning, said.reasoning}}
	for _, c := range said.calls {
		m.ToolCalls = append(m.ToolCalls, toolCall{ID: c.id, Type: "function", Function: functionCall{c.name, c.arguments}})
	}
	if len(m.ToolCalls) > 0 && said.content == "" {
		m.Content = nil
	}
	return m
}

// chunks returns the choices for a new part of a streamed answer. A part of a completion becomes one choice. A part of
// a chat becomes one choice for each event that adds something to the message. The last of them also has the log
// probabilities and token ids of the part. If the part has one of these fields or a finish reason but no such event,
// there is one choice with an empty delta. If it has none of them, there is no choice. In a chat, the finish reason is
// never in a choice that adds something to the message (splitEnd).
//
// The parameter calls points to the number of calls that the answer has so far. Each call that begins in the part
// increases this number.
func (a *answer) chunks(p *part, calls *int) []choice {
	last := a.choice(p)
	if !a.chat {
		return []choice{last}
	}
	var all []choice
	for _, e := range p.events {
		if d := eventDelta(e, calls); d != nil {
			all = append(all, choice{Index: p.index, Delta: d})
		}
	}
	n := len(all)
	if n == 0 && last.Finish == nil && last.Logprobs == nil && last.TokenIDs == nil {
		return nil
	}
	last.Delta = &delta{}
	if n > 0 {
		last.Delta = all[n-1].Delta
		all = all[:n-1]
	}
	return append(all, splitEnd(last, n > 0)...)
}

// splitEnd returns a choice of the stream of a chat. If the choice adds something to the message and also ends it,
// splitEnd returns two choices, and only the second one ends the message. Some clients drop the text of a choice with a
// finish reason, as OpenAI's server sends none there.
func splitEnd(c choice, adds bool) []choice {
	if !adds || c.Finish == nil {
		return []choice{c}
	}
	end := choice{Index: c.Index, Delta: &delta{}, Finish: c.Finish, StopReason: c.StopReason}
	c.Finish, c.StopReason = nil, nil
	return []choice{c, end}
}

// eventDelta returns what an event adds to a message, or nil if it adds nothing. As in OpenAI's interface, the first
// delta of a call has the call's name and id, and later ones have parts of its arguments.
func eventDelta(e toolparser.Event, calls *int) *delta {
	switch e.Kind {
	case toolparser.Reasoning:
		return &delta{thought: thought{e.Text, e.Text}}
	case toolparser.Content:
		return &delta{Content: &e.Text}
	case toolparser.Call:
		index := *calls
		*calls++
		return &delta{ToolCalls: []toolCall{{&index, e.ID, "function", functionCall{Name: e.Name}}}}
	case toolparser.Arguments:
		index := *calls - 1
		return &delta{ToolCalls: []toolCall{{Index: &index, Function: functionCall{Arguments: e.Text}}}}
	}
	return nil
}

func (a *answer) choice(p *part) choice {
	c := choice{Index: p.index, StopReason: p.stopReason}
	if !a.chat {
		text := p.text
		if a.echo && p.first { // the tokens of a prompt may decode to another text, with a space before it or normalized
			text = cmp.Or(p.prompt.text, a.text(p.prompt.tokens)) + text
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

func (a *answer) text(tokens []int32) string {
	tokenizer := a.server.config.Engine.Config().Tokenizer
	if !a.special && len(a.shown) == 0 {
		return tokenizer.Decode(tokens)
	}
	var b strings.Builder
	for _, id := range tokens {
		if a.special || !tokenizer.Special(id) || slices.Contains(a.shown, id) {
			b.Write(tokenizer.Piece(id))
		}
	}
	return b.String()
}
