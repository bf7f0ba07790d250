package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/chat/jinja"
)

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	common
	chatFields
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         *int            `json:"top_logprobs"`
	AddSpecialTokens    bool            `json:"add_special_tokens"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
}

// chatFields are the fields from which the chat template makes a prompt.
type chatFields struct {
	Messages             []chatMessage     `json:"messages"`
	Tools                []json.RawMessage `json:"tools"`
	ReasoningEffort      string            `json:"reasoning_effort"`
	AddGenerationPrompt  *bool             `json:"add_generation_prompt"`
	ContinueFinalMessage bool              `json:"continue_final_message"`
	ChatTemplateKwargs   kwargs            `json:"chat_template_kwargs"`
}

// opensAnswer reports whether the prompt ends where an answer begins.
func (body *chatFields) opensAnswer() bool {
	return !body.ContinueFinalMessage && (body.AddGenerationPrompt == nil || *body.AddGenerationPrompt)
}

// kwargs are variables of the chat template.
type kwargs map[string]any

// UnmarshalJSON keeps the order of fields in objects, which a template may print.
func (k *kwargs) UnmarshalJSON(data []byte) error {
	var values map[string]json.RawMessage
	if json.Unmarshal(data, &values) != nil {
		return invalid("chat_template_kwargs", "chat_template_kwargs is not a JSON object; an object is expected.")
	}
	*k = kwargs{}
	for name, text := range values {
		value, err := jinja.FromJSON(text)
		if err != nil {
			return invalid("chat_template_kwargs", "%v.", err)
		}
		(*k)[name] = value
	}
	return nil
}

// roles are the roles of OpenAI's messages, except function, which tool has replaced.
var roles = []string{"system", "developer", "user", "assistant", "tool"}

// efforts are the values of reasoning_effort that vLLM passes to a template.
var efforts = []string{"low", "medium", "high"}

type chatMessage struct {
	Role    string   `json:"role"`
	Content *content `json:"content"`
	Name    string   `json:"name"`

	ToolCalls        []json.RawMessage `json:"tool_calls"`
	ToolCallID       string            `json:"tool_call_id"`
	Reasoning        string            `json:"reasoning"`
	ReasoningContent string            `json:"reasoning_content"` // older name of reasoning
	FunctionCall     any               `json:"function_call"`
}

// message returns message i for the template. As in vLLM, tool calls and reasoning are ignored except in messages of an
// assistant, and tool_call_id except in those of a tool.
func (m *chatMessage) message(i int) (chat.Message, error) {
	to := chat.Message{Role: m.Role, Name: m.Name}
	if !slices.Contains(roles, m.Role) {
		if m.Role == "" {
			return to, invalid("messages", "Message %d has no role.", i)
		}
		return to, invalid("messages", "Message %d has the role %q; system, developer, user, assistant and tool are known.",
			i, m.Role)
	}
	switch {
	case m.FunctionCall != nil:
		return to, invalid("messages", "Message %d has a function_call; use tool_calls.", i)
	case m.Content != nil:
		to.Content = string(*m.Content)
	case m.Role != "assistant": // whose content may be null in OpenAI's interface
		return to, invalid("messages", "Message %d has no content.", i)
	}
	switch m.Role {
	case "tool":
		to.ToolCallID = m.ToolCallID
	case "assistant":
		to.Reasoning = cmp.Or(m.Reasoning, m.ReasoningContent)
		for k, text := range m.ToolCalls {
			call, err := chat.ToolCall(text)
			if err != nil {
				return to, invalid("messages", "Call %d of message %d %v.", k, i, err)
			}
			to.ToolCalls = append(to.ToolCalls, call)
		}
	}
	return to, nil
}

// content is a text or a list of texts. As in vLLM, each text of a list becomes a line.
type content string

func (c *content) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(c)) == nil {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(data, &parts) != nil {
		return invalid("messages", "The content of a message must be a string or a list of parts.")
	}
	lines := make([]string, len(parts))
	for i, p := range parts {
		if p.Type != "text" {
			return invalid("messages", "A message has a part of type %q; this model reads text.", p.Type)
		}
		lines[i] = p.Text
	}
	*c = content(strings.Join(lines, "\n"))
	return nil
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	body := chatRequest{}
	if err := s.parse(w, r, &body, &body.common); err != nil {
		return err
	}
	request, err := body.request()
	if err != nil {
		return err
	}
	if body.MaxCompletionTokens != nil {
		if tokenLimit(*body.MaxCompletionTokens) < 1 {
			return invalid("max_completion_tokens", "max_completion_tokens is %d; it must be at least 1.",
				*body.MaxCompletionTokens)
		}
		body.MaxTokens = body.MaxCompletionTokens
	}
	request.MaxTokens = s.config.Engine.Config().MaxModelLen
	if body.MaxTokens != nil {
		request.MaxTokens = tokenLimit(*body.MaxTokens)
	}
	switch {
	case body.TopLogprobs != nil && *body.TopLogprobs != 0 && !body.Logprobs:
		return invalid("top_logprobs", "top_logprobs is only allowed when logprobs is true.")
	case body.Logprobs:
		request.Logprobs = 0
		if body.TopLogprobs != nil {
			if request.Logprobs, err = logprobs("top_logprobs", *body.TopLogprobs); err != nil {
				return err
			}
		}
	}
	if err := body.checkTools(); err != nil {
		return err
	}
	most, err := s.limit(body.Truncate, request.MaxTokens)
	if err != nil {
		return err
	}
	j := &job{n: request.N, answer: s.answer(true, &body.common, &request)}
	if j.source, err = s.chatSource(&body.chatFields, body.AddSpecialTokens, most); err != nil {
		return err
	}
	return s.do(w, r, &body.common, request, j)
}

// chatSource returns the source of the prompt of a chat.
func (s *Server) chatSource(body *chatFields, special bool, most limit) (source, error) {
	if err := s.canChat(body); err != nil {
		return source{}, err
	}
	return source{1, func(ctx context.Context) ([]prompt, error) {
		tokens, err := s.chatTokens(ctx, body, special, most)
		return []prompt{{tokens: tokens}}, err
	}}, nil
}

// canChat returns an error for a chat that can be refused without rendering the template.
func (s *Server) canChat(body *chatFields) error {
	template := s.config.Template
	switch {
	case template == nil && s.config.TemplateError != nil:
		return invalid("", "The chat template of the model %q cannot be used: %v. Use /v1/completions.", s.config.Name,
			s.config.TemplateError)
	case template == nil:
		return invalid("", "The model %q has no chat template; use /v1/completions.", s.config.Name)
	case body.Messages == nil:
		return invalid("messages", "messages is missing.")
	case len(body.Messages) == 0:
		return invalid("messages", "messages is empty.")
	case body.ContinueFinalMessage && body.AddGenerationPrompt != nil && *body.AddGenerationPrompt:
		return invalid("continue_final_message",
			"continue_final_message and add_generation_prompt are both true; give one of them.")
	case body.ContinueFinalMessage && body.Messages[len(body.Messages)-1].Content == nil:
		return invalid("messages", "Message %d has no content that continue_final_message could continue.",
			len(body.Messages)-1)
	}
	return body.addVariables(template)
}

// forTemplate returns the messages for the template.
func (body *chatFields) forTemplate() (messages []chat.Message, err error) {
	for i, m := range body.Messages {
		to, err := m.message(i)
		if err != nil {
			return nil, err
		}
		messages = append(messages, to)
	}
	return messages, nil
}

// addVariables adds reasoning_effort and tools to the variables of the chat template.
func (body *chatFields) addVariables(template *chat.Template) error {
	all := &body.ChatTemplateKwargs
	if *all == nil {
		*all = kwargs{}
	}
	if effort := body.ReasoningEffort; effort != "" {
		if !slices.Contains(efforts, effort) || !template.Mentions("reasoning_effort") {
			return (&foreignField{instead: useKwargs}).refuse("reasoning_effort")
		}
		(*all)["reasoning_effort"] = effort
	}
	if len(body.Tools) == 0 {
		return nil
	}
	if _, set := (*all)["tools"]; set {
		return invalid("chat_template_kwargs", "chat_template_kwargs has tools, and so has the body; give them once.")
	}
	tools := make([]any, len(body.Tools))
	for i, text := range body.Tools {
		var ok bool
		if tools[i], ok = chat.Tool(text); !ok {
			return invalid("tools", "Tool %d has no function with a name.", i)
		}
	}
	(*all)["tools"] = tools
	return nil
}

// checkTools returns an error for tools that the model may call, because answers have no tool calls. With tool_choice
// "none", the template gets the tools, as in vLLM.
func (b *chatRequest) checkTools() error {
	choice := string(bytes.TrimSpace(b.ToolChoice))
	switch {
	case choice == `"none"`:
	case len(b.Tools) > 0:
		return (&foreignField{instead: `answers have no tool calls; with tool_choice "none" the model only sees the tools`}).
			refuse("tools")
	case choice != "" && choice != "null" && choice != `"auto"`:
		return (&foreignField{}).refuse("tool_choice")
	}
	return nil
}

// argumentsError returns the error of a template that refuses messages. If a call has arguments that are not JSON, the
// error says so, because most templates need JSON.
func argumentsError(messages []chat.Message, err error) error {
	if !errors.Is(err, chat.ErrTemplate) {
		return err
	}
	for i, m := range messages {
		for k, call := range m.ToolCalls {
			if chat.IsText(call) {
				return invalid("messages", "The arguments of call %d of message %d are not JSON, and the model's %v.", k, i, err)
			}
		}
	}
	return err
}
