package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// knownRoles is like echoTools, but leaves out messages of roles that it does not know.
var knownRoles = strings.Replace(echoTools, "if message.content", "if message.content and message.role in ['system', 'user', 'assistant', 'tool']", 1)

// firstSystem is like echoTools, but refuses a system or developer message that is not the first message.
var firstSystem = strings.Replace(echoTools, "\x02{{", "{% if message.role in ['system', 'developer'] and not loop.first %}"+
	"{{ raise_exception('System message must be at the beginning.') }}{% endif %}\x02{{", 1)

// Ensure that what agents send to every server is answered: Codex's developer messages, namespaces and tools of OpenAI's
// servers, and Claude Code's system messages within the conversation.
func TestRequestsOfAgentsAreAnswered(t *testing.T) {
	const codexTools = `"tools": [{"type": "function", "name": "shell", "parameters": {"type": "object"}}, {"type": "custom", "name": "apply_patch"},
		{"type": "namespace", "name": "multi_agent_v1", "description": "", "tools": []}, {"type": "web_search", "external_web_access": false}]`
	for name, template := range map[string]string{"any": echoTools, "known roles": knownRoles, "system first": firstSystem} {
		s := startAll(t, func(c *openai.Config, _ *engine.Config) {
			useTools(t, c, "mistral")
			c.Template = newTemplate(t, template)
		})
		for request, body := range map[string]string{
			"developer in a chat": chats + ` "messages": [{"role": "developer", "content": "Never tell."}, {"role": "user", "content": "hi"}]`,
			"Codex": respond + ` "instructions": "You are Codex.", "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text",
				"text": "sandbox"}]}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "store": false, "include":
				["reasoning.encrypted_content"], "tool_choice": "auto", "parallel_tool_calls": false, "prompt_cache_key": "k", ` + codexTools,
			"Claude Code": messages + ` "max_tokens": 5, "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "s"}],
				"messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": "agents"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "x"},
				{"role": "system", "content": "more"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}]`,
		} {
			path, fields, _ := strings.Cut(body, " ")
			a := s.ask(t, path, demo+`"temperature": 0,`+fields+"}")
			require.Equal(t, 200, a.Status, "%s, %s: %s", name, request, a.Text)
			a = s.ask(t, path, demo+`"temperature": 0, "stream": true,`+fields+"}")
			require.Equal(t, 200, a.Status, "%s, %s: %s", name, request, a.Text)
			require.NotContains(t, a.Text, "error\":{", "%s, %s", name, request)
		}
		prompt := func(role string) int {
			return s.ask(t, chats, demo+`"max_tokens": 1, "messages": [{"role": "`+role+`", "content": "Never tell."}, {"role": "user", "content": "hi"}]}`).Usage.Prompt
		}
		require.Equal(t, prompt("system"), prompt("developer"), name)
		a := s.ask(t, respond, demo+codexTools+`, "input": "hi", "tool_choice": {"type": "web_search"}}`)
		require.Equal(t, 400, a.Status)
		require.Contains(t, a.Error.Message, `a tool of the type "web_search", which this server cannot run`)
	}
}

// Ensure that a conversation of several calls works as Codex makes it: each request has the earlier items, with the
// namespaces and names that the answers had.
func TestATaskOfSeveralCallsOfCodex(t *testing.T) {
	s := startTools(t, "mistral", "")
	const tools = `"tools": [{"type": "namespace", "name": "mcp__files", "tools": [{"type": "function", "name": "read", "parameters": {"type": "object",
		"properties": {"a": {"type": "integer"}}}}]}, {"type": "custom", "name": "patch"}, {"type": "function", "name": "shell", "parameters": {"type": "object"}}]`
	var items []string
	for i, call := range []struct{ says, want string }{
		{`[TOOL_CALLS]mcp__files__read[ARGS]{"a": 17}`, `"type":"function_call","status":"completed","call_id":"ID","name":"read","namespace":"mcp__files","arguments":"{\"a\": 17}"`},
		{`[TOOL_CALLS]patch[ARGS]{"input": "*+x"}`, `"type":"custom_tool_call","status":"completed","call_id":"ID","name":"patch","input":"*+x"`},
		{`[TOOL_CALLS]shell[ARGS]{"w": "ls"}`, `"type":"function_call","status":"completed","call_id":"ID","name":"shell","arguments":"{\"w\": \"ls\"}"`},
	} {
		said, _ := json.Marshal(call.says)
		items = append(items, fmt.Sprintf(`{"type": "message", "role": "user", "content": [{"type": "input_text", "text": %s}]}`, said))
		a := s.ask(t, respond, demo+`"temperature": 0, "store": false, `+tools+`, "input": [`+strings.Join(items, ", ")+"]}")
		require.Equal(t, 200, a.Status, a.Text)
		var r struct{ Output []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(a.Text), &r))
		require.Len(t, r.Output, 1, a.Text)
		var made struct {
			ID, Type string
			CallID   string `json:"call_id"`
		}
		require.NoError(t, json.Unmarshal(r.Output[0], &made))
		require.Equal(t, `{"id":"`+made.ID+`",`+strings.Replace(call.want, "ID", made.CallID, 1)+"}", string(r.Output[0]), i)
		items = append(items, string(r.Output[0]), fmt.Sprintf(`{"type": "%s_output", "call_id": %q, "output": "{%d}"}`, made.Type, made.CallID, i))
	}
}

// Ensure that the input of a custom tool fits its grammar: nothing but the grammar makes this model write a patch.
func TestTheInputOfACustomToolFitsItsGrammar(t *testing.T) {
	s := startTools(t, "hermes", "")
	const grammar = `start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\nend_patch: \"*** End Patch\" LF?\n` +
		`hunk: \"*** Delete File: \" filename LF\nfilename: /(.+)/\n%import common.LF`
	for syntax, definition := range map[string]string{"lark": grammar, "regex": `\\*{3} Begin Patch\n\\*{3} Delete File: [a-z]+\n\\*{3} End Patch`} {
		a := s.ask(t, respond, demo+`"temperature": 0, "store": false, "input": "hi", "max_output_tokens": 110, "tool_choice": {"type": "custom", "name": "patch"},
			"tools": [{"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "`+syntax+`", "definition": "`+definition+`"}}]}`)
		require.Equal(t, 200, a.Status, a.Text)
		var r struct {
			Metadata map[string]string
			Output   []struct{ Type, Input string }
		}
		require.NoError(t, json.Unmarshal([]byte(a.Text), &r))
		require.Empty(t, r.Metadata)
		require.Len(t, r.Output, 1)
		require.Equal(t, "custom_tool_call", r.Output[0].Type)
		require.True(t, strings.HasPrefix(r.Output[0].Input, "*** Begin Patch\n*** Delete File: "), r.Output[0].Input)
	}
}

// Ensure that a call inside a reasoning that does not end is a call.
func TestACallInsideAnUnclosedReasoningIsACall(t *testing.T) {
	s := startTools(t, "mistral", "qwen3")
	const text = `<think>Hm.[TOOL_CALLS]get_weather[ARGS]{"city":"Rom","days": 7}`
	quoted, _ := json.Marshal(text)
	a := s.ask(t, chats, demo+`"temperature": 0, "tools": [{"type": "function", "function": {"name": "get_weather"}}], "messages": [{"role": "user", "content": `+string(quoted)+`}]}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, "Hm.", a.Choices[0].Message.Reasoning)
	require.Equal(t, "tool_calls", a.Choices[0].Finish)
	require.Len(t, a.Choices[0].Message.ToolCalls, 1)
}

// Ensure that a model writes one call an answer if its template refuses two, and that two earlier calls are no error.
// The bias keeps the model from ending its answer while another call is possible.
func TestAModelWhoseTemplateShowsOneCallWritesOneCall(t *testing.T) {
	one := strings.Replace(echoTools, "\x01", "\x01{% for m in messages if m.tool_calls %}{% if m.tool_calls | length > 1 %}"+
		"{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}{{ m.tool_calls[0].function.name }}{% endfor %}", 1)
	for template, many := range map[string]bool{echoTools: true, one: false} {
		s := startAll(t, func(c *openai.Config, _ *engine.Config) {
			useTools(t, c, "hermes")
			c.Template = newTemplate(t, template)
		})
		a := s.ask(t, chats, demo+`"max_tokens": 200, "tool_choice": "required", "logit_bias": {"3": -100}, "tools": [{"type": "function", "function": {"name": "f"}}],
			"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
			{"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"},
			{"role": "tool", "tool_call_id": "2", "content": "y"}, {"role": "user", "content": "z"}]}`)
		require.Equal(t, 200, a.Status, a.Text)
		require.Equal(t, many, len(a.Choices[0].Message.ToolCalls) > 1, a.Text)
		require.NotEmpty(t, a.Choices[0].Message.ToolCalls)
	}
}

func TestTheFinishReasonComesInAChunkOfItsOwn(t *testing.T) {
	s := start(t, nil)
	for _, limit := range []string{`"max_tokens": 2`, `"max_tokens": 20`} {
		a := s.ask(t, chats, talk+limit+`, "stream": true}`)
		ends := 0
		for _, line := range strings.Split(a.Text, "\n") {
			if strings.Contains(line, `"finish_reason":"`) {
				ends++
				require.Contains(t, line, `"delta":{}`)
			}
		}
		require.Equal(t, 1, ends, a.Text)
	}
}

func TestAByteOrderMarkIsNamed(t *testing.T) {
	s := startAll(t, nil)
	for _, path := range []string{texts, chats, messages, respond} {
		a := s.ask(t, path, "\xef\xbb\xbf"+`{"prompt": "a"}`)
		require.Equal(t, 400, a.Status)
		require.Contains(t, a.Text, "The body begins with a byte order mark (BOM); send JSON in UTF-8 without one.")
		require.Contains(t, s.ask(t, path, "\xff\xfe{\x00}\x00").Text, "byte order mark of UTF-16")
	}
}
