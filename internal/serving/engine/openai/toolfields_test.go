package openai_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that unknown fields of tools, calls and tool_choice are refused unless they are null, with an error that names
// the field. Fields that clients of other servers are known to send, such as cache_control, are accepted.
func TestFieldsOfToolsAndCalls(t *testing.T) {
	s := startTools(t, "hermes", "")
	const function = `"type": "function", "function": {"name": "f"`
	tool := func(fields string) string {
		return `"messages": [{"role": "user", "content": "x"}], "tools": [` + fields + `]`
	}
	choice := func(fields string) string { return tool(`{`+function+`}}`) + `, "tool_choice": ` + fields }
	call := func(fields string) string {
		return `"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [` + fields + `]}, {"role": "user", "content": "x"}]`
	}
	for _, test := range []struct{ body, param, says string }{
		{tool(`{"foo": 1, ` + function + `}}`), "tools", `Tool 0 has "foo", which is not supported; it may have type, function,`},
		{tool(`{` + function + `, "paramters": {}}}`), "tools", `The function of tool 0 has "paramters", which is not supported; it may have name, description, parameters,`},
		{tool(`{"type": "function", "name": "f"}`), "tools", `Tool 0 has "name"`},
		{call(`{"id": "c", "foo": 1, ` + function + `}}`), "messages", `Call 0 of message 1 has "foo"`},
		{call(`{"id": "c", ` + function + `, "argumens": "{}"}}`), "messages", `The function of call 0 of message 1 has "argumens"`},
		{choice(`{` + function + `, "foo": 1}}`), "tool_choice", `The function of tool_choice has "foo"`},
		{choice(`{"foo": 1, ` + function + `}}`), "tool_choice", `tool_choice has "foo"`},
		{choice(`{"type": "allowed_tools", "allowed_tools": {"foo": 1, "mode": "auto", "tools": [{` + function + `}}]}}`), "tool_choice", `allowed_tools has "foo"`},
		{choice(`{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{` + function + `, "foo": 1}}]}}`), "tool_choice",
			`The function of a tool of allowed_tools has "foo"`},
	} {
		a := s.ask(t, chats, demo+`"max_tokens": 1, `+test.body+"}")
		require.Equal(t, []any{400, test.param}, []any{a.Status, a.Error.Param}, test.body)
		require.Contains(t, a.Error.Message, test.says)
	}
	for _, body := range []string{
		tool(`{"cache_control": {"type": "ephemeral"}, "eager_input_streaming": true, "foo": null, ` + function + `, "strict": false, "return": {"type": "string"}}}`),
		tool(`{` + function + `, "type": "function", "parameters": {"type": "object", "properties": {"a": {"type": null, "description": "d"}}}}}`), // of open-webui
		call(`{"id": "c", "index": 0, "extra_content": {"google": {"thought_signature": "x"}}, "provider_specific_fields": {"a": 1}, ` + function +
			`, "arguments": "{}", "parsed_arguments": {}, "index": 0}}`),
		choice(`{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{` + function + `, "parameters": {}}}]}}`),
	} {
		a := s.ask(t, chats, demo+`"max_tokens": 1, `+body+"}")
		require.Equal(t, 200, a.Status, "%s: %s", body, a.Text)
	}
}
