package main

import (
	"bufio"
	"compress/bzip2"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/weightfile"
)

// agentTemplate is a chat template like Qwen's: it refuses a system message that is not the first one, and roles that
// it does not know. With tools, the model's answer is the one whose number is the number of results of tools so far,
// and without tools the one with the name "plain".
const agentTemplate = `{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- if tools %}
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
A call is <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>.{% endif %}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}
{%- if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('Unexpected message role.') }}{% endif %}
{%- if m.role != 'system' %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if tools %}<|{{ messages | selectattr('role', 'equalto', 'tool') | list | length }}|>{% else %}<|plain|>{% endif %}{% endif %}`

// agentFolder is the folder in which an agent works, in recorded requests.
const agentFolder = "/home/user/project"

// An agentTask is what an agent is asked, and what the model answers: calls, and a text after their results.
type agentTask struct {
	agent string
	calls []agentCall
}

// An agentCall is a call that the model writes. The arguments are JSON, with the order of the tool's schema. DIR is the
// folder in which the agent works.
type agentCall struct{ name, arguments string }

const (
	agentPrompt = "Copy notes.txt to copy.txt, and count its bytes."
	agentNotes  = "The door code is 4711.\n"
	agentText   = "Done: copy.txt has 23 bytes."
)

// inFolder returns the task in a folder.
func (a agentTask) inFolder(dir string) agentTask {
	a.calls = slices.Clone(a.calls)
	for i := range a.calls {
		a.calls[i].arguments = strings.ReplaceAll(a.calls[i].arguments, "DIR", dir)
	}
	return a
}

// serve starts a server whose model answers as the task says.
func (a agentTask) serve(t *testing.T) *server {
	answers := map[string]string{"plain": "Copying a file", fmt.Sprint(len(a.calls)): agentText}
	for i, call := range a.calls {
		answers[fmt.Sprint(i)] = fmt.Sprintf("Call %d comes.\n<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", i, call.name, call.arguments)
	}
	dir := filepath.Join(t.TempDir(), "scripted")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, content := range weightfile.Scripted(answers, agentTemplate) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	s, _ := serveTo(t, os.Stderr, dir)
	return s
}

// A recordedRequest is a request of an agent. Prose in it is replaced (withoutProse).
type recordedRequest struct {
	Method string            `json:"method"`
	Path   string            `json:"path"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
}

// recordings returns the requests of an agent in testdata/agents.
func recordings(t *testing.T, agent string) (all []recordedRequest) {
	file, err := os.Open(filepath.Join("testdata", "agents", agent+".jsonl.bz2"))
	require.NoError(t, err)
	defer file.Close()
	for d := json.NewDecoder(bzip2.NewReader(file)); ; {
		var r recordedRequest
		err := d.Decode(&r)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, r)
	}
}

func (s *server) send(t *testing.T, r recordedRequest) *http.Response {
	request, err := http.NewRequestWithContext(t.Context(), r.Method, strings.TrimSuffix(s.url, "/v1")+r.Path, strings.NewReader(r.Body))
	require.NoError(t, err)
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	return answer
}

// An agentAnswer is what a client of one of the interfaces reads from a stream.
type agentAnswer struct {
	calls         []agentCall
	text          string
	input, cached int // tokens of the prompt
}

// agentEvent has the fields that the events of the three interfaces have for calls, texts and tokens.
type agentEvent struct {
	Type    string
	Error   any
	Choices []struct {
		Delta struct {
			Content   string
			ToolCalls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	ContentBlock struct{ Type, Name string } `json:"content_block"`
	Delta        json.RawMessage             // Responses: a text; Anthropic: an object
	Usage        agentUsage
	Message      struct{ Usage agentUsage }
	Response     struct{ Usage agentUsage }
	Item         struct{ Type, Name, Arguments string }
}

type agentUsage struct {
	Input   int `json:"input_tokens"`
	Prompt  int `json:"prompt_tokens"`
	Cached  int `json:"cache_read_input_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// readAgentStream reads a stream of any of the three interfaces as its clients do.
func readAgentStream(t *testing.T, stream io.Reader) (a agentAnswer) {
	begin := func(name string) { a.calls = append(a.calls, agentCall{name: name}) }
	add := func(arguments string) { a.calls[len(a.calls)-1].arguments += arguments }
	open := false // a block of a call
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e agentEvent
		require.NoError(t, json.Unmarshal([]byte(data), &e), data)
		require.Nil(t, e.Error, data)
		for _, u := range []agentUsage{e.Usage, e.Message.Usage, e.Response.Usage} {
			a.input = max(a.input, u.Prompt, u.Input+u.Cached)
			a.cached = max(a.cached, u.Cached, u.Details.Cached, u.PromptDetails.Cached)
		}
		for _, choice := range e.Choices {
			a.text += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				if call.Function.Name != "" {
					begin(call.Function.Name)
				}
				add(call.Function.Arguments)
			}
		}
		switch e.Type {
		case "content_block_start":
			if open = e.ContentBlock.Type == "tool_use"; open {
				begin(e.ContentBlock.Name)
			}
		case "content_block_delta":
			var delta struct {
				Text    string
				Partial string `json:"partial_json"`
			}
			require.NoError(t, json.Unmarshal(e.Delta, &delta))
			a.text += delta.Text
			if open {
				add(delta.Partial)
			}
		case "response.output_text.delta":
			var delta string
			require.NoError(t, json.Unmarshal(e.Delta, &delta))
			a.text += delta
		case "response.output_item.done":
			if e.Item.Type == "function_call" {
				begin(e.Item.Name)
				add(e.Item.Arguments)
			}
		}
	}
	require.NoError(t, lines.Err())
	return a
}

var agentTasks = []agentTask{
	{"claude-code", []agentCall{
		{"Read", `{"file_path": "DIR/notes.txt"}`},
		{"Write", `{"file_path": "DIR/copy.txt", "content": "The door code is 4711.\n"}`},
		{"Bash", `{"command": "wc -c copy.txt"}`},
	}},
	{"codex", []agentCall{
		{"exec_command", `{"cmd": "cat notes.txt"}`},
		{"exec_command", `{"cmd": "cp notes.txt copy.txt"}`},
		{"exec_command", `{"cmd": "wc -c copy.txt"}`},
	}},
	{"opencode", []agentCall{
		{"read", `{"filePath": "DIR/notes.txt"}`},
		{"write", `{"content": "The door code is 4711.\n", "filePath": "DIR/copy.txt"}`},
		{"bash", `{"command": "wc -c copy.txt"}`},
	}},
}

// Ensure that the requests that agents sent while they did a task get the calls and the text of the task, and that each
// finds all but at most 32 tokens of the previous one in the prefix cache. Requests without tools ask for the title of a
// conversation.
func TestRecordedRequestsOfAgents(t *testing.T) {
	for _, task := range agentTasks {
		t.Run(task.agent, func(t *testing.T) {
			task := task.inFolder(agentFolder)
			s := task.serve(t)
			var calls []agentCall
			said, before := "", 0
			for i, r := range recordings(t, task.agent) {
				answer := s.send(t, r)
				if answer.StatusCode != http.StatusOK {
					require.Fail(t, "refused", "request %d, %s: %s", i, r.Path, text(t, answer))
				}
				got := readAgentStream(t, answer.Body)
				require.NoError(t, answer.Body.Close())
				if !strings.Contains(r.Body, `"tools":[{`) {
					continue
				}
				require.GreaterOrEqual(t, got.cached, before-32, "request %d of %d tokens", i, got.input)
				before, said = got.input, got.text
				calls = append(calls, got.calls...)
			}
			require.Equal(t, task.calls, calls)
			require.Equal(t, agentText, said)
		})
	}
}
