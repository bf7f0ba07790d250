package openai_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/sampling"
)

// ask posts a completion and returns its status and its answer.
func (s *served) ask(t *testing.T, body string) (int, answered) {
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	var a answered
	require.NoError(t, json.Unmarshal(data, &a), "%s", data)
	return r.StatusCode, a
}

type answered struct {
	Choices []struct {
		Text     string
		Finish   string `json:"finish_reason"`
		Logprobs struct {
			Values []float64 `json:"token_logprobs"`
		}
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
	Error struct{ Message, Param string }
}

// logprob is how likely an answer of n tokens is after a prompt, as the server says of it when it
// is a prompt itself.
func (s *served) logprob(t *testing.T, prompt, answer string, n int) (sum float64) {
	whole, _ := json.Marshal(prompt + answer)
	status, a := s.ask(t, fmt.Sprintf(
		`{"model": "demo", "prompt": %s, "max_tokens": 1, "echo": true, "logprobs": 0, "temperature": 0}`, whole))
	require.Equal(t, 200, status)
	values := a.Choices[0].Logprobs.Values
	for _, v := range values[len(values)-1-n : len(values)-1] {
		sum += v
	}
	return sum
}

func TestBeamsAreTheMostLikelyAnswersInOrder(t *testing.T) {
	s := start(t, nil)
	const tokens = 4
	prompt := story + "The code of the vault"
	text, _ := json.Marshal(prompt)
	status, a := s.ask(t, fmt.Sprintf(
		`{"model": "demo", "prompt": %s, "max_tokens": %d, "n": 4, "use_beam_search": true}`, text, tokens))
	require.Equal(t, 200, status)
	require.Len(t, a.Choices, 4)
	require.Equal(t, " is ", a.Choices[0].Text)
	require.Equal(t, 4*tokens, a.Usage.Completion)
	seen, last := map[string]bool{}, 0.0
	for i, c := range a.Choices {
		require.False(t, seen[c.Text], "%q twice", c.Text)
		seen[c.Text] = true
		require.Equal(t, "length", c.Finish)
		if strings.ContainsRune(c.Text, '\uFFFD') {
			continue // its bytes cannot be sent back as text
		}
		sum := s.logprob(t, prompt, c.Text, tokens)
		require.True(t, i == 0 || sum <= last+1e-3, "%q has %f, the one before %f", c.Text, sum, last)
		last = sum
	}
	settle(t, s)
}

// One beam is the greedy answer, also where the sequence ends by itself.
func TestOneBeamIsGreedy(t *testing.T) {
	s := start(t, nil)
	body := `{"model": "demo", "prompt": [1, 2, 72, 105, 3, 2], "max_tokens": 20, "temperature": 0%s}`
	_, greedy := s.ask(t, fmt.Sprintf(body, ""))
	status, a := s.ask(t, fmt.Sprintf(body, `, "use_beam_search": true`))
	require.Equal(t, 200, status)
	require.Equal(t, "Hi", greedy.Choices[0].Text)
	require.Equal(t, "stop", a.Choices[0].Finish)
	require.Equal(t, greedy.Choices[0].Text, a.Choices[0].Text)
}

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

// A large length_penalty puts long answers before short ones that are as likely, a negative one the other way round.
func TestTheLengthPenaltyOrdersBeams(t *testing.T) {
	s := start(t, nil)
	end := s.next(t, []int32{1, 2, 72, 105, 106, 107, 3, 2}, 2)[1].Token // unlikely, and ends an answer
	for _, test := range []struct {
		penalty int
		want    string
	}{{5, "length"}, {-5, "stop"}} {
		status, a := s.ask(t, fmt.Sprintf(
			`{"model": "demo", "prompt": [1, 2, 72, 105, 106, 107, 3, 2], "max_tokens": 4, "n": 3, "temperature": 0, "use_beam_search": true, "length_penalty": %d, "stop_token_ids": [%d]}`,
			test.penalty, end))
		require.Equal(t, 200, status)
		require.Equal(t, "Hijk", a.Choices[0].Text, "by far the most likely one")
		require.Equal(t, test.want, a.Choices[1].Finish, "penalty %d: %+v", test.penalty, a.Choices)
	}
}

func TestABodyThatIsNoObjectIsRefused(t *testing.T) {
	s := start(t, nil)
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader("[1]"))
	require.NoError(t, err)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, 400, r.StatusCode)
	require.Contains(t, string(data), "The body is a JSON array; an object is expected.")
}

func TestBeamSearchRefusesWhatItCannotDo(t *testing.T) {
	s := start(t, nil)
	tests := []struct{ name, more, param string }{
		{"streaming", `"stream": true`, "stream"},
		{"too many beams", `"n": 11`, "n"},
		{"log probabilities", `"logprobs": 1`, "logprobs"},
		{"stop strings", `"stop": "x"`, "stop"},
		{"no tokens", `"max_tokens": 0`, "max_tokens"},
		{"a bad temperature", `"temperature": 9`, "temperature"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status, a := s.ask(t, `{"model": "demo", "prompt": "abc", "use_beam_search": true, `+test.more+`}`)
			require.Equal(t, 400, status)
			require.Equal(t, test.param, a.Error.Param, a.Error.Message)
		})
	}
}

// Of two tokens the beams are the best pairs that begin with one of the best first tokens.
func TestBeamsOfSeveralBeginningsCompete(t *testing.T) {
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
		status, a := s.ask(t, fmt.Sprintf(
			`{"model": "demo", "prompt": %s, "max_tokens": 2, "n": %d, "use_beam_search": true, "ignore_eos": true}`, ids,
			width))
		require.Equal(t, 200, status)
		for i, c := range a.Choices {
			require.Equal(t, strings.ToValidUTF8(pairs[i].text, "\uFFFD"), strings.ToValidUTF8(c.Text, "\uFFFD"),
				"beam %d after %v", i, prompt)
		}
	}
}
