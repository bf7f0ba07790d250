package openai_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/testkit/level"
)

// next are the n most likely tokens after a prompt.
func (s *served) next(t *testing.T, prompt []int32, n int) []sampling.Logprob {
	r := engine.Request{Prompt: prompt, MaxTokens: 1, IgnoreEOS: true, Params: sampling.Default()}
	r.Temperature, r.Logprobs = 0, n
	stream, err := s.engine.Submit(r)
	require.NoError(t, err)
	events, err := stream.Next(t.Context())
	require.NoError(t, err)
	return events[0].Tokens[0].Top
}

// Ensure that beams of two tokens are the most likely pairs, in order of probability. Each pair begins
// with one of the most likely first tokens.
func TestBeamsAreTheMostLikelyAnswersInOrder(t *testing.T) {
	s := start(t, nil)
	const width = 4
	for _, prompt := range [][]int32{{1, 97}, {1, 97, 98, 97, 99, 97}, {1, 50, 51, 52, 50, 51, 53, 51}} {
		type pair struct {
			text string
			sum  float64
		}
		var pairs []pair
		for _, first := range s.next(t, prompt, 2*width)[:width] {
			for _, second := range s.next(t, append(slices.Clone(prompt), first.Token), 2*width) {
				pairs = append(pairs, pair{s.engine.Config().Tokenizer.Decode([]int32{first.Token, second.Token}),
					float64(first.Value) + float64(second.Value)})
			}
		}
		slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.sum, a.sum) })
		ids, _ := json.Marshal(prompt)
		a := s.ask(t, texts, fmt.Sprintf(
			demo+`"prompt": %s, "max_tokens": 2, "n": %d, "use_beam_search": true, "ignore_eos": true}`, ids, width))
		require.Equal(t, 200, a.Status)
		require.Len(t, a.Choices, width)
		require.Equal(t, 2*width, a.Usage.Completion)
		for i, c := range a.Choices {
			require.Equal(t, i, c.Index)
			require.Equal(t, "length", c.Finish)
			require.Equal(t, strings.ToValidUTF8(pairs[i].text, "\uFFFD"), strings.ToValidUTF8(c.Text, "\uFFFD"),
				"beam %d after %v", i, prompt)
		}
	}
	settle(t, s)
}

// Ensure that a search with one beam gives the greedy answer, also if the answer ends with an end
// token.
func TestOneBeamIsGreedy(t *testing.T) {
	s := start(t, nil)
	const body = demo + `"prompt": [1, 2, 72, 105, 3, 2], "max_tokens": 20, "temperature": 0`
	greedy, beam := s.ask(t, texts, body+"}"), s.ask(t, texts, body+`, "use_beam_search": true}`)
	require.Equal(t, "Hi", greedy.Choices[0].Text)
	require.Equal(t, greedy.Choices, beam.Choices)
	beam = s.ask(t, texts, body+`, "use_beam_search": true, "stop_token_ids": [105]}`)
	require.Equal(t, "H", beam.Choices[0].Text, "without the token that ends it")
}

// Ensure that a large length_penalty puts a long answer before a short one, and that a negative one puts the short
// answer first. The most likely answer comes before both.
func TestTheLengthPenaltyOrdersBeams(t *testing.T) {
	s := start(t, nil)
	end := s.next(t, []int32{1, 2, 72, 105, 106, 107, 3, 2}, 2)[1].Token // unlikely, and ends an answer
	for penalty, want := range map[int]string{5: "length", -5: "stop"} {
		a := s.ask(t, texts, fmt.Sprintf(demo+`"prompt": [1, 2, 72, 105, 106, 107, 3, 2], "max_tokens": 4, "n": 3, `+
			`"temperature": 0, "use_beam_search": true, "length_penalty": %d, "stop_token_ids": [%d]}`, penalty, end))
		require.Equal(t, 200, a.Status)
		require.Equal(t, "Hijk", a.Choices[0].Text, "by far the most likely one")
		require.Equal(t, want, a.Choices[1].Finish, "penalty %d: %+v", penalty, a.Choices)
	}
}

// logprob returns the log probability of an answer to a prompt.
func (s *served) logprob(t *testing.T, prompt, answer []int32) (sum float64) {
	r := engine.Request{Prompt: append(slices.Clone(prompt), answer...), MaxTokens: 1, Params: sampling.Default()}
	r.Temperature, r.PromptLogprobs = 0, 0
	stream, err := s.engine.Submit(r)
	require.NoError(t, err)
	events, err := stream.Next(t.Context())
	require.NoError(t, err)
	for _, token := range events[0].Prompt[len(prompt):] {
		sum += float64(token.Logprob.Value)
	}
	return sum
}

// Ensure that a search with a form finds the answers of this form, in the order of their scores. The scores come from
// the log probabilities of the model without the form. Answers without this form may be more likely.
func TestBeamsWithAFormAreTheMostLikelyAnswersOfTheForm(t *testing.T) {
	s := start(t, nil)
	prompt := []int32{1, 97, 98, 97, 99, 97}
	choices := []string{"ab", "adc", "zz", "za", "b", "xyz", "xq", "0"}
	for penalty := range 3 {
		score := func(text string) float64 {
			var ids []int32
			for _, b := range []byte(text) {
				ids = append(ids, int32(b))
			}
			return s.logprob(t, prompt, ids) / math.Pow(float64(len(prompt)+len(ids)), float64(penalty))
		}
		ids, _ := json.Marshal(prompt)
		list, _ := json.Marshal(choices)
		a := s.ask(t, texts, fmt.Sprintf(demo+`"prompt": %s, "n": 8, "use_beam_search": true, "ignore_eos": true, "length_penalty": %d,
			"guided_choice": %s}`, ids, penalty, list))
		require.Equal(t, 200, a.Status, a.Text)
		var got []string
		for i, c := range a.Choices {
			require.Equal(t, "stop", c.Finish)
			require.Nil(t, c.StopReason)
			got = append(got, c.Text)
			if i > 0 {
				require.LessOrEqual(t, score(c.Text), score(got[i-1])+1e-4, "%v, penalty %d", got, penalty)
			}
		}
		require.ElementsMatch(t, choices, got)
	}
	settle(t, s)
}

func TestBeamsHaveTheForm(t *testing.T) {
	level.SkipNormal(t)
	s := start(t, nil)
	for _, form := range forms {
		if strings.Contains(form.fields, personSchema) { // the model would repeat the white space that JSON allows
			form.fields = `"structured_outputs": {"disable_any_whitespace": true, "json": ` + personSchema + `}`
		}
		t.Run(form.name, func(t *testing.T) {
			for path, begin := range map[string]string{texts: text, chats: talk} {
				a := s.ask(t, path, begin+form.fields+`, "max_tokens": 120, "n": 2, "use_beam_search": true}`)
				require.Equal(t, 200, a.Status, a.Text)
				require.NotEmpty(t, a.Choices)
				for _, c := range a.Choices {
					require.Equal(t, "stop", c.Finish, "%q", c.Text+c.Message.Content)
					form.check(t, c.Text+c.Message.Content)
				}
			}
		})
	}
	settle(t, s)
}

// Ensure that a beam may end when its form allows it, with or without the model's own end token. Complete answers
// come before answers cut by max_tokens.
func TestBeamsEndWhereTheFormMayEnd(t *testing.T) {
	s := start(t, nil)
	const begin = demo + `"prompt": [1, 2, 72, 105, 3, 2], "use_beam_search": true, `
	for _, test := range []struct {
		name, fields string
		want         []string // text and finish
	}{
		{"an end token", `"max_tokens": 9, "guided_regex": "Hi+"`, []string{"Hi stop"}},
		{"no end token", `"max_tokens": 3, "guided_regex": "Hi+", "ignore_eos": true`, []string{"Hii length"}},
		{"a token that ends it", `"max_tokens": 9, "guided_regex": "Hi+", "stop_token_ids": [105]`, []string{"H stop"}},
		{"complete answers first", `"max_tokens": 3, "guided_regex": "Hi+xyz|0", "n": 2`, []string{"0 stop", "Hii length"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.ask(t, texts, begin+test.fields+"}")
			require.Equal(t, 200, a.Status, a.Text)
			var got []string
			for _, c := range a.Choices {
				got = append(got, c.Text+" "+c.Finish)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// Ensure that beams call a tool if tool_choice requires a call. If parallel_tool_calls is false, an answer has only
// one call. The field include_reasoning can leave out the reasoning.
func TestBeamsCallTools(t *testing.T) {
	const tool = `"use_beam_search": true, "n": 2, "max_tokens": 100, "parallel_tool_calls": false, "tool_choice": "required",
		"structured_outputs": {"disable_any_whitespace": true},
		"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2]}},
		"required": ["a"], "additionalProperties": false}}}]`
	a := startTools(t, "hermes", "").ask(t, chats, talk+tool+"}")
	require.Equal(t, 200, a.Status, a.Text)
	require.Len(t, a.Choices, 2)
	for _, c := range a.Choices {
		require.Equal(t, "tool_calls", c.Finish)
		require.Len(t, c.Message.ToolCalls, 1)
		require.Equal(t, "f", c.Message.ToolCalls[0].Function.Name)
		require.Regexp(t, `^\{"a": [12]\}$`, c.Message.ToolCalls[0].Function.Arguments)
	}

	const thought = demo + `"messages": [{"role": "user", "content": "Hm.</think>Yes."}], "use_beam_search": true, "max_tokens": 40`
	s := startTools(t, "hermes", "deepseek_r1")
	for more, want := range map[string]string{"": "Hm.", `, "include_reasoning": false`: ""} {
		a = s.ask(t, chats, thought+more+"}")
		require.Equal(t, 200, a.Status, a.Text)
		require.Equal(t, "Yes.", a.Choices[0].Message.Content, a.Text)
		require.Equal(t, want, a.Choices[0].Message.Reasoning, a.Text)
	}
}
