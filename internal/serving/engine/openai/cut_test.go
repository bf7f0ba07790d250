package openai_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a token of stop_token_ids cuts a call as a stop string does.
func TestAStopTokenCutsACall(t *testing.T) {
	s := startTools(t, "hermes", "")
	const call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Rom\",\"days\": 7}}"
	for token, want := range map[byte][]string{'m': nil, 'R': {`{"city":"`}} {
		quoted, err := json.Marshal(call)
		require.NoError(t, err)
		a := s.ask(t, chats, fmt.Sprintf(demo+`"messages": [{"role": "user", "content": %s}], "temperature": 0, "max_tokens": 300,
			"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}], "stop_token_ids": [%d]}`, quoted, token))
		require.Equal(t, 200, a.Status, a.Text)
		c := a.Choices[0]
		require.Equal(t, []any{"", "stop"}, []any{c.Message.Content, c.Finish}, a.Text)
		var arguments []string
		for _, call := range c.Message.ToolCalls {
			arguments = append(arguments, call.Function.Arguments)
		}
		require.Equal(t, want, arguments)
	}
}
