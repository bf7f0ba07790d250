package chat_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/chat"
)

// Chat templates that show or refuse what those of some models do. Each message is a line.
const (
	anyRole     = `{% for m in messages %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endfor %}`
	knownRoles  = `{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endif %}{% endfor %}`
	systemFirst = `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endfor %}`
	// gpt-oss takes the first message of either role, and leaves later ones out.
	firstOnly = `{% if messages[0].role in ['system', 'developer'] %}developer: {{ messages[0].content }}` + "\n" + `{% endif %}{% for m in messages if m.role == 'user' or m.role == 'assistant' %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endfor %}`
	// Gemma 2 has no system message, and roles alternate.
	alternating = `{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endfor %}`
	// Mistral's ids.
	nineIDs = `{% for m in messages %}{% if m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}result {{ m.tool_call_id }}: {{ m.content }}` + "\n" + `{% elif m.tool_calls %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}call {{ c.id }}: {{ c.function.name }}` + "\n" + `{% endfor %}{% else %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endif %}{% endfor %}`
	// Llama 3.1's calls, whose template refuses two.
	oneCall = `{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}{{ m.content }}call: {{ m.tool_calls[0].function.name }}` + "\n" + `{% else %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endif %}{% endfor %}`
	// gpt-oss leaves the second call out.
	firstCall = `{% for m in messages %}{% if m.tool_calls %}call: {{ m.tool_calls[0].function.name }}` + "\n" + `{% else %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endif %}{% endfor %}`
)

func said(role, text string) chat.Message { return chat.Message{Role: role, Content: text} }

func called(t *testing.T, idsAndNames ...string) chat.Message {
	m := chat.Message{Role: "assistant"}
	for i := 0; i < len(idsAndNames); i += 2 {
		call, err := chat.ToolCall([]byte(`{"id": "` + idsAndNames[i] + `", "function": {"name": "` + idsAndNames[i+1] + `", "arguments": "{}"}}`))
		require.NoError(t, err)
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return m
}

func resultOf(id, text string) chat.Message {
	return chat.Message{Role: "tool", ToolCallID: id, Content: text}
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

// Ensure that a message which a template refuses or leaves out reaches the model in another form, and that a template
// which shows a message gets it as it is.
func TestTheModelSeesEveryMessage(t *testing.T) {
	conversation := []chat.Message{said("system", "s"), said("developer", "d"), said("user", "u"), said("system", "t"),
		said("assistant", "a"), said("developer", "e"), said("user", "v")}
	two := []chat.Message{said("user", "u"), called(t, "call_1", "f", "call_2", "g"), resultOf("call_2", "2"), resultOf("call_1", "1"), said("assistant", "a")}
	two[1].Content = "text "
	for _, test := range []struct {
		name, template string
		messages       []chat.Message
		want           string
	}{
		{"every role", anyRole, conversation, lines("system: s", "developer: d", "user: u", "system: t", "assistant: a", "developer: e", "user: v")},
		{"no developer", knownRoles, conversation, lines("system: s", "system: d", "user: u", "system: t", "assistant: a", "system: e", "user: v")},
		{"system only at the beginning", systemFirst, conversation, lines("system: s", "developer: d", "user: u\n\n<system>\nt\n</system>",
			"assistant: a", "developer: e", "user: v")},
		{"one instruction at the beginning", firstOnly, conversation, lines("developer: s\n\nd", "user: u\n\n<system>\nt\n</system>",
			"assistant: a", "user: <system>\ne\n</system>\n\nv")},
		{"no instructions, alternating", alternating, conversation, lines("user: s\n\nd\n\nu\n\n<system>\nt\n</system>",
			"assistant: a", "user: <system>\ne\n</system>\n\nv")},
		{"an instruction alone", alternating, conversation[:1], lines("user: s")},
		{"an instruction at the end", alternating, conversation[2:6], lines("user: u\n\n<system>\nt\n</system>", "assistant: a", "user: <system>\ne\n</system>")},
		{"only a developer message", knownRoles, []chat.Message{said("developer", "d"), said("user", "u")}, lines("system: d", "user: u")},
		{"two calls at once", anyRole + "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}", two,
			lines("user: u", "assistant: text ", "tool: 2", "tool: 1", "assistant: a") + "fg"},
		{"one call", oneCall, two, lines("user: u", "text call: f", "tool: 1", "call: g", "tool: 2", "assistant: a")},
		{"the first call", firstCall, two, lines("user: u", "call: f", "tool: 1", "call: g", "tool: 2", "assistant: a")},
		{"results without ids", oneCall, []chat.Message{called(t, "", "f", "", "g"), resultOf("", "1"), resultOf("", "2"), resultOf("", "3")},
			lines("call: f", "tool: 1", "call: g", "tool: 2", "tool: 3")},
		{"ids", nineIDs, []chat.Message{called(t, "abcDEF012", "f"), resultOf("abcDEF012", "1")}, lines("call abcDEF012: f", "result abcDEF012: 1")},
		{"no text of its own", `{{ 1 }}`, conversation, "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			template, err := chat.New(test.template, nil)
			require.NoError(t, err)
			prompt, err := template.Render(test.messages, true, nil)
			require.NoError(t, err)
			require.Equal(t, test.want, prompt)
		})
	}
}

// Ensure that a call and its result keep one id when the template refuses the id, and that the id stays the same in later
// requests.
func TestIDsThatATemplateRefusesAreRenamedConsistently(t *testing.T) {
	template, err := chat.New(nineIDs, nil)
	require.NoError(t, err)
	messages := []chat.Message{called(t, "call_2FZ7YXGGDMQFU", "f", "call_3", "g"), resultOf("call_3", "3"), resultOf("call_2FZ7YXGGDMQFU", "2")}
	prompt, err := template.Render(messages, true, nil)
	require.NoError(t, err)
	ids := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(prompt), "\n") {
		id := strings.TrimSuffix(strings.Fields(line)[1], ":")
		require.Regexp(t, "^[0-9A-Za-z]{9}$", id)
		ids[id]++
	}
	require.Len(t, ids, 2)
	for id, n := range ids {
		require.Equal(t, 2, n, id)
	}
	longer, err := template.Render(append(messages, said("user", "u")), true, nil)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(longer, prompt))
	require.Equal(t, "call_2FZ7YXGGDMQFU", chat.CallID(messages[0].ToolCalls[0]), "the messages of the request are unchanged")
}

// Ensure that the prompt of a conversation begins with the prompts of its beginnings, whatever instructions come later.
func TestLaterInstructionsKeepTheCachedPrefix(t *testing.T) {
	conversation := []chat.Message{said("system", "s"), said("user", "u"), said("assistant", "a"), said("user", "v"), said("system", "t"),
		said("assistant", "b"), said("developer", "d"), said("user", "w"), said("assistant", "c")}
	for name, source := range map[string]string{"first": systemFirst, "first only": firstOnly, "none": alternating, "known": knownRoles} {
		template, err := chat.New(source, nil)
		require.NoError(t, err)
		before := ""
		for n := 3; n <= len(conversation); n += 3 { // each beginning ends with an answer
			prompt, err := template.Render(conversation[:n], true, nil)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(prompt, before), "%s: %q %q", name, before, prompt)
			before = prompt
		}
	}
}

func TestATemplateSaysWhetherItShowsSeveralCalls(t *testing.T) {
	for source, want := range map[string]bool{oneCall: true, firstCall: true, nineIDs: false, anyRole: false, "{{ 1 }}": false} {
		template, err := chat.New(source, nil)
		require.NoError(t, err)
		require.Equal(t, want, template.OneCall(), source)
	}
}

// Ensure that a tool without parameters is shown as one that takes no arguments.
func TestToolsWithoutParametersAreShown(t *testing.T) {
	template, err := chat.New(`{% for t in tools %}{{ t.function.name }}({% for k, v in t.function.parameters.properties.items() %}{{ k }} {% endfor %}) {{ t.function.parameters | tojson }}{% endfor %}`, nil)
	require.NoError(t, err)
	for function, want := range map[string]string{
		`{"name": "f"}`:                                           `f() {"type": "object", "properties": {}}`,
		`{"name": "f", "parameters": null}`:                       `f() {"type": "object", "properties": {}}`,
		`{"name": "f", "parameters": {}}`:                         `f() {"type": "object", "properties": {}}`,
		`{"name": "f", "parameters": {"properties": {"x": {}}}}`:  `f(x ) {"properties": {"x": {}}}`,
		`{"name": "f", "parameters": {"type": "object"}}`:         `f() {"type": "object", "properties": {}}`,
		`{"name": "f", "parameters": {"type": "object", "a": 1}}`: `f() {"type": "object", "a": 1, "properties": {}}`,
	} {
		tool, ok := chat.Tool([]byte(`{"type": "function", "function": ` + function + `}`))
		require.True(t, ok)
		prompt, err := template.Render([]chat.Message{said("user", "u")}, true, map[string]any{"tools": []any{tool}})
		require.NoError(t, err, function)
		require.Equal(t, want, prompt, function)
	}
}
