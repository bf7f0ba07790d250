package responses

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
)

// patchGrammar is a grammar as Codex's for patches, in Lark's syntax.
const patchGrammar = `start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

// A comment.
hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
`

// codexTools are tools as Codex sends them: a function, a custom tool, MCP's and its own namespaces, and tools of
// OpenAI's servers.
var codexTools, _ = json.Marshal([]any{
	map[string]any{"type": "function", "name": "shell", "description": "Runs.", "strict": false, "parameters": map[string]any{"type": "object"}},
	map[string]any{"type": "custom", "name": "apply_patch", "description": "Patches.", "format": map[string]any{"type": "grammar", "syntax": "lark", "definition": patchGrammar}},
	map[string]any{"type": "namespace", "name": "mcp__files__", "description": "d", "tools": []any{
		map[string]any{"type": "function", "name": "read", "defer_loading": true, "parameters": map[string]any{"type": "object"}},
		map[string]any{"type": "custom", "name": "note"}}},
	map[string]any{"type": "namespace", "name": "multi_agent_v1", "description": "", "tools": []any{map[string]any{"type": "function", "name": "spawn"}}},
	map[string]any{"type": "namespace", "name": "empty", "description": "", "tools": []any{}},
	map[string]any{"type": "web_search", "external_web_access": false},
	map[string]any{"type": "tool_search", "execution": "client", "description": "", "parameters": map[string]any{}},
})

func TestToolsOfCodexBecomeFunctions(t *testing.T) {
	var b body
	require.NoError(t, openai.Unmarshal([]byte(`{"input": "x", "metadata": {"a": "b"}, "tools": `+string(codexTools)+`}`), &b, otherFields))
	require.NoError(t, b.recall(newMemory(), 0, 1<<20))
	c, err := b.chat()
	require.NoError(t, err)
	var names []string
	for _, tool := range c.Tools {
		names = append(names, tool.Name)
	}
	require.Equal(t, []string{"shell", "apply_patch", "mcp__files__read", "mcp__files__note", "multi_agent_v1__spawn"}, names)
	require.Equal(t, []string{"Tools that this server cannot run are left out: web_search, tool_search."}, c.Warnings)
	require.Contains(t, c.Tools[1].Description, "Patches.\n\nThe input has this form (lark):\nstart: begin_patch")
	require.JSONEq(t, `{"a": "b", "warning": "Tools that this server cannot run are left out: web_search, tool_search."}`, string(b.answerMetadata()))

	for choice, want := range map[string][]string{
		`{"type": "custom", "name": "apply_patch"}`:                         {"apply_patch"},
		`{"type": "function", "namespace": "mcp__files__", "name": "read"}`: {"mcp__files__read"},
		`{"type": "function", "name": "multi_agent_v1__spawn"}`:             {"multi_agent_v1__spawn"},
		`{"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "apply_patch"}, {"type": "function", "name": "shell"}]}`: {"apply_patch", "shell"},
	} {
		c, err := translated(`"input": "x", "tools": ` + string(codexTools) + `, "tool_choice": ` + choice)
		require.NoError(t, err)
		require.Equal(t, want, c.Allowed, choice)
	}
}

func TestEarlierCallsOfCodexBecomeMessages(t *testing.T) {
	c, err := translated(`"input": [{"type": "function_call", "call_id": "1", "namespace": "mcp__files__", "name": "read", "arguments": "{}"},
		{"type": "custom_tool_call", "call_id": "2", "name": "apply_patch", "input": "a\n\"b\"", "status": "completed"},
		{"type": "function_call_output", "call_id": "1", "output": "x"},
		{"type": "custom_tool_call_output", "call_id": "2", "name": "apply_patch", "output": [{"type": "input_text", "text": "y"}]}]`)
	require.NoError(t, err)
	require.Equal(t, []chat.Message{{Role: "assistant", ToolCalls: []any{call(t, "1", "mcp__files__read", "{}"),
		call(t, "2", "apply_patch", `{"input": "a\n\"b\""}`)}}, {Role: "tool", ToolCallID: "1", Content: "x"}, {Role: "tool", ToolCallID: "2", Content: "y"}}, c.Messages)
}

func TestCallsAreThoseOfTheClientsTools(t *testing.T) {
	var b body
	require.NoError(t, openai.Unmarshal([]byte(`{"input": "x", "tools": `+string(codexTools)+`}`), &b, otherFields))
	require.NoError(t, b.recall(newMemory(), 0, 1<<20))
	_, err := b.chat()
	require.NoError(t, err)
	b.Tools, b.warnings = nil, nil
	whole, streamed := replied(t, &b, []toolparser.Event{
		{Kind: toolparser.Call, ID: "1", Name: "mcp__files__read"}, {Kind: toolparser.Arguments, Text: "{}"}, {Kind: toolparser.CallEnd},
		{Kind: toolparser.Call, ID: "2", Name: "apply_patch"}, {Kind: toolparser.Arguments, Text: `{"input": "a\n`}, {Kind: toolparser.Arguments, Text: `b"}`}, {Kind: toolparser.CallEnd},
	}, ending(engine.FinishStop))
	require.Contains(t, whole, `"output":[{"id":"fc","type":"function_call","status":"completed","call_id":"1","name":"read","namespace":"mcp__files__","arguments":"{}"},`+
		`{"id":"ctc","type":"custom_tool_call","status":"completed","call_id":"2","name":"apply_patch","input":"a\nb"}]`)
	require.Equal(t, []string{
		`output_item.added","output_index":1,"item":{"id":"ctc","type":"custom_tool_call","status":"in_progress","call_id":"2","name":"apply_patch","input":""}}`,
		`custom_tool_call_input.delta","item_id":"ctc","output_index":1,"delta":"a\nb"}`,
		`custom_tool_call_input.done","item_id":"ctc","output_index":1,"input":"a\nb"}`,
		`output_item.done","output_index":1,"item":{"id":"ctc","type":"custom_tool_call","status":"completed","call_id":"2","name":"apply_patch","input":"a\nb"}}`,
		`response.completed completed`}, streamed[len(streamed)-5:])
}

func TestTheInputOfACustomToolMayBeCut(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"input": "a\"b"}`: `a"b`, `{"input": "a`: "a", `{"input": "a\`: "a", `{"input": "a\u00`: "a", `{"input": "a"`: "a", `{"inp`: `{"inp`, `x`: "x", ``: "",
	} {
		require.Equal(t, want, inputOf(arguments), arguments)
	}
}

func TestALarkGrammarBecomesARegularExpression(t *testing.T) {
	left := maxLarkBytes
	pattern, err := larkPattern(patchGrammar, &left)
	require.NoError(t, err)
	fits := regexp.MustCompile("^(?:" + pattern + ")$")
	for text, want := range map[string]bool{
		"*** Begin Patch\n*** Add File: a\n+x\n+\n*** End Patch":                                 true,
		"*** Begin Patch\n*** Delete File: a\n*** Update File: b\n@@ f\n-x\n+y\n*** End Patch\n": true,
		"*** Begin Patch\n*** End Patch":                                                         false,
		"*** Begin Patch\n*** Add File: a\nx\n*** End Patch":                                     false,
		"```\n*** Begin Patch\n*** Delete File: a\n*** End Patch\n":                              false,
	} {
		require.Equal(t, want, fits.MatchString(text), text)
	}
	for grammar, want := range map[string]string{
		"start: \"a\" ~2..3 [B] -> x\n  | C\nB.2: /b\\/c/\n?C: \"d\\n\"": "",
		"start: \"(\" start \")\" | \"x\"":                               "the rule start refers to itself",
		"start: a":                                                       "there is no rule a",
		"a: \"b\"":                                                       "there is no rule start",
		"start: \"a\"i":                                                  "the flag of",
		"start: /a/i":                                                    "the flags of",
		"start: {":                                                       "is not supported",
		"%declare A\nstart: A":                                           `"%declare A" is not supported`,
		"x y":                                                            "is not a rule",
		"start: a a a a a a a a a a a a a a a a\n" + strings.Join([]string{"a: b b b b b b b b b b b b b b b b", "b: c c c c c c c c", "c: d d d d d d d d", "d: e e e e e e e e", "e: \"abcdefgh\""}, "\n"): "more than 1048576 bytes together",
	} {
		left := maxLarkBytes
		pattern, err := larkPattern(grammar, &left)
		if want != "" {
			require.ErrorContains(t, err, want, grammar)
			continue
		}
		require.NoError(t, err)
		fits := regexp.MustCompile("^(?:" + pattern + ")$")
		for _, text := range []string{"aa", "aaab/c", "d\n"} {
			require.True(t, fits.MatchString(text), text)
		}
		require.False(t, fits.MatchString("a"))
	}
	left = maxLarkBytes
	_, err = larkPattern("start: \"a\"\n"+strings.Repeat("|b\n", maxLarkBytes), &left)
	require.ErrorContains(t, err, "more than 1048576 bytes together")
	c, err := translated(`"input": "x", "tools": [{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"(\" start"}}]`)
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Contains(t, c.Warnings[0], `The input of the tool "c" may not fit its grammar, which is not obeyed: the rule start refers to itself`)
}

// Ensure that what a grammar with many lines takes is proportional to its length.
func TestManyLinesOfAGrammarAreReadOnce(t *testing.T) {
	allocated := func(lines int) uint64 {
		grammar, left := "start: \"a\"\n"+strings.Repeat("|/b/\n", lines), maxLarkBytes
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := larkPattern(grammar, &left)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		return after.TotalAlloc - before.TotalAlloc
	}
	const n = 4000
	require.Less(t, allocated(4*n), 8*allocated(n))
}

// Ensure that a request with many types of tools that are left out has a short warning.
func TestAWarningNamesAToolOnce(t *testing.T) {
	var tools []string
	for i := range 3000 {
		tools = append(tools, fmt.Sprintf(`{"type": "web_search_%d"}`, i))
	}
	c, err := translated(`"input": "x", "tools": [` + strings.Join(tools, ", ") + `, {"type": "mcp"}]`)
	require.NoError(t, err)
	require.Equal(t, []string{"Tools that this server cannot run are left out: web_search, mcp."}, c.Warnings)
}
