package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"llmmemory/internal/serving/model/chat"
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
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
	IncludeReasoning    *bool           `json:"include_reasoning"` // vLLM's
}

// chatFields are the fields from which the chat template makes a prompt.
type chatFields struct {
	Messages             []chatMessage     `json:"messages"`
	Tools                []json.RawMessage `json:"tools"`
	ReasoningEffort      string            `json:"reasoning_effort"`
	EnableThinking       *bool             `json:"enable_thinking"` // Alibaba's
	Thinking             json.RawMessage   `json:"thinking"`        // of DeepSeek and Kimi, in Anthropic's form
	Reasoning            json.RawMessage   `json:"reasoning"`       // OpenRouter's
	ShortEffort          string            `json:"effort"`          // what Cline sends beside reasoning_effort
	AddGenerationPrompt  *bool             `json:"add_generation_prompt"`
	ContinueFinalMessage bool              `json:"continue_final_message"`
	ChatTemplateKwargs   kwargs            `json:"chat_template_kwargs"`
}

// roles are the roles of OpenAI's messages. The role with the name function is missing, because OpenAI has replaced it
// by the role tool.
var roles = []string{"system", "developer", "user", "assistant", "tool"}

// chatParts are the parts of messages. The types of images are OpenAI's, that of Responses, and Anthropic's. Clients copy
// the fields in Extra from answers of other servers, or send them for other servers.
var chatParts = Parts{Field: "messages", Texts: []string{"text"}, Images: []string{"image_url", "input_image", "image"},
	Extra: []string{"cache_control", "annotations", "extra_content", "thought_signature", "thoughtSignature", "provider_specific_fields"}}

type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Name    string          `json:"name"`

	ToolCalls        []json.RawMessage `json:"tool_calls"`
	ToolCallID       string            `json:"tool_call_id"`
	Reasoning        string            `json:"reasoning"`
	ReasoningContent string            `json:"reasoning_content"` // older name of reasoning
	FunctionCall     any               `json:"function_call"`
}

// message returns message i of chat c for the template. As in vLLM, tool calls and reasoning are ignored unless the
// role is assistant, and tool_call_id is ignored unless the role is tool.
func (m *chatMessage) message(i int, c *Chat) (chat.Message, error) {
	result := chat.Message{Role: m.Role, Name: m.Name}
	if !slices.Contains(roles, m.Role) {
		if m.Role == "" {
			return result, invalid("messages", "Message %d has no role.", i)
		}
		return result, invalid("messages", "Message %d has the role %q; system, developer, user, assistant and tool are known.",
			i, m.Role)
	}
	switch {
	case m.FunctionCall != nil:
		return result, invalid("messages", "Message %d has a function_call; use tool_calls.", i)
	case !IsNull(m.Content):
		var err error
		if result.Content, err = chatParts.Text(c, fmt.Sprintf("message %d", i), m.Content); err != nil {
			return result, err
		}
	case m.Role != "assistant": // whose content may be null in OpenAI's interface
		return result, invalid("messages", "Message %d has no content.", i)
	}
	switch m.Role {
	case "tool":
		result.ToolCallID = m.ToolCallID
	case "assistant":
		result.Reasoning = cmp.Or(m.Reasoning, m.ReasoningContent)
		for k, text := range m.ToolCalls {
			var fields struct {
				ID   string `json:"id"`
				Type string `json:"type"`
			}
			if err := Read("messages", fmt.Sprintf("Call %d of message %d", k, i), text, &fields); err != nil {
				return result, err
			}
			call, err := chat.ToolCall(text)
			switch {
			case err != nil:
				return result, invalid("messages", "Call %d of message %d %v.", k, i, err)
			case fields.Type != "" && fields.Type != "function":
				return result, invalid("messages", "Call %d of message %d has the type %q; function is possible.", k, i, fields.Type)
			}
			if err := knownFields("messages", fmt.Sprintf("Call %d of message %d", k, i), text, callFields, calledFields); err != nil {
				return result, err
			}
			result.ToolCalls = append(result.ToolCalls, call)
		}
	}
	return result, nil
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
	c, err := body.chat()
	if err != nil {
		return err
	}
	c.Request, c.special = request, body.AddSpecialTokens
	c.OneCall = body.ParallelToolCalls != nil && !*body.ParallelToolCalls
	if err := c.readChoice(body.ToolChoice); err != nil {
		return err
	}
	c.OmitReasoning = c.OmitReasoning || body.IncludeReasoning != nil && !*body.IncludeReasoning
	if c.FormField, c.Form, err = body.form(); err != nil {
		return err
	}
	c.compactJSON = body.compactJSON
	limit, err := s.limit(body.Truncate, request.MaxTokens)
	if err != nil {
		return err
	}
	j, err := s.chatJob(c, limit)
	if err != nil {
		return err
	}
	j.answer = s.answer(true, &body.common, &c.Request)
	return s.runJob(w, r, &body.common, c.Request, j)
}

// chat returns the chat with these fields.
func (body *chatFields) chat() (*Chat, error) {
	c := &Chat{MessagesField: "messages", Continue: body.ContinueFinalMessage, variables: body.ChatTemplateKwargs,
		Think: body.EnableThinking, Effort: body.ReasoningEffort, EffortField: "reasoning_effort",
		noPrompt: body.AddGenerationPrompt != nil && !*body.AddGenerationPrompt}
	switch n := len(body.Messages); {
	case body.Messages == nil:
		return nil, invalid("messages", "messages is missing.")
	case n == 0:
		return nil, invalid("messages", "messages is empty.")
	case c.Continue && body.AddGenerationPrompt != nil && *body.AddGenerationPrompt:
		return nil, invalid("continue_final_message",
			"continue_final_message and add_generation_prompt are both true; give one of them.")
	case c.Continue && IsNull(body.Messages[n-1].Content):
		return nil, invalid("messages", "Message %d has no content that continue_final_message could continue.", n-1)
	}
	err := body.readThinking(c)
	if err != nil {
		return nil, err
	}
	if c.tools, err = readTools(body.Tools); err != nil {
		return nil, err
	}
	for i, m := range body.Messages {
		message, err := m.message(i, c)
		if err != nil {
			return nil, err
		}
		c.Messages = append(c.Messages, message)
	}
	return c, c.checkCalls()
}

// argumentsError returns the error for messages that a template has refused with err. If a call has arguments that are
// not JSON, the error says so, because most templates need JSON.
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
