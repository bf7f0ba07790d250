package responses

import (
	"encoding/json"
	"strconv"
	"strings"
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
	if err := b.recall(newMemory(), 0, 1<<20); err != nil {
		return nil, err
	}
	return b.chat()
}

func TestItemsBecomeMessages(t *testing.T) {
	user := chat.Message{Role: "user", Content: "Hi"}
	for _, test := range []struct {
		name, fields string
		want         []chat.Message
	}{
		{"a text", `"input": "Hi"`, []chat.Message{user}},
		{"instructions", `"instructions": "Be brief.", "input": "Hi"`, []chat.Message{{Role: "system", Content: "Be brief."}, user}},
		{"messages", `"input": [{"role": "developer", "content": "a"}, {"type": "message", "role": "user", "content": [
			{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]}, {"type": "message", "id": "m", "status": "completed",
			"role": "assistant", "content": [{"type": "output_text", "text": "d", "annotations": [], "logprobs": []}]}]`,
			[]chat.Message{{Role: "developer", Content: "a"}, {Role: "user", Content: "b\nc"}, {Role: "assistant", Content: "d"}}},
		{"calls and their results", `"input": [{"role": "user", "content": "Hi"}, {"type": "reasoning", "id": "r", "summary": [],
			"content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": null}, {"type": "message", "role": "assistant", "content": "I look."},
			{"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"b\": 1}", "id": "f", "status": "completed"},
			{"type": "function_call", "call_id": "c2", "name": "see", "arguments": "{}"},
			{"type": "function_call_output", "call_id": "c1", "output": "x"},
			{"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "y"}]},
			{"type": "message", "role": "assistant", "content": "So."}, {"type": "message", "role": "assistant", "content": "And."}]`,
			[]chat.Message{user, {Role: "assistant", Reasoning: "Hm.", Content: "I look.", ToolCalls: []any{
				call(t, "c1", "look", `{"b": 1}`), call(t, "c2", "see", "{}")}}, {Role: "tool", ToolCallID: "c1", Content: "x"},
				{Role: "tool", ToolCallID: "c2", Content: "y"}, {Role: "assistant", Content: "So."}, {Role: "assistant", Content: "And."}}},
		{"reasoning after calls, and a summary", `"input": [{"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
			{"type": "reasoning", "duration": 3, "started_at": 1.5, "summary": [{"type": "summary_text", "text": "S"}]}, {"type": "function_call", "call_id": "c2", "name": "see",
			"arguments": "{}"}]`, []chat.Message{{Role: "assistant", ToolCalls: []any{call(t, "c1", "look", "{}")}},
			{Role: "assistant", Reasoning: "S", ToolCalls: []any{call(t, "c2", "see", "{}")}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := translated(test.fields)
			require.NoError(t, err)
			require.Equal(t, test.want, c.Messages)
			require.False(t, c.Continue)
		})
	}
}

func TestSettingsBecomeThoseOfAChat(t *testing.T) {
	c, err := translated(`"input": "Hi", "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "stream": true, "store": false,
		"parallel_tool_calls": false, "include": ["reasoning.encrypted_content"], "truncation": "disabled", "user": "u", "client_metadata": {"x": "y"},
		"metadata": {"a": "b"}, "previous_response_id": null, "background": false, "top_logprobs": 0,
		"tools": [{"type": "function", "name": "look", "description": "d", "parameters": {"type": "object"}, "strict": true},
			{"type": "function", "name": "see", "parameters": null, "strict": null}],
		"tool_choice": {"type": "function", "name": "look"}, "reasoning": {"effort": "low", "summary": "auto"},
		"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}, "verbosity": "medium"}`)
	require.NoError(t, err)
	require.Equal(t, []any{0.5, 0.9, 7}, []any{c.Request.Temperature, c.Request.TopP, c.Request.MaxTokens})
	require.Equal(t, []openai.Tool{{Name: "look", Description: "d", Parameters: json.RawMessage(`{"type": "object"}`), Strict: true},
		{Name: "see"}}, c.Tools)
	require.Equal(t, []any{"required", []string{"look"}, true, true, "low"}, []any{c.ToolChoice, c.Allowed, c.OneCall, c.Stream, c.Effort})
	require.JSONEq(t, `{"type": "object"}`, string(c.Form.JSONSchema))

	c, err = translated(`"input": "Hi", "tool_choice": "required", "text": {"format": {"type": "json_object"}}`)
	require.NoError(t, err)
	require.Equal(t, []any{"required", []string(nil), true, 1.0}, []any{c.ToolChoice, c.Allowed, c.Form.JSONObject, c.Request.Temperature})
	c, err = translated(`"input": "Hi", "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}`)
	require.NoError(t, err)
	require.Equal(t, []any{"required", []string{"clock"}}, []any{c.ToolChoice, c.Allowed})
	c, err = translated(`"input": "Hi", "text": {"format": {"type": "text"}}`)
	require.NoError(t, err)
	require.Nil(t, c.Form)
}

func TestWhatAChatCannotExpressIsRefusedByName(t *testing.T) {
	item := func(text string) string { return `"input": [` + text + `]` }
	for fields, want := range map[string]string{
		``:             "input is missing",
		`"input": []`:  "or it is empty",
		`"input": 5`:   "neither a string nor a list of items",
		item(`"text"`): "Item 0 of input is a JSON string; an object is expected",
		item(`{"type": "item_reference", "id": "x"}`):                                                            `Item 0 of input refers to the item "x", which this server does not have`,
		item(`{"type": "web_search_call"}`):                                                                      `has the type "web_search_call"`,
		item(`{"role": "tool", "content": "x"}`):                                                                 `has the role "tool"`,
		item(`{"role": "user"}`):                                                                                 "Item 0 of input has no content",
		item(`{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}`):                            `Part 0 of item 0 of input has the type "input_file"`,
		item(`{"role": "user", "content": [{"type": "input_text", "txt": "x"}]}`):                                `"txt"`,
		item(`{"role": "user", "content": "x", "nam": "y"}`):                                                     `Item 0 of input has "nam"`,
		item(`{"type": "function_call", "call_id": "c", "arguments": "{}"}`):                                     "Item 0 of input has no function",
		item(`{"type": "function_call", "call_id": "c", "name": "f", "arguments": "x"}`):                         "Item 0 of input has arguments that are neither an object",
		item(`{"type": "function_call_output", "output": "x"}`):                                                  "has no call_id",
		item(`{"type": "reasoning", "summary": [], "encrypted_content": "x"}`):                                   `"encrypted_content"`,
		`"input": "x", "previous_response_id": "resp_1"`:                                                         `previous_response_id is "resp_1", which this server does not have`,
		`"input": "x", "conversation": "c"`:                                                                      "conversation is not supported",
		`"input": "x", "background": true`:                                                                       "background is not supported",
		`"input": "x", "prompt": {"id": "p"}`:                                                                    "prompt is not supported",
		`"input": "x", "truncation": "auto"`:                                                                     `truncation is "auto"`,
		`"input": "x", "include": ["message.output_text.logprobs"]`:                                              "message.output_text.logprobs is not supported",
		`"input": "x", "top_logprobs": 2`:                                                                        "top_logprobs is not supported",
		`"input": "x", "max_tokens": 5`:                                                                          "use max_output_tokens",
		`"input": "x", "response_format": {"type": "json_object"}`:                                               "use text.format",
		`"input": "x", "max_output_tokens": 0`:                                                                   "max_output_tokens is 0",
		`"input": "x", "tools": [{"type": "fucntion"}]`:                                                          `Tool 0 has the type "fucntion"; function, custom and namespace`,
		`"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "web_search"}]}]`:         `Tool 0, part 0, has the type "web_search"`,
		`"input": "x", "tools": [{"type": "namespace", "tools": []}]`:                                            "Tool 0 has no name",
		`"input": "x", "tools": [{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "x"}}]`: "neither text nor a grammar with the syntax lark or regex",
		`"input": "x", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}`:                 `tool_choice names a tool of the type "web_search", which this server cannot run`,
		`"input": "x", "tool_choice": {"type": "file_search"}`:                                                   `tool_choice names a tool of the type "file_search"`,
		`"input": "x", "tool_choice": {"type": "allowed_tools", "tools": [{"type": "x"}]}`:                       `a tool of the type "x"`,
		item(`{"role": 5, "content": "x"}`):                                                                      "In item 0 of input, role is a JSON number; a string is expected",
		item(`{"role": "user", "content": [{"type": "input_text", "text": 5}]}`):                                 "text is a JSON number; a string is expected",
		item(`{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}`):                          "arguments is a JSON object; a string is expected",
		item(`{"type": "function_call", "name": "f", "arguments": "{}"}`):                                        "Item 0 of input has no call_id",
		`"input": "x", "tools": [{"type": "function", "name": "x", "strict": "yes"}]`:                            "In tool 0, strict is a JSON string; true or false is expected",
		`"input": "x", "tools": [{"type": "function", "name": "x", "description": 5}]`:                           "In tool 0, description is a JSON number",
		`"input": "x", "tools": [{"type": "function"}]`:                                                          "Tool 0 has no name",
		`"input": "x", "tools": [5]`:                                                                             "Tool 0 is a JSON number; an object is expected",
		item(`{"content": "x"}`):                                                                                 "Item 0 of input has neither a type nor a role.",
		item(`{"role": "user", "content": [{"text": "x"}]}`):                                                     "Part 0 of item 0 of input has no type; input_text or output_text or text is possible.",
		item(`{"role": "user", "content": [{"type": "input_text"}]}`):                                            "Part 0 of item 0 of input has no text.",
		item(`{"role": "user", "content": [{"type": "input_text", "text": "x", "foo": 1}]}`):                     `Part 0 of item 0 of input has "foo"`,
		`"input": "x", "tools": [{"name": "x"}]`:                                                                 "Tool 0 has no type; function, custom and namespace are supported.",
		`"input": "x", "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "x"}]}`:       "a tool without a type",
		`"input": "x", "tool_choice": "x"`:                                                                       `tool_choice must be none, auto, required, {"type": "function", "name": ...}`,
		`"input": "x", "tool_choice": 5`:                                                                         "tool_choice must be none",
		`"input": "x", "tool_choice": {"type": "function", "name": 5}`:                                           "tool_choice must be none",
		`"input": "x", "text": {"format": {"type": "json_schema", "schema": {}}}`:                                "text.format has no name; OpenAI's interface needs one",
		`"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": "yes"}}`:  "In text.format, strict is a JSON string; true or false is expected",
		`"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": "{}"}}`:                 "The schema in text.format is a string; an object is expected",
		`"input": "x", "text": {"format": {"type": 5}}`:                                                          "In text.format, type is a JSON number",
		`"input": "x", "include": ["foo"]`:                                                                       `include has "foo", which is not known; reasoning.encrypted_content, `,
		`"input": "x", "reasoning": {"summary": "long"}`:                                                         `reasoning.summary is "long"; auto, concise and detailed are known`,
		`"input": "x", "text": {"verbosity": "low"}`:                                                             "text.verbosity is not supported",
		`"input": "x", "text": {"format": {"type": "grammar"}}`:                                                  "The type of text.format is not known",
		`"input": "x", "text": {"format": {"type": "json_schema", "name": "x"}}`:                                 "text.format has no schema",
		`"input": "x", "reasoning": {"effort": 1}`:                                                               "In reasoning, effort is a JSON number; a string is expected",
	} {
		_, err := translated(fields)
		require.ErrorContains(t, err, want, fields)
	}
}

// Ensure that the bytes that a response repeats are counted, and those of the input if the response is to be stored.
func TestWhatAResponseRepeatsIsCounted(t *testing.T) {
	before, err := translated(`"input": "x", "store": false`)
	require.NoError(t, err)
	require.Zero(t, before.ReplyBytes)
	pad := strings.Repeat("y", 100)
	stored, err := translated(`"input": "` + pad + `"`)
	require.NoError(t, err)
	require.GreaterOrEqual(t, stored.ReplyBytes, 100)
	require.Less(t, stored.ReplyBytes, 200)
	for _, fields := range []string{`"instructions": "` + pad + `"`, `"metadata": {"a": "` + pad + `"}`,
		`"tools": [{"type": "function", "name": "f", "description": "` + pad + `"}]`,
		`"text": {"format": {"type": "json_schema", "name": "` + pad + `", "schema": {}}}`} {
		c, err := translated(`"store": false, "input": "` + pad + `", ` + fields)
		require.NoError(t, err)
		require.GreaterOrEqual(t, c.ReplyBytes, 100, fields)
		require.Less(t, c.ReplyBytes, 200, fields)
	}
}

// Ensure that metadata has OpenAI's limits, which count characters.
func TestMetadataIsLimited(t *testing.T) {
	pairs := func(n int) string {
		all := map[string]string{}
		for i := range n {
			all[strconv.Itoa(i)] = "x"
		}
		text, err := json.Marshal(all)
		require.NoError(t, err)
		return string(text)
	}
	long := strings.Repeat("é", 513)
	for metadata, want := range map[string]string{
		`null`:                         "",
		`{}`:                           "",
		pairs(16):                      "",
		`{"` + long[:128] + `": "a"}`:  "",
		`{"a": "` + long[:1024] + `"}`: "",
		pairs(17):                      "metadata has 17 pairs; at most 16 are possible",
		`{"` + long[:130] + `": "a"}`:  "A key of metadata has 65 characters; at most 64 are possible",
		`{"a": "` + long + `"}`:        `The value of "a" in metadata has 513 characters; at most 512 are possible`,
		`{"a": 5}`:                     `The value of "a" in metadata is not a string`,
		`{"a": null}`:                  `The value of "a" in metadata is not a string`,
		`{"a": {"b": "c"}}`:            `The value of "a" in metadata is not a string`,
		`["a"]`:                        "metadata is not a JSON object",
	} {
		_, err := translated(`"input": "x", "metadata": ` + metadata)
		if want == "" {
			require.NoError(t, err, metadata)
			continue
		}
		require.ErrorContains(t, err, want, metadata)
	}
}
