package responses

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/toolparser"
)

var answer = []toolparser.Event{
	{Kind: toolparser.Reasoning, Text: "H"}, {Kind: toolparser.Reasoning, Text: "m"}, {Kind: toolparser.Content, Text: "I"},
	{Kind: toolparser.Content, Text: " look"}, {Kind: toolparser.Call, ID: "c1", Name: "look"}, {Kind: toolparser.Arguments, Text: `{"a":`},
	{Kind: toolparser.Arguments, Text: `1}`}, {Kind: toolparser.CallEnd},
}

var ids = regexp.MustCompile(`(resp|rs|msg|fc|ctc)_[0-9a-f]+`)

// replied makes a reply from events twice, first as a stream and then as a body. It returns the JSON of the body, and
// a short line for each event of the stream. If an event contains a response, its line has only the status of the
// response. Ids are replaced by their prefixes.
func replied(t *testing.T, b *body, events []toolparser.Event, finish func(openai.Reply) any) (whole string, streamed []string) {
	text := func(value any) string {
		data, err := json.Marshal(value)
		require.NoError(t, err)
		return ids.ReplaceAllString(string(data), "$1")
	}
	run := func(send openai.Send) any {
		r := newReply(b.response("m"), send)
		r.tools = b.clientTools
		r.response.CreatedAt = 5
		r.Begin(openai.Usage{})
		for _, e := range events {
			r.Add(e)
		}
		return finish(r)
	}
	run(func(name string, value any) {
		e := value.(event)
		require.Equal(t, name, e.Type)
		require.Equal(t, len(streamed), e.Sequence)
		line := text(e)
		if e.Response != nil {
			line = name + " " + e.Response.Status
		}
		line = strings.TrimPrefix(line, `{"type":"response.`)
		streamed = append(streamed, strings.Replace(line, `"sequence_number":`+strconv.Itoa(e.Sequence)+`,`, "", 1))
	})
	return text(run(nil)), streamed
}

func ending(finish engine.Finish) func(openai.Reply) any {
	return func(r openai.Reply) any {
		return r.End(openai.Ending{Finish: finish, Usage: openai.Usage{Prompt: 9, Cached: 4, Completion: 12, Reasoning: 3}})
	}
}

func TestAnAnswerIsAResponse(t *testing.T) {
	var b body
	require.NoError(t, json.Unmarshal([]byte(`{"instructions": "i", "metadata": {"k": "v"}, "temperature": 0.5,
		"tools": [{"type": "function", "name": "look"}], "tool_choice": "required", "parallel_tool_calls": false}`), &b))
	whole, streamed := replied(t, &b, answer, ending(engine.FinishStop))
	require.JSONEq(t, `{"id": "resp", "object": "response", "created_at": 5, "status": "completed", "error": null,
		"incomplete_details": null, "instructions": "i", "max_output_tokens": null, "metadata": {"k": "v"}, "model": "m",
		"output": [{"id": "rs", "type": "reasoning", "status": "completed", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
			{"id": "msg", "type": "message", "status": "completed", "role": "assistant",
				"content": [{"type": "output_text", "text": "I look", "annotations": [], "logprobs": []}]},
			{"id": "fc", "type": "function_call", "status": "completed", "call_id": "c1", "name": "look", "arguments": "{\"a\":1}"}],
		"parallel_tool_calls": false, "previous_response_id": null, "reasoning": {"effort": null, "summary": null}, "store": true,
		"temperature": 0.5, "text": {"format": {"type": "text"}}, "tool_choice": "required", "tools": [{"type": "function", "name": "look"}],
		"top_p": 1, "truncation": "disabled", "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4},
			"output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 21}}`, whole)
	require.Equal(t, []string{
		`response.created in_progress`,
		`response.in_progress in_progress`,
		`output_item.added","output_index":0,"item":{"id":"rs","type":"reasoning","status":"in_progress","content":[],"summary":[]}}`,
		`content_part.added","item_id":"rs","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":""}}`,
		`reasoning_text.delta","item_id":"rs","output_index":0,"content_index":0,"delta":"H"}`,
		`reasoning_text.delta","item_id":"rs","output_index":0,"content_index":0,"delta":"m"}`,
		`reasoning_text.done","item_id":"rs","output_index":0,"content_index":0,"text":"Hm"}`,
		`content_part.done","item_id":"rs","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":"Hm"}}`,
		`output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","status":"completed",` +
			`"content":[{"type":"reasoning_text","text":"Hm"}],"summary":[]}}`,
		`output_item.added","output_index":1,"item":{"id":"msg","type":"message","status":"in_progress","role":"assistant","content":[]}}`,
		`content_part.added","item_id":"msg","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}`,
		`output_text.delta","item_id":"msg","output_index":1,"content_index":0,"delta":"I","logprobs":[]}`,
		`output_text.delta","item_id":"msg","output_index":1,"content_index":0,"delta":" look","logprobs":[]}`,
		`output_text.done","item_id":"msg","output_index":1,"content_index":0,"text":"I look","logprobs":[]}`,
		`content_part.done","item_id":"msg","output_index":1,"content_index":0,"part":{"type":"output_text","text":"I look","annotations":[],"logprobs":[]}}`,
		`output_item.done","output_index":1,"item":{"id":"msg","type":"message","status":"completed","role":"assistant",` +
			`"content":[{"type":"output_text","text":"I look","annotations":[],"logprobs":[]}]}}`,
		`output_item.added","output_index":2,"item":{"id":"fc","type":"function_call","status":"in_progress","call_id":"c1","name":"look","arguments":""}}`,
		`function_call_arguments.delta","item_id":"fc","output_index":2,"delta":"{\"a\":"}`,
		`function_call_arguments.delta","item_id":"fc","output_index":2,"delta":"1}"}`,
		`function_call_arguments.done","item_id":"fc","output_index":2,"name":"look","arguments":"{\"a\":1}"}`,
		`output_item.done","output_index":2,"item":{"id":"fc","type":"function_call","status":"completed","call_id":"c1","name":"look","arguments":"{\"a\":1}"}}`,
		`response.completed completed`,
	}, streamed)
}

func TestAnAnswerThatIsCutIsIncomplete(t *testing.T) {
	whole, streamed := replied(t, &body{}, answer[:3], ending(engine.FinishLength))
	require.Contains(t, whole, `"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"}`)
	require.Contains(t, whole, `"type":"message","status":"incomplete"`)
	require.Equal(t, "response.incomplete incomplete", streamed[len(streamed)-1])

	// A parser ends a call that is cut.
	whole, streamed = replied(t, &body{}, slices.Concat(answer[4:6], answer[7:]), ending(engine.FinishLength))
	require.Contains(t, whole, `"type":"function_call","status":"incomplete"`)
	require.Contains(t, streamed[len(streamed)-2], `output_item.done","output_index":0,"item":{"id":"fc","type":"function_call","status":"incomplete"`)
	whole, _ = replied(t, &body{}, answer[4:], ending(engine.FinishLength))
	require.Contains(t, whole, `"type":"function_call","status":"completed"`)
}

func TestAFailureEndsAStream(t *testing.T) {
	_, streamed := replied(t, &body{}, answer[:3], func(r openai.Reply) any {
		r.Fail(500, "", "broken")
		require.Equal(t, &failure{"server_error", "broken"}, r.(*reply).response.Error)
		return nil
	})
	require.Equal(t, "response.failed failed", streamed[len(streamed)-1])
}
