package openai_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

// servers are servers whose answers have to be the same.
var servers = map[string]func(*openai.Config, *engine.Config){
	"as it is":    nil,
	"speculative": func(_ *openai.Config, e *engine.Config) { e.NumSpeculativeTokens = 4 },
}

// answers returns the choices of the answer to a body. If the answer is streamed, it joins the parts.
func (s *served) answers(t *testing.T, path, body string) []choice {
	a := s.ask(t, path, body)
	require.Equal(t, 200, a.Status, "%s: %s", body, a.Text)
	var all []choice
	for _, c := range a.Choices {
		for len(all) <= c.Index {
			all = append(all, choice{Index: len(all)})
		}
		to := &all[c.Index]
		to.Text += c.Text + c.Message.Content + c.Delta.Content
		to.Finish, to.StopReason = c.Finish, c.StopReason
		to.TokenIDs, to.PromptTokenIDs = append(to.TokenIDs, c.TokenIDs...), append(to.PromptTokenIDs, c.PromptTokenIDs...)
	}
	return all
}

// Ensure that stop_reason is the stop string or stop token that ends an answer. If the request asks to include this
// string or token in the text of the answer, the text must end with it. Otherwise the text must end before it.
//
// The test has two prompts. After "The door code is 4711. The door", the model writes
//
//	" code is 4711. The door"
//
// After the other prompt, the model writes "Hi" and then the token that ends a message.
func TestWhatEndsAnAnswerIsInStopReasonAndInTheTextIfAskedFor(t *testing.T) {
	level.SkipNormal(t)
	const door, hi = `"The door code is 4711. The door"`, `[1, 2, 72, 105, 3, 2]`
	const include, special = `, "include_stop_str_in_output": true`, `, "skip_special_tokens": false`
	tests := []struct {
		prompt, fields, text, finish string
		reason                       any
	}{
		{door, `, "stop": "4711"`, " code is ", "stop", "4711"},
		{door, `, "stop": ["xyz", "4711"]` + include, " code is 4711", "stop", "4711"},
		{door, `, "stop": ["11.", "711"]` + include, " code is 4711", "stop", "711"},
		{door, `, "stop": ["4711?"]` + include, " code is 4711. The d", "length", nil}, // a stop that only begins
		{door, `, "stop": "code", "min_tokens": 7` + include, " code is 4711. The d", "length", nil},
		{door, `, "stop": "is", "min_tokens": 7` + include, " code is", "stop", "is"},
		{door, `, "stop_token_ids": [52]`, " code is ", "stop", 52.0},
		{door, `, "stop_token_ids": [52]` + include, " code is 4", "stop", 52.0},
		{door, `, "stop_token_ids": [52], "stop": " 4"` + include, " code is 4", "stop", " 4"},
		{hi, ``, "Hi", "stop", nil},
		{hi, include, "Hi", "stop", nil},
		{hi, special, "Hi", "stop", nil},
		{hi, special + include, "Hi\x03", "stop", nil},
		{hi, `, "stop_token_ids": [3]`, "Hi", "stop", nil},
		{hi, `, "stop_token_ids": [3], "ignore_eos": true`, "Hi", "stop", 3.0},
		{hi, `, "stop_token_ids": [3], "ignore_eos": true` + include + special, "Hi\x03", "stop", 3.0},
		{hi, `, "ignore_eos": true, "max_tokens": 3`, "Hi", "length", nil},
		{hi, `, "ignore_eos": true, "max_tokens": 3` + special, "Hi\x03", "length", nil},
		{hi, `, "ignore_eos": true, "stop": "i\u0003"` + special, "H", "stop", "i\x03"},
	}
	for name, change := range servers {
		t.Run(name, func(t *testing.T) {
			s := start(t, change)
			for _, test := range tests {
				body := fmt.Sprintf(demo+`"prompt": %s, "temperature": 0, "max_tokens": 20%s`, test.prompt, test.fields)
				for _, more := range []string{`, "n": 2, "best_of": 3}`, `, "n": 2, "stream": true}`, `, "n": 2}`} {
					for _, c := range s.answers(t, texts, body+more) {
						require.Equal(t, test.text, c.Text, body+more)
						require.Equal(t, test.finish, c.Finish, body+more)
						require.Equal(t, test.reason, c.StopReason, body+more)
					}
				}
			}
			settle(t, s)
		})
	}
}

func TestWhatEndsABeamIsInStopReasonAndInTheTextIfAskedFor(t *testing.T) {
	s := start(t, nil)
	const begin = demo + `"prompt": [1, 2, 72, 105, 3, 2], "max_tokens": 20, "use_beam_search": true`
	for fields, want := range map[string]choice{
		``: {Text: "Hi", Finish: "stop"},
		`, "include_stop_str_in_output": true, "skip_special_tokens": false`: {Text: "Hi\x03", Finish: "stop"},
		`, "stop_token_ids": [105]`:                                                    {Text: "H", Finish: "stop", StopReason: 105.0},
		`, "stop_token_ids": [105], "include_stop_str_in_output": true`:                {Text: "Hi", Finish: "stop", StopReason: 105.0},
		`, "ignore_eos": true, "max_tokens": 3, "skip_special_tokens": false, "n": 1 `: {Text: "Hi\x03", Finish: "length"},
	} {
		require.Equal(t, []choice{want}, s.answers(t, texts, begin+fields+"}"), fields)
	}
}

func TestAChatHasTheStopReason(t *testing.T) {
	s := start(t, nil)
	const begin = demo + `"messages": [{"role": "user", "content": "Hi you"}], "temperature": 0, "stop": " y"`
	for fields, want := range map[string]choice{
		``:                                     {Text: "Hi", Finish: "stop", StopReason: " y"},
		`, "stream": true`:                     {Text: "Hi", Finish: "stop", StopReason: " y"},
		`, "include_stop_str_in_output": true`: {Text: "Hi y", Finish: "stop", StopReason: " y"},
		`, "include_stop_str_in_output": true, "stream": true`: {Text: "Hi y", Finish: "stop", StopReason: " y"},
	} {
		require.Equal(t, []choice{want}, s.answers(t, chats, begin+fields+"}"), fields)
	}
}

// Ensure that the text offsets of log probabilities are correct if the text contains the names of
// special tokens.
func TestOffsetsCountSpecialTokensThatAreInTheText(t *testing.T) {
	s := start(t, nil)
	const body = demo + `"prompt": [1, 2, 72, 105, 3, 2], "max_tokens": 4, "temperature": 0, "ignore_eos": true,
		"logprobs": 0, "echo": true, "skip_special_tokens": `
	got := s.ask(t, texts, body+"false}").Choices[0]
	require.Equal(t, "\x01\x02Hi\x03\x02Hi\x03\x02", got.Text)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, got.Logprobs.Offsets)
	got = s.ask(t, texts, body+"true}").Choices[0]
	require.Equal(t, "HiHi", got.Text)
	require.Equal(t, []int{0, 0, 0, 1, 2, 2, 2, 3, 4, 4}, got.Logprobs.Offsets)
}
