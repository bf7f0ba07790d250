package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/toolparser"
)

// answer is an answer with each kind of block.
var answer = []toolparser.Event{
	{Kind: toolparser.Reasoning, Text: "H"}, {Kind: toolparser.Reasoning, Text: "m"}, {Kind: toolparser.Content, Text: "I"},
	{Kind: toolparser.Content, Text: " look"}, {Kind: toolparser.Call, ID: "c1", Name: "look"}, {Kind: toolparser.Arguments, Text: `{"a":`},
	{Kind: toolparser.Arguments, Text: ` 1}`}, {Kind: toolparser.CallEnd}, {Kind: toolparser.Call, ID: "c2", Name: "see"},
	{Kind: toolparser.CallEnd},
}

// replied makes a reply from events twice, first as a stream and then as a body. It returns the JSON of the body, and
// the JSON of each event of the stream.
func replied(t *testing.T, events []toolparser.Event, e openai.Ending) (whole string, streamed []string) {
	text := func(body any) string {
		data, err := json.Marshal(body)
		require.NoError(t, err)
		return string(data)
	}
	run := func(send openai.Send) any {
		r := newReply("m", send)
		r.message.ID = "msg_1"
		r.Begin(openai.Usage{Prompt: 9, Cached: 4, Completion: 1})
		for _, e := range events {
			r.Add(e)
		}
		return r.End(e)
	}
	run(func(event string, body any) {
		require.True(t, strings.HasPrefix(text(body), `{"type":"`+event+`"`))
		streamed = append(streamed, text(body))
	})
	return text(run(nil)), streamed
}

func TestAnAnswerIsAMessage(t *testing.T) {
	whole, streamed := replied(t, answer, openai.Ending{Finish: engine.FinishStop, Calls: true,
		Usage: openai.Usage{Prompt: 9, Cached: 4, Completion: 12}})
	require.Equal(t, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[`+
		`{"type":"thinking","thinking":"Hm","signature":""},{"type":"text","text":"I look"},`+
		`{"type":"tool_use","id":"c1","name":"look","input":{"a":1}},{"type":"tool_use","id":"c2","name":"see","input":{}}],`+
		`"stop_reason":"tool_use","stop_sequence":null,`+
		`"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":12}}`, whole)
	require.Equal(t, []string{
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],` +
			`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"cache_creation_input_tokens":0,` +
			`"cache_read_input_tokens":4,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"H"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":""}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" look"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c1","name":"look","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" 1}"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"c2","name":"see","input":{}}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":5,` +
			`"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":12}}`,
		`{"type":"message_stop"}`,
	}, streamed)
}

func TestWhyAMessageEnds(t *testing.T) {
	for _, test := range []struct {
		ending           openai.Ending
		reason, sequence string
	}{
		{openai.Ending{Finish: engine.FinishStop}, "end_turn", "null"},
		{openai.Ending{Finish: engine.FinishStop, StopReason: int32(7)}, "end_turn", "null"},
		{openai.Ending{Finish: engine.FinishStop, StopReason: "x"}, "stop_sequence", `"x"`},
		{openai.Ending{Finish: engine.FinishLength}, "max_tokens", "null"},
		{openai.Ending{Finish: engine.FinishLength, ContextFull: true}, "model_context_window_exceeded", "null"},
	} {
		whole, streamed := replied(t, nil, test.ending)
		want := `"stop_reason":"` + test.reason + `","stop_sequence":` + test.sequence
		require.Contains(t, whole, want)
		require.Contains(t, whole, `"content":[]`)
		require.Contains(t, streamed[1], want)
	}
}

// Ensure that the input of a call is an object even if the call's arguments are not JSON. If the arguments are the
// beginning of an object, the input must have the values that are complete. All other arguments must be wrapped in an
// object.
func TestArgumentsThatAreNotJSON(t *testing.T) {
	for text, want := range map[string]string{
		``:                                  `{}`,
		`{`:                                 `{}`,
		`{"a`:                               `{}`,
		`{"a": `:                            `{}`,
		`{"a": "b\"c`:                       `{}`,
		`{"a": 1`:                           `{}`,
		`{"a": 1, "b": tru`:                 `{"a": 1}`,
		`{"a": {"b": [true, "c"], "d": nul`: `{"a": {"b": [true, "c"]}}`,
		`{"a": [{"b": "c"}, {"d": [[1], [2`: `{"a": [{"b": "c"}, {"d": [[1], []]}]}`,
		`{"a": b}`:                          `{"INVALID_JSON": "{\"a\": b}"}`,
		`[1`:                                `{"INVALID_JSON": "[1"}`,
		`[1]`:                               `{"INVALID_JSON": "[1]"}`,
		`5`:                                 `{"INVALID_JSON": "5"}`,
		`{"a": 1 "b"`:                       `{"INVALID_JSON": "{\"a\": 1 \"b\""}`,
	} {
		whole, streamed := replied(t, []toolparser.Event{{Kind: toolparser.Call, ID: "c", Name: "look"},
			{Kind: toolparser.Arguments, Text: text}, {Kind: toolparser.CallEnd}}, openai.Ending{Finish: engine.FinishLength})
		var m messageBody
		require.NoError(t, json.Unmarshal([]byte(whole), &m))
		require.JSONEq(t, want, string(m.Content[0].Input), text)
		require.Equal(t, "max_tokens", *m.StopReason)
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		require.Contains(t, streamed[2], `"partial_json":`+string(quoted))
	}
}
