package chat

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
)

func (m *Message) variables() map[string]any {
	all := map[string]any{"role": m.Role, "content": m.Content}
	for name, text := range map[string]string{"name": m.Name, "tool_call_id": m.ToolCallID, "reasoning": m.Reasoning,
		"reasoning_content": m.Reasoning} {
		if text != "" {
			all[name] = text
		}
	}
	if len(m.ToolCalls) > 0 {
		all["tool_calls"] = m.ToolCalls
		if m.Reasoning != "" && m.Content == "" {
			all["thinking"] = m.Reasoning // gpt-oss, whose template wants no content then
		}
	}
	return all
}

// WithTextArguments returns a copy of messages. In the copy, the arguments of tool calls are texts with JSON, as some
// templates expect. changed is false if all arguments were texts already.
func WithTextArguments(messages []Message) (converted []Message, changed bool, err error) {
	asJSON, err := asJSON()
	if err != nil {
		return nil, false, err
	}
	converted = slices.Clone(messages)
	for i := range converted {
		calls := slices.Clone(converted[i].ToolCalls)
		for k, call := range calls {
			if IsText(call) {
				continue
			}
			copied := jinja.EachText(call, func(text string) string { return text }).(*jinja.Dict)
			function := copied.Get("function").(*jinja.Dict)
			text, err := asJSON.Render(map[string]any{"value": function.Get("arguments")})
			if err != nil {
				return nil, false, fmt.Errorf("the arguments of a call: %w", err)
			}
			function.Set("arguments", text)
			calls[k], changed = copied, true
		}
		converted[i].ToolCalls = calls
	}
	return converted, changed, nil
}

var asJSON = sync.OnceValues(func() (*jinja.Template, error) { return jinja.Parse("{{ value | tojson }}") })

// each returns a copy of m in which f has replaced each text except the role.
func (m Message) each(f func(string) string) Message {
	m.Content, m.Name, m.ToolCallID, m.Reasoning = f(m.Content), f(m.Name), f(m.ToolCallID), f(m.Reasoning)
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i, call := range m.ToolCalls {
		m.ToolCalls[i] = jinja.EachText(call, f)
	}
	return m
}

func (t *Template) marked(messages []Message, o Options) ([]Message, map[string]any, *marks.Marks, error) {
	m, err := marks.New(o.Marked, func(yield func(string) bool) {
		wanted := true
		look := func(text string) string {
			wanted = wanted && yield(text)
			return text
		}
		for i := range messages {
			messages[i].each(look)
		}
		for _, value := range o.Kwargs {
			jinja.EachText(value, look)
		}
	}, t.source)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if m == nil {
		return messages, o.Kwargs, nil, nil
	}
	messages, kwargs := slices.Clone(messages), maps.Clone(o.Kwargs)
	for i := range messages {
		messages[i] = messages[i].each(m.Mark)
	}
	for name, value := range kwargs {
		kwargs[name] = jinja.EachText(value, m.Mark)
	}
	return messages, kwargs, m, nil
}

// endOfMessage is appended to the last message, so that its end can be found in the prompt. A template may strip
// messages; the final space of endOfMessage is then missing in the prompt.
const endOfMessage = "\uE03A\uE03B "

// Continue prepares a prompt that ends within the last message. The model then continues this message. Continue returns
// messages with a marker at the end of the last one. The function cut removes the marker and everything after it from
// the rendered prompt. The result equals that of continue_final_message in Hugging Face's transformers. messages must
// not be empty.
func Continue(messages []Message) (marked []Message, cut func(prompt string) (string, error)) {
	marked = append(marked, messages...)
	marked[len(marked)-1].Content += endOfMessage
	return marked, func(prompt string) (string, error) {
		end := strings.TrimSpace(endOfMessage)
		start := strings.LastIndex(prompt, end)
		if start < 0 {
			return "", fmt.Errorf("%w leaves out the end of the last message, so it cannot be continued", ErrTemplate)
		}
		if !strings.HasPrefix(prompt[start:], endOfMessage) {
			return strings.TrimRight(prompt[:start], " \t\r\n"), nil
		}
		return prompt[:start], nil
	}
}
