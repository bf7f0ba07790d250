package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
)

func call(t *testing.T, id, name, arguments string) any {
	c, err := openai.ToolCall(id, name, arguments)
	require.NoError(t, err)
	return c
}

func translated(fields string) (*openai.Chat, error) {
	var b body
	if err := openai.Unmarshal([]byte("{"+fields+"}"), &b, otherFields); err != nil {
		return nil, err
	}
	return b.chat()
}

func TestMessagesBecomeThoseOfAChat(t *testing.T) {
	for _, test := range []struct {
		name, fields string
		want         []chat.Message
		resumes      bool
	}{
		{"a text", `"messages": [{"role": "user", "content": "Hi"}]`, []chat.Message{{Role: "user", Content: "Hi"}}, false},
		{"system", `"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]`,
			[]chat.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"}}, false},
		{"blocks", `"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
			"messages": [{"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d", "citations": null}]}]`,
			[]chat.Message{{Role: "system", Content: "a\nb"}, {Role: "user", Content: "c\nd"}}, false},
		{"a call and its result", `"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
			{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "I look."},
			{"type": "tool_use", "id": "t1", "name": "look", "input": {"b": 1, "a": [2]}}, {"type": "tool_use", "id": "t2", "name": "see", "input": {}}]},
			{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}]},
			{"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "y"}, {"type": "text", "text": "And?"}]}]`,
			[]chat.Message{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "I look.", Reasoning: "Hm.", ToolCalls: []any{
				call(t, "t1", "look", `{"b": 1, "a": [2]}`), call(t, "t2", "see", "{}")}},
				{Role: "tool", ToolCallID: "t1", Content: "x"}, {Role: "tool", ToolCallID: "t2", Content: "y"}, {Role: "user", Content: "And?"}}, false},
		{"a result without content", `"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}]`,
			[]chat.Message{{Role: "tool", ToolCallID: "t1"}}, false},
		{"messages of one role", `"system": "s", "messages": [{"role": "system", "content": "t"}, {"role": "user", "content": "a"},
			{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "assistant", "content": [
			{"type": "text", "text": "d"}, {"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}]`,
			[]chat.Message{{Role: "system", Content: "s\nt"}, {Role: "user", Content: "a\nb"}, {Role: "assistant", Content: "c\nd",
				ToolCalls: []any{call(t, "t1", "look", "{}")}}}, false},
		{"the beginning of the answer", `"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "{"}]`,
			[]chat.Message{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "{"}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := translated(test.fields)
			require.NoError(t, err)
			require.Equal(t, test.want, c.Messages)
			require.Equal(t, test.resumes, c.Continue)
		})
	}
}

func TestSettingsBecomeThoseOfAChat(t *testing.T) {
	b := body{}
	require.NoError(t, json.Unmarshal([]byte(`{"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5, "top_p": 0.9, "top_k": 7,
		"stop_sequences": ["x"], "stream": true, "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}, "metadata": {"user_id": "u"},
		"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
		"tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
		"tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": true},
		"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}}}`), &b))
	c, err := b.chat()
	require.NoError(t, err)
	require.Equal(t, []any{0.5, 0.9, 7, []string{"x"}}, []any{c.Request.Temperature, c.Request.TopP, c.Request.TopK, c.Request.Stop})
	require.Equal(t, []openai.Tool{{Name: "look", Description: "d", Parameters: json.RawMessage(`{"type": "object"}`)}}, c.Tools)
	require.Equal(t, []any{"required", []string{"look"}, true, true, true, true, "high"}, []any{c.ToolChoice, c.Allowed, c.OneCall, c.Stream, *c.Think, c.OmitReasoning, c.Effort})
	require.JSONEq(t, `{"type": "object"}`, string(c.Form.JSONSchema))

	for choice, want := range map[string]string{"auto": "auto", "any": "required", "none": "none"} {
		b.ToolChoice = json.RawMessage(`{"type": "` + choice + `"}`)
		c, err = b.chat()
		require.NoError(t, err)
		require.Equal(t, want, c.ToolChoice)
		require.Nil(t, c.Allowed)
	}
}

func TestWhatAChatCannotExpressIsRefusedByName(t *testing.T) {
	const user = `"messages": [{"role": "user", "content": "x"}]`
	block := func(text string) string { return `"messages": [{"role": "user", "content": [` + text + `]}]` }
	for fields, want := range map[string]string{
		``:               "messages is missing",
		`"messages": []`: "messages is missing",
		`"messages": [{"role": "tool", "content": "x"}]`:                                                             `Message 0 has the role "tool"; user, assistant and system`,
		`"messages": [{"role": "user"}]`:                                                                             "message 0 has no content",
		`"messages": [{"role": "user", "content": []}]`:                                                              "Message 0 has no content",
		`"messages": [{"role": "user", "content": 5}]`:                                                               "neither a string nor a list of blocks",
		block(`{"type": "image", "data": "x"}`):                                                                      `Block 0 of message 0 has "data", which is not supported`,
		block(`{"type": "text", "text": "x"}, {"type": "document"}`):                                                 `Block 1 of message 0 has the type "document"`,
		block(`{"type": "text", "text": 1}`):                                                                         "In block 0 of message 0, text is a JSON number; a string is expected",
		block(`{"type": "text", "text": "x", "cahe": 1}`):                                                            `Block 0 of message 0 has "cahe", which is not supported`,
		block(`{"type": "thinking", "thinking": "x"}`):                                                               "has the type thinking, which is not possible there",
		block(`{"type": "tool_result", "content": "x"}`):                                                             "has no tool_use_id",
		block(`{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "document"}]}`):                      `Block 0 of a tool_result of message 0 has the type "document"`,
		`"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}]`:                          "A tool_use of message 0",
		`"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}]`:                    "no text that the answer could continue",
		user + `, "system": [{"type": "image"}]`:                                                                     "Block 0 of system has the type image, which is not possible there",
		user + `, "tools": [{"type": "web_search_20250305", "name": "web_search"}]`:                                  `Tool 0 has the type "web_search_20250305"`,
		user + `, "tools": [{"name": "x"}]`:                                                                          "Tool 0 has no input_schema",
		user + `, "tools": [{"name": "x", "input_schema": {}, "defer_loading": true}]`:                               `"defer_loading"`,
		user + `, "tool_choice": {"type": "some"}`:                                                                   `The type of tool_choice is "some"`,
		user + `, "tool_choice": {"type": "any"}`:                                                                    "The type of tool_choice is any, but there are no tools",
		user + `, "thinking": {}`:                                                                                    "thinking has no type; enabled",
		user + `, "tool_choice": {}`:                                                                                 "tool_choice has no type; auto",
		user + `, "response_format": {"type": "text"}`:                                                               "response_format is not supported by this server: use output_config.format",
		block(`{"type": "text"}`):                                                                                    "has no text",
		user + `, "output_format": {"type": "json_schema"}`:                                                          "use output_config.format",
		user + `, "tool_choice": {"type": "tool"}`:                                                                   "tool_choice has the type tool, but no name",
		user + `, "tool_choice": "auto"`:                                                                             "tool_choice is not a JSON object",
		user + `, "thinking": {"type": "on"}`:                                                                        `The type of thinking is "on"`,
		user + `, "output_config": {"format": {"type": "x"}}`:                                                        "output_config.format is not of the type json_schema",
		user + `, "tools": [{"name": "x", "input_schema": {}, "strict": "yes"}]`:                                     "In tool 0, strict is a JSON string; true or false is expected",
		user + `, "tools": [{"name": "x", "input_schema": {}, "description": 5}]`:                                    "In tool 0, description is a JSON number",
		user + `, "tools": [{"input_schema": {}}]`:                                                                   "Tool 0 has no name",
		user + `, "tools": [5]`:                                                                                      "Tool 0 is a JSON number; an object is expected",
		user + `, "tool_choice": {"type": "auto", "disable_parallel_tool_use": "yes"}`:                               "In tool_choice, disable_parallel_tool_use is a JSON string",
		user + `, "tool_choice": {"type": "auto", "name": "x"}`:                                                      "tool_choice has a name, which only the type tool may have",
		user + `, "thinking": {"type": "enabled", "budget_tokens": "many"}`:                                          "In thinking, budget_tokens is a JSON string; a whole number is expected",
		user + `, "thinking": {"type": "enabled", "display": "short"}`:                                               `The display of thinking is "short"; summarized and omitted are known`,
		user + `, "thinking": {"type": "disabled", "budget_tokens": 2000}`:                                           "thinking has budget_tokens, which only the type enabled may have",
		user + `, "output_config": {"effort": 5}`:                                                                    "In output_config, effort is a JSON number",
		user + `, "output_config": {"format": {"type": "json_schema", "schema": "{}"}}`:                              "The schema in output_config.format is a string; an object is expected",
		block(`{"type": "tool_result", "tool_use_id": "x", "is_error": "yes"}`):                                      "is_error is a JSON string; true or false is expected",
		`"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]`:           "A tool_use of message 0 has no id",
		`"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": 5}]}]`: "The input of a tool_use of message 0 is not a JSON object",
		user + `, "mcp_servers": [{}]`:                                                                               "mcp_servers is not supported",
		user + `, "container": "x"`:                                                                                  "container is not supported",
		user + `, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}`: "context_management is not supported",
		user + `, "context_management": {"compact": true}`: `context_management has "compact", which is not supported`,
	} {
		_, err := translated(fields)
		require.ErrorContains(t, err, want, fields)
	}
}
